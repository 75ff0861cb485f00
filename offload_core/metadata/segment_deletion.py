"""Which objects of streaming segments go with the ledgers that are deleted, as pure functions of records.

A ledger that is to be deleted is condemned, and has no part in its segments any more. An object goes when the last
ledger that names it is condemned: then no ledger reads from it, and none ever will again, for a segment gets another
ledger only while its attempt goes on, and condemning one of its ledgers ends that. So what a condemned ledger names,
and no other one does, can be deleted at any time later, as often as is needed; the ledgers that remain tell which
objects are kept, so nothing is remembered of those that went. Source: PIP-76; docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from uuid import UUID

from offload_core.metadata.attempt_lease import with_lease
from offload_core.metadata.copy_replacement import abandon_replacement
from offload_core.metadata.managed_ledger_info import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.offload_context import (
    FAILED,
    STATUS_PROPERTY,
    DriverMetadata,
    OffloadContext,
)
from offload_core.metadata.replacement_record import OtherRole, other_copies, others_of, read_copies
from offload_core.metadata.segment_record import segments_of
from offload_core.metadata.segment_shares import with_hot_copy_deleted
from offload_core.metadata.segments import abandon_segment


def condemn_ledgers(info: ManagedLedgerInfo, ledger_ids: Collection[int]) -> ManagedLedgerInfo:
    """Record that ledgers are to be deleted, with all their copies, whole ones or shares of segments.

    An attempt that is under way cannot complete, nor a copy take the place of another; of a segment, in no ledger.
    """
    condemned = set(ledger_ids)
    for copy in other_copies(info):
        if copy.role is OtherRole.REPLACEMENT and condemned.intersection(copy.ledger_ids):
            info = abandon_replacement(info, copy.uuid)
    for segment in segments_of(info):
        if not segment.is_finished and condemned.intersection(segment.ledger_ids):
            info = abandon_segment(info, segment.uuid)
    return replace(
        info,
        ledgers=tuple(
            _condemned(ledger) if ledger.ledger_id in condemned and not ledger.is_condemned else ledger
            for ledger in info.ledgers
        ),
    )


def needed_objects(info: ManagedLedgerInfo) -> frozenset[UUID]:
    """The objects that a ledger names which is not condemned, also as one that was replaced or is to replace another.

    Those that others name are to be deleted.
    """
    return read_copies(info) | frozenset(
        copy.uuid for ledger in info.ledgers if not ledger.is_condemned for copy in others_of(ledger)
    )


def _condemned(ledger: LedgerRecord) -> LedgerRecord:
    gone = with_hot_copy_deleted(ledger)
    context = gone.context or OffloadContext()
    return replace(
        gone,
        context=replace(
            context,
            complete=False,
            driver=_failed(context.driver),
            segments=tuple(
                replace(share, complete=False, driver=_failed(share.driver)) for share in context.segments
            ),
        ),
    )


def _failed(driver: DriverMetadata | None) -> DriverMetadata | None:
    return None if driver is None else with_lease(driver, None).with_property(STATUS_PROPERTY, FAILED)
