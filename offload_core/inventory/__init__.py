"""What lies in a tier, however much it is: rows by level, bytes by place, and the life of ledgers."""

from offload_core.inventory.rows import Level, Row, rows_of
from offload_core.inventory.sources import recorded_ledgers
from offload_core.inventory.spool import Spool
from offload_core.inventory.usage import By, Usage, measure
from offload_core.inventory.wanted import TopicPatterns

__all__ = [
    "By",
    "Level",
    "Row",
    "Spool",
    "TopicPatterns",
    "Usage",
    "measure",
    "recorded_ledgers",
    "rows_of",
]
