"""The record of a ledger or a segment goes from a damaged copy to another one, in records that are ours.

Which steps that takes `managed_ledger.replacements` has; here is what they are told.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from offload_core.audit import AuditLog
from offload_core.codec.object_format import ObjectFormat, ObjectKey
from offload_core.managed_ledger.replacements import Replacement
from offload_core.metadata import ManagedLedgerRecords, OtherCopy, OtherRole
from offload_core.metadata.replacement_record import CopyForm, other_copies
from offload_core.metadata.segment_shares import place_of
from offload_core.repair.known import Known
from offload_core.tier import Tier


def replacement_for(
    records: ManagedLedgerRecords,
    known: Known,
    old: ObjectKey,
    new: ObjectKey,
    tier: Tier,
    audit: AuditLog,
    now_ms: Callable[[], int],
) -> Replacement:
    """What takes the place of a damaged copy, in a record that can name it (`can_name`)."""
    assert known.driver is not None
    is_segment = new.object_format is ObjectFormat.STREAMING
    copy = OtherCopy(
        role=OtherRole.REPLACEMENT,
        uuid=new.uuid,
        form=CopyForm.SEGMENT if is_segment else CopyForm.LEDGER,
        driver=place_of(known.driver),
        since_ms=now_ms(),
        segment=old.uuid if is_segment else None,
        ledger_ids=tuple(sorted(known.infos)),
    )
    return Replacement(
        records=records,
        name=known.managed_ledger,
        copy=copy,
        old=old.uuid,
        tier=tier,
        audit=audit,
        why="its copy is damaged",
        now_ms=now_ms,
    )


def can_name(records: ManagedLedgerRecords, known: Known, old: ObjectKey, new: ObjectKey) -> bool:
    """Whether a record that reads one copy can read the other: it says of it no more than its uuid and its tier.

    Not so one that was replaced, which is to be deleted.

    Raises:
        StoreError, MetadataError: of the records.
    """
    if known.driver is None or old.is_mapfile or new.is_mapfile or new.folder:
        return False
    found = records.read(known.managed_ledger)
    others = () if found is None else other_copies(found.info)
    return all(each.uuid != new.uuid or each.role is OtherRole.REPLACEMENT for each in others)


def pulsars_bits(uuid: UUID) -> tuple[int, int]:
    """A uuid as Pulsar's records have it: its most and least bits, signed."""
    most, least = divmod(uuid.int, 1 << 64)
    return most - (most >> 63 << 64), least - (least >> 63 << 64)
