"""A managed ledger's record in the hands of its owner: changed only while the owner's mark is in it.

Opening puts a mark of one's own into the record. Each later change is made to a record that has this mark, by
compare-and-set; so from the moment that another has opened the managed ledger, nothing that its former owner does can
change it, in whichever process that is. Closing takes the mark away, so that nobody waits for an owner that has gone; a
process that is killed leaves it.
"""

from __future__ import annotations

import logging
import threading
from functools import partial
from uuid import uuid4

from offload_core.managed_ledger.record_changes import (
    OWNER_PROPERTY,
    check_owner,
    claim_ownership,
    release_ownership,
)
from offload_core.metadata import ManagedLedgerInfo, ManagedLedgerRecords
from offload_core.metadata.managed_ledger_records import Change, VersionedInfo, is_claim
from offload_core.metadata.record_paths import record_path
from offload_hooks.errors import OffloadError, UnknownTopicError, VersionConflictError

_log = logging.getLogger(__name__)

_CREATIONS = 10


class OwnedRecord:
    """The record of a managed ledger that was opened here, for many threads; see `claim_record`.

    Attributes:
        info: the record as it was last written here; others may have offloaded ledgers since.
    """

    def __init__(self, records: ManagedLedgerRecords, name: str, owner: str, known: VersionedInfo) -> None:
        self._records = records
        self._owner = owner
        self._lock = threading.Lock()
        self._version = known.version
        self._released = False
        self.name = name
        self.info = known.info

    def update(self, change: Change) -> ManagedLedgerInfo:
        """Change the record, as `ManagedLedgerRecords.update`; what it is then.

        Raises:
            OwnershipLostError: another has opened or deleted the managed ledger; nothing was changed.
        """

        def owned(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            check_owner(info, self._owner, self.name)
            return change(info)

        try:
            known = self._records.update(self.name, owned)
        except UnknownTopicError:
            check_owner(None, self._owner, self.name)
            raise
        with self._lock:
            if known.version >= self._version:
                self.info, self._version = known.info, known.version
        return known.info

    def read(self) -> ManagedLedgerInfo:
        """The record as it is now, whoever owns it once it was released; else `OwnershipLostError` as `update`."""
        known = self._records.read(self.name)
        info = None if known is None else known.info
        if info is None or not self._released:
            check_owner(info, self._owner, self.name)
        assert info is not None
        return info

    def release(self) -> None:
        """Own it no more: the mark goes, if it is still there. Where that fails it stays, as after a crash.

        What is read from now on is whoever's; a second call does nothing.
        """
        if self._released:
            return
        self._released = True
        try:
            self._records.update(self.name, partial(release_ownership, owner=self._owner))
        except UnknownTopicError:
            pass  # it was deleted
        except OffloadError as error:
            _log.warning("the owner's mark of %s stays after it was closed: %s", self.name, error)


def claim_record(
    records: ManagedLedgerRecords, name: str, create: bool, *, only_free: bool = False
) -> OwnedRecord:
    """Become the owner of a managed ledger, or create it, also in a placeholder's place (`managed_ledger_records`).

    Raises:
        OwnershipLostError: it has another owner's mark, and `only_free`.
        UnknownTopicError: there is none, and `create` is false.
        TopicDeletedError: it is being deleted.
        OutcomeUnknownError, StoreError, FormatError: of the metadata; perhaps nobody owns it then.
    """
    owner = uuid4().hex

    def claim(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
        if is_claim(info):
            raise UnknownTopicError("there is no record of this managed ledger", key=record_path(name))
        return claim_ownership(info, owner, name, only_free=only_free)

    for is_last in (*[False] * _CREATIONS, True):
        try:
            return OwnedRecord(records, name, owner, records.update(name, claim))
        except UnknownTopicError:
            if not create:
                raise
        try:
            new = ManagedLedgerInfo(properties=((OWNER_PROPERTY, owner),))
            there = records.read(name)
            before = there if there is not None and is_claim(there.info) else None
            return OwnedRecord(records, name, owner, records.write(name, new, before))
        except VersionConflictError:  # another has created it, and perhaps deleted it again
            if is_last:
                raise
    raise AssertionError("the last turn returns or raises")
