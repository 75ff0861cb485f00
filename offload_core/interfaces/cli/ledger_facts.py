"""Facts of a ledger that its record and its filter state, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from offload_core.format.codec.extent import LedgerExtent
from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.catalogue import TopicName, recorded_copies
from offload_core.metadata.records import DriverMetadata, LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.filter_record import (
    DroppedEntries,
    FilterMode,
    FilterRecord,
    indexed_filter,
    parse_filter_record,
)
from offload_hooks.errors import FormatError, OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A ledger whose record names an object."""

    topic: TopicName
    record: LedgerRecord


def find_mentions(records: Mapping[TopicName, ManagedLedgerInfo], key: ObjectKey) -> list[Mention]:
    """Return all ledgers whose records name the object under `key`, by its uuid.

    Raises:
        OptionError: a record and the key disagree on the object's format; it names both.
    """
    found = []
    for topic, info in records.items():
        for record in info.in_order:
            for copy in recorded_copies(topic, record):
                if copy.key.uuid != key.uuid:
                    continue
                is_said = copy.mapfile_key is None  # else it is not recorded which
                if is_said and copy.key.object_format is not key.object_format:
                    raise OptionError(
                        f"a record of {topic} and an object's key name different formats",
                        key=key.data_key,
                        ledger_id=record.ledger_id,
                        expected=f"{copy.key.object_format.value} by the record",
                        found=f"{key.object_format.value} by the key",
                    )
                found.append(Mention(topic=topic, record=record))
    return found


def recorded_state(record: LedgerRecord) -> str:
    """Return where a ledger is by its record, in few words."""
    context = record.context
    if context is None or (context.uuid is None and not context.segments):
        return "BookKeeper only"
    if context.segments:
        counts = Counter(segment.status.value for segment in context.segments)
        counted = [f"{count} {status}" for status, count in sorted(counts.items())]
        state = f"segments: {', '.join(counted)}"
    else:
        state = "offloaded" if context.complete else "not complete"
    return state if record.has_hot_copy else f"{state}; deleted from BookKeeper"


def record_to_json(record: LedgerRecord) -> dict[str, Any]:
    """Return all fields of a record."""
    context = record.context
    return {
        "state": recorded_state(record),
        "entries": record.info.entries,
        "size_bytes": record.info.size,
        "closed": record.info.is_closed,
        "uuid": str(context.uuid) if context and context.uuid else None,
        "complete": record.is_fully_offloaded,
        "bookkeeper_deleted": not record.has_hot_copy,
        "driver": _driver_to_json(context.driver) if context else None,
        "segments": [
            {
                "uuid": str(segment.uuid),
                "status": segment.status.value,
                "begin_entry": begin,
                "end_entry": segment.end_entry_id,
                "bookkeeper_deleted": segment.bookkeeper_deleted,
                "driver": _driver_to_json(segment.driver),
            }
            for begin, segment in zip(context.first_entry_ids(), context.segments, strict=True)
        ]
        if context
        else [],
    }


def _driver_to_json(driver: DriverMetadata | None) -> dict[str, Any] | None:
    return None if driver is None else {"name": driver.name, "properties": dict(driver.properties)}


_PLACES = {FilterMode.GAP: "gaps", FilterMode.TOMBSTONE: "tombstones"}


def filter_note(records: Iterable[FilterRecord]) -> str:
    """Summarise dropped entries, as in `gaps for 2 of 3 entries by transactions`; empty for none."""
    sums: dict[tuple[str, FilterMode], tuple[DroppedEntries, DroppedEntries]] = {}
    for record in records:
        key = record.name, record.mode
        kept, dropped = sums.get(key, (DroppedEntries(), DroppedEntries()))
        sums[key] = kept + record.kept, dropped + record.total_dropped
    return ", ".join(
        f"{_PLACES[mode]} for {dropped.entries:,} of {kept.entries + dropped.entries:,} entries by {name}"
        for (name, mode), (kept, dropped) in sums.items()
    )


def indexed(extents: Iterable[LedgerExtent]) -> list[FilterRecord]:
    """Return the filter records of indexes; skip those that cannot be read."""
    return _readable(partial(indexed_filter, extent.ledger) for extent in extents)


def recorded(texts: Iterable[str | None]) -> list[FilterRecord]:
    """Return the filter records of offload contexts; skip None and those that cannot be read."""
    return _readable(partial(parse_filter_record, text) for text in texts if text is not None)


def _readable(reads: Iterable[Callable[[], FilterRecord | None]]) -> list[FilterRecord]:
    found = []
    for read in reads:
        with suppress(FormatError):
            found.append(read())
    return [record for record in found if record is not None]
