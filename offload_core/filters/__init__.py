"""Offload filters: which entries are kept when a topic is offloaded, what takes the others' place, and what is told."""

from offload_core.filters.chosen import NO_FILTER, ChosenFilter
from offload_core.filters.run import FilteredEntries, FilterRun
from offload_core.metadata.filter_record import DroppedEntries, FilterMode, FilterRecord, parse_filter_record

__all__ = [
    "NO_FILTER",
    "ChosenFilter",
    "DroppedEntries",
    "FilterMode",
    "FilterRecord",
    "FilterRun",
    "FilteredEntries",
    "parse_filter_record",
]
