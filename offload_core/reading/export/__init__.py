"""Export: topics to Parquet files, Iceberg or Delta tables, each message once, whatever is killed meanwhile."""

from offload_core.reading.export.model import (
    DEFAULT_ROW_GROUP_BYTES,
    ExportProgress,
    ExportReport,
    ParquetOptions,
)
from offload_core.reading.export.opening import open_target
from offload_core.reading.export.partitions import NEEDED_COLUMNS
from offload_core.reading.export.run import Listener, export

__all__ = [
    "DEFAULT_ROW_GROUP_BYTES",
    "NEEDED_COLUMNS",
    "ExportProgress",
    "ExportReport",
    "Listener",
    "ParquetOptions",
    "export",
    "open_target",
]
