"""What filters tell of their runs: the records of `metadata.filter_record`, and several of one filter put together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from offload_core.metadata import EntryPosition
from offload_core.metadata.filter_record import DroppedEntries, FilterMode, FilterRecord, parse_filter_record

__all__ = ["DroppedEntries", "FilterMode", "FilterRecord", "joined", "parse_filter_record"]


def joined(records: Sequence[FilterRecord], stop: EntryPosition | None) -> FilterRecord:
    """What whole records of the same filter, at least one, say together; it went as far as `stop`."""
    kept, dropped = DroppedEntries(), defaultdict[str, DroppedEntries](DroppedEntries)
    for record in records:
        kept += record.kept
        for cause, each in (record.dropped or {}).items():
            dropped[cause] += each
    return FilterRecord.of(records[0].name, records[0].mode, stop, kept, dict(dropped))
