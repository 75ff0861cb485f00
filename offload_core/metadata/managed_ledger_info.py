"""`ManagedLedgerInfo`, Pulsar's record of a topic's ledgers: values, and their protobuf both ways.

Ledgers stand in any order in a record, and are written back in that order. Fields that are not known here are kept.
Source: docs/formats/metadata.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from offload_core.codec import ledger_info
from offload_core.codec.ledger_info import LedgerInfo
from offload_core.codec.protobuf import parse_protobuf, unknown_fields
from offload_core.metadata.context_codec import context_record, read_context
from offload_core.metadata.offload_context import EntryPosition, OffloadContext
from offload_core.metadata.record_parts import property_records, read_properties
from offload_core.metadata.segment_layout import SegmentLayout
from offload_hooks.errors import MetadataError, placed
from offload_proto import managed_ledger_pb2 as records

_WHAT = "a managed ledger's record"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """One ledger of a managed ledger: its size and times, and where its cold copy is (None: never offloaded)."""

    info: LedgerInfo
    context: OffloadContext | None = None
    unknown_fields: bytes = b""

    @property
    def ledger_id(self) -> int:
        """The ledger's id."""
        return self.info.ledger_id

    @property
    def has_complete_copy(self) -> bool:
        """Whether some of it may be read from a tier: its one copy is complete, or one of its segments."""
        if self.context is None:
            return False
        if not self.context.segments:
            return self.context.complete
        return any(segment.complete for segment in self.context.segments)

    @property
    def is_fully_offloaded(self) -> bool:
        """Whether all of it may be read from a tier: its one copy is complete, or it is closed and in segments.

        A context has `complete` of a copy that is one object only, so it is not asked where there are segments.
        """
        context = self.context
        if context is None or not context.segments:
            return context is not None and context.complete
        return self.info.is_closed and context.covered_stop() >= (self.info.entries or 0) > 0

    @property
    def has_hot_copy(self) -> bool:
        """Whether by its record it is in the hot tier. It goes as a whole: one segment that denies it is enough."""
        context = self.context
        return context is None or not (
            context.bookkeeper_deleted or any(segment.bookkeeper_deleted for segment in context.segments)
        )

    @property
    def is_condemned(self) -> bool:
        """Whether it is to be deleted: neither a hot copy nor a cold one may be read."""
        return self.context is not None and self.context.bookkeeper_deleted and not self.has_complete_copy

    @property
    def offloaded_stop(self) -> int | None:
        """One past the last entry that lies in a complete copy; None if there is none, or its end is not recorded."""
        if self.context is None or not self.has_complete_copy:
            return None
        if not self.context.segments:
            return self.info.entries
        ends = [segment.end_entry_id for segment in self.context.segments if segment.complete]
        return max((end + 1 for end in ends if end is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedLedgerInfo:
    """A managed ledger: its ledgers in stored order, and properties as names and values.

    `terminated_at` is the last position of a topic that takes no more messages; None if it does.
    """

    ledgers: tuple[LedgerRecord, ...] = ()
    terminated_at: EntryPosition | None = None
    properties: tuple[tuple[str, str], ...] = ()
    unknown_fields: bytes = b""

    @property
    def in_order(self) -> tuple[LedgerRecord, ...]:
        """The ledgers by ascending id: the order of the topic's messages."""
        return tuple(sorted(self.ledgers, key=lambda ledger: ledger.ledger_id))

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        """The ledger of this id; None if the managed ledger has none."""
        return next((ledger for ledger in self.ledgers if ledger.ledger_id == ledger_id), None)

    def with_ledger(self, ledger: LedgerRecord) -> Self:
        """The same with this ledger in the place of the one of its id, which must be there."""
        assert self.ledger(ledger.ledger_id) is not None
        return self.with_ledgers([ledger])

    def with_ledgers(self, ledgers: Iterable[LedgerRecord]) -> Self:
        """The same with these ledgers in the places of those of their ids."""
        changed = {ledger.ledger_id: ledger for ledger in ledgers}
        return replace(self, ledgers=tuple(changed.get(known.ledger_id, known) for known in self.ledgers))


def parse_managed_ledger_info(data: bytes | memoryview) -> ManagedLedgerInfo:
    """Decode a bare `ManagedLedgerInfo`.

    Raises:
        MetadataError: not a protobuf of this type, something required is missing, a ledger stands in it twice, or an
            offload context makes no sense; with the ledger.
    """
    record = parse_protobuf(records.ManagedLedgerInfo, data, _WHAT)
    for ledger_id, count in Counter(ledger.ledgerId for ledger in record.ledgerInfo).items():
        if count > 1:
            raise MetadataError(
                f"{_WHAT} has a ledger more than once", ledger_id=ledger_id, expected="once", found=count
            )
    terminated = record.terminatedPosition
    return ManagedLedgerInfo(
        ledgers=tuple(_read_ledger(ledger) for ledger in record.ledgerInfo),
        terminated_at=EntryPosition(terminated.ledgerId, terminated.entryId)
        if record.HasField("terminatedPosition")
        else None,
        properties=read_properties(record.properties, _WHAT),
        unknown_fields=unknown_fields(record),
    )


def _read_ledger(record: records.ManagedLedgerInfo.LedgerInfo) -> LedgerRecord:
    with placed(ledger_id=record.ledgerId):
        return LedgerRecord(
            info=ledger_info.from_record(record),
            context=read_context(record.offloadContext) if record.HasField("offloadContext") else None,
            unknown_fields=unknown_fields(record),
        )


def pack_managed_ledger_info(
    info: ManagedLedgerInfo, *, segment_layout: SegmentLayout = SegmentLayout.SHIPPED
) -> bytes:
    """Encode as Pulsar does, bare.

    `segment_layout`: PIP-76's is for readers that are known to want it; a shipped Pulsar would take its times for
    entries.

    Raises:
        OptionError: a segment that this layout has no room for, with its ledger.
    """
    record = records.ManagedLedgerInfo(properties=property_records(info.properties))
    if info.terminated_at is not None:
        record.terminatedPosition.ledgerId = info.terminated_at.ledger_id
        record.terminatedPosition.entryId = info.terminated_at.entry_id
    for ledger in info.ledgers:
        packed = ledger_info.to_record(ledger.info)
        if ledger.context is not None:
            with placed(ledger_id=ledger.ledger_id):
                packed.offloadContext.CopyFrom(context_record(ledger.context, segment_layout))
        packed.MergeFromString(ledger.unknown_fields)
        record.ledgerInfo.append(packed)
    record.MergeFromString(info.unknown_fields)
    return record.SerializeToString(deterministic=True)
