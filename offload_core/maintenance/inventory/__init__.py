"""Take stock of a tier of any size: rows by level, usage, history, costs, the report."""

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
