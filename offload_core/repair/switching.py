"""The record of a ledger or a segment goes from a damaged copy to what was saved of it, in records that are ours.

By the steps of `metadata.copy_replacement`: the new copy is recorded before its first byte, and read once it was
verified. Each step can be made again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from uuid import UUID

from offload_core.audit import AuditLog, Change, ChangeAction
from offload_core.codec.object_format import ObjectFormat, ObjectKey
from offload_core.metadata import ManagedLedgerInfo, ManagedLedgerRecords
from offload_core.metadata.copy_replacement import begin_replacement, forget_replaced, switch_replacement
from offload_core.metadata.replacement_record import CopyForm, OtherRole, other_copies
from offload_core.repair.known import Known


class RecordSwitch:
    """The change of one record.

    Args:
        old: the damaged pair; `new` what takes its place, which the record can name (`can_name`).
    """

    def __init__(
        self,
        records: ManagedLedgerRecords,
        known: Known,
        old: ObjectKey,
        new: ObjectKey,
        audit: AuditLog,
        now_ms: Callable[[], int],
    ) -> None:
        self._records = records
        self._known = known
        self._old, self._new = old, new
        self._audit = audit
        self._now_ms = now_ms

    def begin(self) -> None:
        """Record the new copy, before it is written.

        Raises:
            AttemptError: the record does not allow it.
            StoreError: of the metadata store, or the audit log.
        """
        assert self._known.driver is not None
        is_segment = self._new.object_format is ObjectFormat.STREAMING
        self._update(
            "the copy that it will be",
            partial(
                begin_replacement,
                ledger_ids=sorted(self._known.infos),
                uuid=self._new.uuid,
                form=CopyForm.SEGMENT if is_segment else CopyForm.LEDGER,
                driver=self._known.driver,
                since_ms=self._now_ms(),
                segment=self._old.uuid if is_segment else None,
            ),
        )

    def switch(self) -> None:
        """Have the new copy read; errors as of `begin`."""
        self._update(
            "the copy that is read", partial(switch_replacement, uuid=self._new.uuid, now_ms=self._now_ms())
        )

    def forget(self) -> None:
        """Forget the old copy, whose objects are gone; errors as of `begin`."""
        self._update("what it replaced is gone", partial(forget_replaced, uuid=self._old.uuid))

    def _update(self, what: str, change: Callable[[ManagedLedgerInfo], ManagedLedgerInfo]) -> None:
        self._audit.record(
            Change(
                action=ChangeAction.RECORD,
                why=f"its copy is damaged: {what}",
                managed_ledger=self._known.managed_ledger,
                ledger_id=self._new.ledger_id,
                uuid=self._new.uuid,
                before=str(self._old.uuid),
                after=str(self._new.uuid),
            )
        )
        self._records.update(self._known.managed_ledger, change)


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
