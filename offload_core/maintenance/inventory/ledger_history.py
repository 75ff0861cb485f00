"""The life of a topic's ledgers, put together from records, objects and audit logs, in the order of time.

A record has the present state and its times; an object, when it was written and whether it is whole; a hot tier, when a
ledger was created and what it has; an audit log, changes and deletions with their reasons. Events without a time come
last.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from uuid import UUID

from offload_core.format.codec.index import LedgerIndex
from offload_core.format.codec.ledger_metadata import LedgerMetadata
from offload_core.metadata.catalogue import Ledger, StoredObject, concurrently
from offload_core.metadata.catalogue.known_tiers import place_text
from offload_core.metadata.records import DriverMetadata, LedgerRecord, OffloadSegment
from offload_core.metadata.records.filter_record import recorded_filter
from offload_core.writing.audit import AuditLine
from offload_hooks.errors import FormatError, UnknownLedgerError
from offload_hooks.ledger_stores import LedgerReader


class Happened(enum.Enum):
    """Kind of an event."""

    OPENED = "opened"
    CLOSED = "closed"
    ASSIGNED = "assigned"
    """An attempt was recorded, before its first byte."""
    WRITTEN = "written"
    """The objects of an attempt were there."""
    OFFLOADED = "offloaded"
    """The record called a copy complete."""
    UNFINISHED = "unfinished"
    """The record names an attempt that is not complete, or has failed."""
    HOT_DELETED = "hot-deleted"
    HOT_MISSING = "hot-missing"
    """The hot tier does not have a ledger that it should have by the record, or cannot read it."""
    COLD_DELETED = "cold-deleted"
    CHANGED = "changed"
    """Another line of an audit log, such as a replaced copy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened.

    Attributes:
        at: None where no source has the time.
        ledger_id: None if it is about none, or about several.
        uuid: of the attempt.
        detail: in words.
        source: `record`, `object`, `hot` or `audit`.
    """

    at: datetime | None
    ledger_id: int | None
    what: Happened
    uuid: UUID | None
    detail: str
    source: str


def history_of(
    name: str,
    ledgers: Iterable[Ledger],
    records: Sequence[LedgerRecord] = (),
    audits: Iterable[AuditLine] = (),
    strays: Iterable[StoredObject] = (),
    *,
    open_hot: Callable[[int], LedgerReader] | None = None,
) -> list[Event]:
    """Return the events of a managed ledger, in the order of time.

    Args:
        name: the managed ledger's.
        ledgers: its ledgers with all attempts at them, by the objects.
        records: its ledgers' records.
        audits: lines of audit logs, also of others.
        strays: its objects whose ledgers are not known.
        open_hot: opens a ledger of the hot tier by its id; None to ask for none.

    Raises:
        StoreError: of the hot tier.
    """
    events = [event for ledger in ledgers for event in _of_objects(ledger)]
    events += [_written(None, stored, "") for stored in strays]
    events += [event for record in records for event in _of_record(record)]
    known = {event.uuid for event in events if event.uuid is not None}
    if open_hot is not None:
        events += concurrently(partial(_of_hot, open_hot), [each for each in records if each.has_hot_copy])
    logged = [event for line in audits for event in _of_audit(line, name, known)]
    logged_ids = {event.ledger_id for event in logged if event.what is Happened.HOT_DELETED}
    events = [
        event
        for event in events
        if not (event.what is Happened.HOT_DELETED and event.at is None and event.ledger_id in logged_ids)
    ]
    return sorted(dict.fromkeys([*events, *logged]), key=_order)


_STEPS = list(Happened)


def _order(event: Event) -> tuple[bool, datetime, int, int]:
    at = datetime.max.replace(tzinfo=timezone.utc) if event.at is None else event.at
    ledger_id = -1 if event.ledger_id is None else event.ledger_id
    return event.at is None, at, ledger_id, _STEPS.index(event.what)


# --- objects -----------------------------------------------------------------------------------


def _of_objects(ledger: Ledger) -> Iterator[Event]:
    opened: set[int] = set()
    read = {extent.key for extent in ledger.extents}
    for stored in ledger.attempts:
        indexed = indexed_ledger(stored, ledger.ledger_id)
        if indexed is not None and isinstance(indexed.metadata, LedgerMetadata) and indexed.metadata.ctime_ms:
            opened.add(indexed.metadata.ctime_ms)
        state = "" if stored.key in read or not stored.is_complete else "superseded: a newer copy is read"
        yield _written(ledger.ledger_id, stored, state)
    for ctime_ms in sorted(opened)[:1]:
        yield Event(
            at=time_of_ms(ctime_ms),
            ledger_id=ledger.ledger_id,
            what=Happened.OPENED,
            uuid=None,
            detail="by the index",
            source="object",
        )


def indexed_ledger(stored: StoredObject, ledger_id: int) -> LedgerIndex | None:
    """A ledger in the index of an object; None if the index is not read, or does not have it."""
    if stored.index is None:
        return None
    return next((each for each in stored.index.ledgers if each.ledger_id == ledger_id), None)


def _written(ledger_id: int | None, stored: StoredObject, state: str) -> Event:
    size = (stored.data_bytes or 0) + (stored.index_bytes or 0)
    details = [f"{stored.key.object_format.value}, {size:,} bytes", state]
    if stored.problem is not None:
        details.append(f"not readable: {stored.detail or stored.problem.value}")
    elif stored.complaint is not None:
        details.append(stored.complaint[1])
    return Event(
        at=stored.modified_at,
        ledger_id=ledger_id,
        what=Happened.WRITTEN,
        uuid=stored.key.uuid,
        detail="; ".join(each for each in details if each),
        source="object",
    )


# --- records -----------------------------------------------------------------------------------


def _of_record(record: LedgerRecord) -> Iterator[Event]:
    def event(at_ms: int | None, what: Happened, uuid: UUID | None, detail: str) -> Event:
        return Event(
            at=time_of_ms(at_ms),
            ledger_id=record.ledger_id,
            what=what,
            uuid=uuid,
            detail=detail,
            source="record",
        )

    info, context = record.info, record.context
    if info.is_closed:
        yield event(
            info.timestamp_ms,
            Happened.CLOSED,
            None,
            f"{info.entries or 0:,} entries, {info.size or 0:,} bytes",
        )
    if context is None:
        return
    for copy in record.copies:
        place, share, begin = _place(copy.driver, record.ledger_id), copy.segment, copy.begin_entry_id
        if share is None:
            what = Happened.OFFLOADED if copy.complete else Happened.UNFINISHED
            yield event(context.timestamp_ms, what, copy.uuid, f"to {place}")
            continue
        if share.assigned_ms is not None:
            yield event(share.assigned_ms, Happened.ASSIGNED, copy.uuid, f"segment, from entry {begin} on")
        if copy.complete:
            detail = f"segment, {_entries(begin, share)}, to {place}"
            yield event(share.offloaded_ms, Happened.OFFLOADED, copy.uuid, detail)
        else:
            yield event(None, Happened.UNFINISHED, copy.uuid, f"segment, {share.status.value}")
    if not record.has_hot_copy:
        yield event(None, Happened.HOT_DELETED, None, "by its record")


def _entries(begin: int | None, share: OffloadSegment) -> str:
    if share.end_entry_id is None:
        return f"entries from {begin} on"
    return f"entries {begin}–{share.end_entry_id}"


def _place(driver: DriverMetadata | None, ledger_id: int) -> str:
    if driver is None:
        return "a tier that is not named"
    try:
        filtered = recorded_filter(driver, ledger_id)
    except FormatError:
        filtered = None
    dropped = (
        "" if filtered is None else f"; {filtered.name} dropped {filtered.total_dropped.entries:,} entries"
    )
    return f"{place_text(driver)}{dropped}"


# --- a hot tier --------------------------------------------------------------------------------


def _of_hot(open_ledger: Callable[[int], LedgerReader], record: LedgerRecord) -> Event:
    try:
        with closing(open_ledger(record.ledger_id)) as reader:
            status = reader.status()
    except (UnknownLedgerError, FormatError) as error:
        what, at_ms, detail = Happened.HOT_MISSING, None, str(error)
    else:
        what, at_ms = Happened.OPENED, status.created_at_ms
        so_far = "" if status.sealed else " so far"
        detail = f"hot: {status.entry_count:,} entries, {status.size_bytes:,} bytes{so_far}"
    return Event(
        at=time_of_ms(at_ms), ledger_id=record.ledger_id, what=what, uuid=None, detail=detail, source="hot"
    )


# --- audit logs --------------------------------------------------------------------------------


def _of_audit(line: AuditLine, name: str, known: set[UUID]) -> Iterator[Event]:
    if line.managed_ledger != name and line.uuid not in known:
        return
    what = Happened.CHANGED
    details = [line.why]
    if line.action == "delete":
        what = Happened.HOT_DELETED if line.copy == "hot" else Happened.COLD_DELETED
    else:
        details = [
            line.action,
            *(f"{each}" for each in (line.key, line.before, line.after) if each),
            line.why,
        ]
    yield Event(
        at=line.at,
        ledger_id=line.ledger_id,
        what=what,
        uuid=line.uuid,
        detail=": ".join(details),
        source="audit",
    )


def time_of_ms(at_ms: int | None) -> datetime | None:
    """A time of a record or an index; None for one that no calendar has: Pulsar's are text for people as well."""
    try:
        return None if not at_ms else datetime.fromtimestamp(at_ms / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return None
