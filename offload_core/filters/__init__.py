"""Offload filters: which entries are kept when a topic is offloaded, what takes the others' place, and what is told."""

from offload_core.filters.chosen import NO_FILTER, ChosenFilter
from offload_core.filters.record import DroppedEntries, FilterMode, FilterRecord, joined, parse_filter_record
from offload_core.filters.run import FilteredEntries, FilterRun

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
