"""Plan what to read, and read it as Arrow record batches."""

from offload_core.scan.plan import DEFAULT_TASK_BYTES, Bounds, plan_tasks
from offload_core.scan.positions import Offsets, Position, parse_offsets, parse_position
from offload_core.scan.read import read_task
from offload_core.scan.resume import resume_offsets
from offload_core.scan.scan import Scan
from offload_core.scan.select import Selection, select_records, select_topics
from offload_core.scan.tasks import ReadOptions, Run, ScanTask

__all__ = [
    "DEFAULT_TASK_BYTES",
    "Bounds",
    "Offsets",
    "Position",
    "ReadOptions",
    "Run",
    "Scan",
    "ScanTask",
    "Selection",
    "parse_offsets",
    "parse_position",
    "plan_tasks",
    "read_task",
    "resume_offsets",
    "select_records",
    "select_topics",
]
