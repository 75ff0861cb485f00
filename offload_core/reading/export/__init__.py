"""Export: topics to Parquet files, Iceberg or Delta tables, each message once, whatever is killed meanwhile."""

from offload_core.reading.export.export_files import (
    DEFAULT_ROW_GROUP_BYTES,
    NEEDED_COLUMNS,
    ExportProgress,
    ExportReport,
    ParquetOptions,
)
from offload_core.reading.export.exporting import Listener, export, open_target

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
