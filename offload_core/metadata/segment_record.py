"""A managed ledger's streaming segments as values, put together from the shares that its ledgers' records have of them.

Records of either layout are read, also such as do not tell where a segment begins and ends: that follows from the
shares then. Ledgers that are being deleted have no part in it. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from offload_core.metadata.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.offload_context import DriverMetadata, EntryPosition, OffloadSegment, SegmentStatus
from offload_core.metadata.segment_shares import first_entry_id, shares_of

_Part = tuple[LedgerRecord, OffloadSegment]
"""A ledger, and its share of a segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run of positions of a managed ledger, in one data object.

    Attributes:
        uuid: the attempt's; the data object's key.
        begin: its first entry, perhaps of a ledger that was deleted since.
        end: its last entry; None while it is open.
        assigned_ms, offloaded_ms: milliseconds since 1970, UTC; None where it is not recorded.
        driver: which driver writes it, and where to, with the properties of the attempt.
        ledger_ids: the ledgers whose records name it, ascending, without those that are being deleted.
    """

    uuid: UUID
    begin: EntryPosition
    end: EntryPosition | None
    status: SegmentStatus
    assigned_ms: int | None
    offloaded_ms: int | None
    driver: DriverMetadata | None
    ledger_ids: tuple[int, ...]

    @property
    def is_finished(self) -> bool:
        """Whether its copy is complete; else it is being offloaded, or has to be."""
        return self.status is SegmentStatus.OFFLOADED


def segments_of(info: ManagedLedgerInfo) -> tuple[Segment, ...]:
    """The segments of a managed ledger, in the topic's order.

    Raises:
        MetadataError: a property that is to say where a segment begins or ends is no position.
    """
    parts: dict[UUID, list[_Part]] = {}
    for ledger in info.in_order:
        if not ledger.is_condemned:
            for share in shares_of(ledger):
                parts.setdefault(share.uuid, []).append((ledger, share))
    return tuple(_segment(uuid, found) for uuid, found in parts.items())


def find_segment(info: ManagedLedgerInfo, uuid: UUID) -> Segment | None:
    """The segment of this attempt; None if no ledger's record names it. Errors as `segments_of`."""
    parts = [
        (ledger, share)
        for ledger in info.in_order
        for share in shares_of(ledger)
        if share.uuid == uuid and not ledger.is_condemned
    ]
    return _segment(uuid, parts) if parts else None


def unfinished_segment(info: ManagedLedgerInfo) -> Segment | None:
    """The segment that is assigned or failed; None if all are offloaded. There is never more than one.

    Errors as `segments_of`.
    """
    for ledger in info.in_order:
        for share in shares_of(ledger):
            if share.status is not SegmentStatus.OFFLOADED and not ledger.is_condemned:
                return find_segment(info, share.uuid)
    return None


def _segment(uuid: UUID, parts: Sequence[_Part]) -> Segment:
    ledgers, shares = [ledger for ledger, _ in parts], [share for _, share in parts]
    first, begin, end = ledgers[0], shares[0].begin, shares[-1].end
    last_entry_id = shares[-1].end_entry_id
    if begin is None and end is None and last_entry_id is not None:
        # with a begin it is open: it goes on behind the ledger that has ended
        end = EntryPosition(ledgers[-1].ledger_id, last_entry_id)
    return Segment(
        uuid=uuid,
        begin=begin or EntryPosition(first.ledger_id, first_entry_id(first, uuid)),
        end=end,
        status=_status(shares),
        assigned_ms=shares[0].assigned_ms,
        offloaded_ms=shares[-1].offloaded_ms,
        driver=shares[-1].driver,
        ledger_ids=tuple(ledger.ledger_id for ledger in ledgers),
    )


def _status(shares: Sequence[OffloadSegment]) -> SegmentStatus:
    """Offloaded if all shares are, and failed if one is: our changes make all of them alike."""
    statuses = {share.status for share in shares}
    if SegmentStatus.FAILED in statuses:
        return SegmentStatus.FAILED
    return statuses.pop() if len(statuses) == 1 else SegmentStatus.ASSIGNED
