"""Contents of a tier, however large it is: rows by level, bytes by place, and the life of ledgers."""

from offload_core.maintenance.inventory.inventory_rows import (
    Row,
    RowLevel,
    Spool,
    TopicPatterns,
    recorded_ledgers,
    rows_of,
)
from offload_core.maintenance.inventory.tier_usage import By, Usage, measure

__all__ = [
    "By",
    "Row",
    "RowLevel",
    "Spool",
    "TopicPatterns",
    "Usage",
    "measure",
    "recorded_ledgers",
    "rows_of",
]
