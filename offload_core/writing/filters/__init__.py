"""Offload filters: which entries are kept when a topic is offloaded, what takes the others' place, and what is told."""

from offload_core.writing.filters.filter_run import (
    NO_FILTER,
    ChosenFilter,
    DroppedEntries,
    FilteredEntries,
    FilterMode,
    FilterRecord,
    FilterRun,
    joined,
    parse_filter_record,
)

__all__ = [
    "NO_FILTER",
    "ChosenFilter",
    "DroppedEntries",
    "FilterMode",
    "FilterRecord",
    "FilterRun",
    "FilteredEntries",
    "joined",
    "parse_filter_record",
]
