"""Plan what to read, and read it as Arrow record batches."""

from offload_core.scan.plan import DEFAULT_TASK_BYTES, Bounds, plan_tasks
from offload_core.scan.positions import Offsets, Position, parse_offsets, parse_position
from offload_core.scan.read import read_task
from offload_core.scan.scan import Scan
from offload_core.scan.select import Selection, select_records, select_topics
from offload_core.scan.tasks import LedgerShare, ReadOptions, Run, ScanTask, TimeRange
from offload_core.scan.times import time_range

__all__ = [
    "DEFAULT_TASK_BYTES",
    "Bounds",
    "LedgerShare",
    "Offsets",
    "Position",
    "ReadOptions",
    "Run",
    "Scan",
    "ScanTask",
    "Selection",
    "TimeRange",
    "parse_offsets",
    "parse_position",
    "plan_tasks",
    "read_task",
    "select_records",
    "select_topics",
    "time_range",
]
