"""Export topics to Parquet, CSV, JSON lines, Iceberg or Delta: each message once, whatever is killed meanwhile."""

from offload_core.reading.export.export_files import (
    DEFAULT_ROW_GROUP_BYTES,
    ExportProgress,
    ExportReport,
    FileFormat,
    ParquetOptions,
)
from offload_core.reading.export.exporting import export, open_target

__all__ = [
    "DEFAULT_ROW_GROUP_BYTES",
    "ExportProgress",
    "ExportReport",
    "FileFormat",
    "ParquetOptions",
    "export",
    "open_target",
]
