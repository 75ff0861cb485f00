"""`OffloadContext` and `OffloadSegment` as values: where a ledger's cold copy is, and whether it may be read.

A ledger has one copy (PIP-17, MapFile), or segments (streaming), each with its own attempt. PIP-76's facts of a segment
that have no field are in its driver metadata, which Pulsar keeps and ignores. Unknown fields are kept, so that a record
that is read, changed and written loses nothing. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_hooks.errors import MetadataError, OptionError
from offload_hooks.json_text import WHOLE, shortened

if TYPE_CHECKING:
    from typing_extensions import Self

STATUS_PROPERTY = "status"
BEGIN_PROPERTY = "begin"
END_PROPERTY = "end"
FAILED = "failed"
FILTER_PROPERTY = "pulsar-offload.filter"
"""The filter record of a complete copy; see docs/formats/filter-record.md."""
BOOKKEEPER_DELETED_PROPERTY = "bookkeeperDeleted"
"""Property in the shipped layout of a segment, without a field for it: `true` if the ledger's hot copy is gone."""
REPLACEMENT_PROPERTY = "pulsar-offload.replacement"
"""Property in a ledger's context: the replacement of the copy that is read."""
REPLACED_PROPERTY = "pulsar-offload.replaced"
"""Property in a ledger's context: copies that were replaced, and whose objects may still exist."""

DAMAGED_PROPERTY = "pulsar-offload.damaged"
"""Property of a complete copy: its uuid, if a repair found it damaged; its ledgers' hot copies are then kept."""

MIRRORED_PROPERTY = "pulsar-offload.mirrored"
"""Property in a ledger's context in a mirror of a live record: the copy is the live record's; see `live_changes`."""

MAPFILE_DRIVER = "filesystem"
"""Pulsar's driver that stores MapFiles."""

_POSITION = re.compile(r"(0|[1-9][0-9]{0,18}):(0|[1-9][0-9]{0,18})")


class EntryPosition(NamedTuple):
    """An entry's place in a managed ledger."""

    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverMetadata:
    """The Pulsar driver that wrote a copy, and its place: names and values in stored order."""

    name: str
    properties: tuple[tuple[str, str], ...] = ()
    unknown_fields: bytes = b""

    @property
    def ledger_format(self) -> ObjectFormat:
        """The format of a ledger's copy by this driver, if it is one object."""
        return ObjectFormat.MAPFILE if self.name == MAPFILE_DRIVER else ObjectFormat.PIP17

    def get(self, name: str) -> str | None:
        """The property's value, None if there is none; the last of several, as in Pulsar."""
        for known, value in reversed(self.properties):  # few, and asked for of every ledger of a topic
            if known == name:
                return value
        return None

    def with_property(self, name: str, value: str | None) -> Self:
        """Set this property, at the end if it is new; remove it if `value` is None."""
        changed = [(known, value if known == name else old) for known, old in self.properties]
        if value is not None and self.get(name) is None:
            changed.append((name, value))
        return replace(self, properties=tuple((known, new) for known, new in changed if new is not None))


def ledger_copy_key(
    managed_ledger: str, ledger_id: int, uuid: UUID, driver: DriverMetadata | None
) -> ObjectKey:
    """The key of the data object of a ledger's copy, by what is recorded of it."""
    if driver is not None and driver.ledger_format is ObjectFormat.MAPFILE:
        return ObjectKey.of_mapfile(managed_ledger, ledger_id, uuid)
    return ObjectKey.of_ledger(ledger_id, uuid)


class AttemptStatus(enum.Enum):
    """The state of an attempt, with PIP-76's names for segments."""

    ASSIGNED = "assigned"
    """Begun: before its first byte is written."""
    OFFLOADED = "offloaded"
    """Complete: data and index exist, and its copy is read."""
    FAILED = "failed"
    """Abandoned: it never becomes complete, and its objects are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadSegment:
    """A ledger's share of a streaming segment.

    Attributes:
        uuid: the attempt's; the data object's key.
        bookkeeper_deleted: the ledger's hot copy is gone. BookKeeper deletes ledgers as a whole, so all of a ledger's
            shares have the same value, and so has its context.
        assigned_ms, offloaded_ms: milliseconds since 1970, UTC.
        end_entry_id: the last entry of the ledger in it; None while the segment is open.
    """

    uuid: UUID
    complete: bool = False
    bookkeeper_deleted: bool = False
    assigned_ms: int | None = None
    offloaded_ms: int | None = None
    end_entry_id: int | None = None
    driver: DriverMetadata | None = None
    unknown_fields: bytes = b""

    @property
    def status(self) -> AttemptStatus:
        """Offloaded if it is complete, else failed if that is recorded, else assigned."""
        if self.complete:
            return AttemptStatus.OFFLOADED
        return AttemptStatus.FAILED if self._property(STATUS_PROPERTY) == FAILED else AttemptStatus.ASSIGNED

    @property
    def begin(self) -> EntryPosition | None:
        """The whole segment's first entry, perhaps of an earlier ledger; None if not recorded. `MetadataError`."""
        return self._position(BEGIN_PROPERTY)

    @property
    def end(self) -> EntryPosition | None:
        """The whole segment's last entry, perhaps of a later ledger; None if not recorded. `MetadataError`."""
        return self._position(END_PROPERTY)

    @property
    def filter_record(self) -> str | None:
        """The short filter record of the ledger's entries in it; None if no filter ran."""
        return self._property(FILTER_PROPERTY)

    def with_filter_record(self, record: str | None) -> Self:
        """Set this filter record, or remove it."""
        return self if record == self.filter_record else self._with(FILTER_PROPERTY, record)

    def with_extent(self, begin: EntryPosition, end: EntryPosition | None) -> Self:
        """Set first and last entry of the whole segment, `end` None while it is open."""
        return self._with(BEGIN_PROPERTY, str(begin))._with(END_PROPERTY, None if end is None else str(end))

    def _property(self, name: str) -> str | None:
        return None if self.driver is None else self.driver.get(name)

    def _with(self, name: str, value: str | None) -> Self:
        if self.driver is None:
            raise OptionError(f"a segment without driver metadata has no room for its property {name!r}")
        return replace(self, driver=self.driver.with_property(name, value))

    def _position(self, name: str) -> EntryPosition | None:
        text = self._property(name)
        if text is None:
            return None
        match = _POSITION.fullmatch(text)
        position = None if match is None else EntryPosition(int(match[1]), int(match[2]))
        if position is None or position.ledger_id not in WHOLE or position.entry_id not in WHOLE:
            raise MetadataError(
                f"property {name!r} of segment {self.uuid} is no position",
                expected="ledger:entry",
                found=shortened(text),
            )
        return position


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedCopy:
    """A copy that a ledger's record names to be read, complete or not: one object, or a share of a segment.

    Attributes:
        segment: the share; None for a copy that is one object.
        driver: its driver and place; None if the record has none.
        begin_entry_id: its first entry of the ledger; None after a share that is still open.
        stop_entry_id: one past the last; None if the record does not have it, or for a copy that is one object.
    """

    uuid: UUID
    complete: bool
    driver: DriverMetadata | None
    segment: OffloadSegment | None = None
    begin_entry_id: int | None = 0
    stop_entry_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadContext:
    """A ledger's record of its cold copy.

    Attributes:
        uuid: the attempt's (with segments: the first one's); None if there was none.
        complete: the copy that is one object may be read. Never written with segments, each of which has its own flag
            (PIP-76). Older records may have it: `LedgerRecord.is_fully_offloaded` uses the segments' flags.
        bookkeeper_deleted: the hot copy is gone.
        timestamp_ms: of the last completion, milliseconds since 1970, UTC.
        segments: oldest first; empty for a copy that is one object.
    """

    uuid: UUID | None = None
    complete: bool = False
    bookkeeper_deleted: bool = False
    timestamp_ms: int | None = None
    driver: DriverMetadata | None = None
    segments: tuple[OffloadSegment, ...] = ()
    unknown_fields: bytes = b""

    @classmethod
    def of_segments(
        cls,
        segments: Sequence[OffloadSegment],
        *,
        complete: bool = False,
        bookkeeper_deleted: bool = False,
        timestamp_ms: int | None = None,
    ) -> Self:
        """The context of a ledger with these segments (at least one): uuid and driver are the first one's."""
        return cls(
            uuid=segments[0].uuid,
            complete=complete,
            bookkeeper_deleted=bookkeeper_deleted,
            timestamp_ms=timestamp_ms,
            driver=segments[0].driver,
            segments=tuple(segments),
        )

    def first_entry_ids(self) -> tuple[int | None, ...]:
        """The entry with which each segment begins in this ledger; None after one that is still open."""
        ends = [segment.end_entry_id for segment in self.segments[:-1]]
        return (0, *(None if end is None else end + 1 for end in ends))[: len(self.segments)]

    def copies(self) -> tuple[NamedCopy, ...]:
        """The named copies, in the order of their entries; segments count before an attempt at one object."""
        if self.segments:
            return tuple(
                NamedCopy(
                    uuid=each.uuid,
                    complete=each.complete,
                    driver=each.driver or self.driver,
                    segment=each,
                    begin_entry_id=begin,
                    stop_entry_id=None if each.end_entry_id is None else each.end_entry_id + 1,
                )
                for begin, each in zip(self.first_entry_ids(), self.segments, strict=True)
            )
        if self.uuid is None:
            return ()
        return (NamedCopy(uuid=self.uuid, complete=self.complete, driver=self.driver),)

    def covered_stop(self) -> int:
        """One past the last entry that, with all before it, lies in complete segments; 0 if there is none."""
        stop = 0
        for segment in self.segments:
            if not segment.complete or segment.end_entry_id is None:
                break
            stop = max(stop, segment.end_entry_id + 1)
        return stop
