"""What a managed ledger's record says of a ledger, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.catalogue import TopicName, recorded_copies
from offload_core.metadata.records import DriverMetadata, LedgerRecord, ManagedLedgerInfo
from offload_hooks.errors import OptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A ledger whose record names an object."""

    topic: TopicName
    record: LedgerRecord


def find_mentions(records: Mapping[TopicName, ManagedLedgerInfo], key: ObjectKey) -> list[Mention]:
    """All ledgers whose records name the object under `key`, by its uuid.

    Raises:
        OptionError: a record and the key disagree on the object's format; it names both.
    """
    found = []
    for topic, info in records.items():
        for record in info.in_order:
            for copy in recorded_copies(topic, record):
                if copy.key.uuid != key.uuid:
                    continue
                is_said = copy.mapfile_key is None  # else the record does not say which
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
    """Where a ledger is by its record, in few words."""
    context = record.context
    if context is None or (context.uuid is None and not context.segments):
        return "BookKeeper only"
    if context.segments:
        counts = Counter(segment.status.value for segment in context.segments)
        said = [f"{count} {status}" for status, count in sorted(counts.items())]
        state = f"segments: {', '.join(said)}"
    else:
        state = "offloaded" if context.complete else "not complete"
    return state if record.has_hot_copy else f"{state}; deleted from BookKeeper"


def record_to_json(record: LedgerRecord) -> dict[str, Any]:
    """All that it says."""
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
