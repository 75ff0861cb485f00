"""Plan scans of topics, and read them as Arrow record batches."""

from offload_core.reading.scan.estimate import ScanEstimate, explain_scan
from offload_core.reading.scan.options import ScanOptions
from offload_core.reading.scan.plan import DEFAULT_TASK_BYTES, Bounds, plan_tasks
from offload_core.reading.scan.positions import (
    Offsets,
    Position,
    message_id_of_position,
    parse_offsets,
    parse_position,
    position_of_message_id,
)
from offload_core.reading.scan.pruning import Condition, Operator
from offload_core.reading.scan.read import ReadProgress, Report, TaskMetrics, read_task
from offload_core.reading.scan.scanning import Scan, scan, select_catalogue
from offload_core.reading.scan.select import Selection, select_topics
from offload_core.reading.scan.tasks import ReadOptions, ScanExtent, ScanLedger, ScanTask

__all__ = [
    "DEFAULT_TASK_BYTES",
    "Bounds",
    "Condition",
    "Offsets",
    "Operator",
    "Position",
    "ReadOptions",
    "ReadProgress",
    "Report",
    "Scan",
    "ScanEstimate",
    "ScanExtent",
    "ScanLedger",
    "ScanOptions",
    "ScanTask",
    "Selection",
    "TaskMetrics",
    "explain_scan",
    "message_id_of_position",
    "parse_offsets",
    "parse_position",
    "plan_tasks",
    "position_of_message_id",
    "read_task",
    "scan",
    "select_catalogue",
    "select_topics",
]
