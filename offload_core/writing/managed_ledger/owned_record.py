"""A managed ledger's record in the hands of its owner: changed only while the owner's mark is in it.

    claim_ownership     an owner's mark goes into the record; its former owner can't change it any more
    release_ownership   the owner has closed it, and its mark goes
    begin_ledger        the ledger that entries are appended to from now on
    end_ledger          it is sealed, with what it has; forgotten if it is empty
    lose_ledger         it is not there any more; what is left of it are its complete segments
    terminate           nothing is added any more
    without_ledgers     ledgers that were marked for deletion (`mark_for_deletion`) and deleted are forgotten
    begin_deletion      the whole topic is to be deleted

Each is a pure function from record to record and does nothing to its own result, so that it can be made again after an
answer that was lost. An `OwnedRecord` makes them by compare-and-set on a record that has its mark: from the moment that
another has opened the managed ledger, its former owner can't change it, in whichever process that is. Closing takes the
mark away, so that nothing waits for an owner that has gone; a process that is killed leaves it. Source:
docs/formats/metadata.md; docs/managed-ledger.md.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from uuid import uuid4

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.ledger_changes import mark_for_deletion
from offload_core.metadata.records.segments import covered_stop, shares_of, with_hot_copy_deleted
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.managed_ledger_records import Change, VersionedInfo, is_claim, no_record
from offload_hooks.errors import (
    OffloadError,
    OwnershipLostError,
    StoreError,
    TopicDeletedError,
    TopicTerminatedError,
    UnknownTopicError,
    VersionConflictError,
)
from offload_hooks.ledger_stores import LedgerStatus

OWNER_PROPERTY = "pulsar-offload.owner"
"""The owner of the managed ledger: a mark that no two owners share, after the name of its process and a slash, if that
has one. Pulsar keeps properties that it does not know."""

DELETION_PROPERTY = "pulsar-offload.deletion"
"""Mark of a topic that is being deleted, by this deletion."""

TakesFrom = Callable[[str], bool]
"""True for the mark of an owner that a managed ledger is taken from."""

_NOWHERE = EntryPosition(-1, -1)
"""The end of a topic that was terminated without entries; Pulsar's earliest position."""


def get_property(info: ManagedLedgerInfo, name: str) -> str | None:
    """The property's value; None if there is none."""
    return dict(info.properties).get(name)


def with_property(info: ManagedLedgerInfo, name: str, value: str | None) -> ManagedLedgerInfo:
    """Set this property, at the end if it is new; remove it if `value` is None."""
    kept = [(known, value if known == name else old) for known, old in info.properties]
    if value is not None and get_property(info, name) is None:
        kept.append((name, value))
    return replace(info, properties=tuple((known, given) for known, given in kept if given is not None))


def owner_of(info: ManagedLedgerInfo) -> str | None:
    """The mark of an owner that has not closed it, which may have been killed, too; None if there is none."""
    return get_property(info, OWNER_PROPERTY)


def process_of(mark: str) -> str:
    """The name of an owner's process; empty if it has none."""
    return mark.rpartition("/")[0]


def claim_ownership(
    info: ManagedLedgerInfo, owner: str, name: str, takes_from: TakesFrom = lambda _: True
) -> ManagedLedgerInfo:
    """Put an owner's mark in the place of another's, if that is one that it is taken from.

    Raises:
        TopicDeletedError: the topic is being deleted.
        OwnershipLostError: it has the mark of another, which it is not taken from.
    """
    found = owner_of(info)
    if found is not None and found != owner and not takes_from(found):
        raise OwnershipLostError(f"another has the managed ledger {name} open")
    if get_property(info, DELETION_PROPERTY) is not None:
        raise TopicDeletedError(
            f"the managed ledger {name} is being deleted", hint="Delete it again, which ends its deletion."
        )
    return with_property(info, OWNER_PROPERTY, owner)


def release_ownership(info: ManagedLedgerInfo, owner: str) -> ManagedLedgerInfo:
    """Remove an owner's mark; another's stays."""
    return with_property(info, OWNER_PROPERTY, None) if get_property(info, OWNER_PROPERTY) == owner else info


def check_owner(info: ManagedLedgerInfo | None, owner: str, name: str) -> None:
    """Refuse a record that is not, or not any more, this owner's; None is one that was deleted.

    Raises:
        OwnershipLostError: with the managed ledger's name.
    """
    if info is None:
        raise OwnershipLostError(f"the managed ledger {name} was deleted")
    found = get_property(info, OWNER_PROPERTY)
    if found is None:
        raise OwnershipLostError(f"the managed ledger {name} was closed, or is being deleted")
    if found != owner:
        raise OwnershipLostError(
            f"another has opened the managed ledger {name}", hint="Open it again, if it is to be served here."
        )


def begin_ledger(info: ManagedLedgerInfo, ledger_id: int) -> ManagedLedgerInfo:
    """Record a ledger that was created.

    Raises:
        TopicTerminatedError: the topic takes no more entries.
        StoreError: it would not be the topic's last: the hot tier has not created the ledgers that are recorded.
    """
    if info.ledger(ledger_id) is not None:
        return info
    check_not_terminated(info)
    greatest = max((each.ledger_id for each in info.ledgers), default=-1)
    if ledger_id < greatest:
        raise StoreError(
            "the hot tier gives a ledger an id that is smaller than those of the topic",
            ledger_id=ledger_id,
            expected=f"an id greater than {greatest}",
            hint=f"The record is older than the hot tier. Skip the ids: FileLedgerStore.skip_ids({greatest}).",
        )
    return replace(info, ledgers=(*info.ledgers, LedgerRecord(info=LedgerInfo(ledger_id=ledger_id))))


def end_ledger(info: ManagedLedgerInfo, status: LedgerStatus, now_ms: int) -> ManagedLedgerInfo:
    """Record what a sealed ledger has, since when (ms since 1970, UTC); one without entries is forgotten.

    But not if a segment names it: then its entries were lost, and the record is what finds the segment's objects.
    """
    ledger = info.ledger(status.ledger_id)
    if ledger is None or ledger.info.is_closed:
        return info
    if not status.entry_count and not shares_of(ledger):
        return without_ledgers(info, {status.ledger_id})
    ended = replace(
        ledger.info, entries=status.entry_count, size=status.size_bytes, timestamp_ms=max(1, now_ms)
    )
    return info.with_ledger(replace(ledger, info=ended))


def lose_ledger(info: ManagedLedgerInfo, ledger_id: int, now_ms: int) -> ManagedLedgerInfo:
    """Record that an open ledger is not in the hot tier any more: it has what lies in its complete segments."""
    ledger = info.ledger(ledger_id)
    if ledger is None or ledger.info.is_closed:
        return info
    if ledger.context is None or not ledger.context.segments:
        return without_ledgers(info, {ledger_id})
    stop = covered_stop(ledger)
    ended = replace(ledger.info, entries=stop, size=0, timestamp_ms=max(1, now_ms))
    lost = replace(ledger, info=ended)
    return info.with_ledger(with_hot_copy_deleted(lost) if stop else lost)


def without_ledgers(info: ManagedLedgerInfo, ledger_ids: Collection[int]) -> ManagedLedgerInfo:
    """Forget ledgers."""
    return replace(
        info, ledgers=tuple(ledger for ledger in info.ledgers if ledger.ledger_id not in ledger_ids)
    )


def check_not_terminated(info: ManagedLedgerInfo) -> None:
    """Refuse a topic that takes no more entries; `TopicTerminatedError`, with its last position."""
    if info.terminated_at is not None:
        raise TopicTerminatedError(
            "the topic was terminated", found=f"its last position, {info.terminated_at}"
        )


def terminate(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
    """Record that the topic ends with its last entry; all its ledgers are sealed."""
    if info.terminated_at is not None:
        return info
    ends = [
        EntryPosition(each.ledger_id, each.info.entries - 1) for each in info.ledgers if each.info.entries
    ]
    return replace(info, terminated_at=max(ends, default=_NOWHERE))


def begin_deletion(info: ManagedLedgerInfo, deletion: str) -> ManagedLedgerInfo:
    """Record that the whole topic is to be deleted, and has no owner any more."""
    if get_property(info, DELETION_PROPERTY) is not None:
        return info
    info = mark_for_deletion(info, [ledger.ledger_id for ledger in info.ledgers])
    return with_property(with_property(info, OWNER_PROPERTY, None), DELETION_PROPERTY, deletion)


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
        """Change the record, as `ManagedLedgerRecords.update`; return the new one.

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
        """The record as it is now, of any owner once it was released; else `OwnershipLostError` as `update`."""
        known = self._records.read(self.name)
        info = None if known is None else known.info
        if info is None or not self._released:
            check_owner(info, self._owner, self.name)
        assert info is not None
        return info

    def release(self) -> None:
        """Own it no more: the mark goes, if it is still there. Where that fails it stays, as after a crash.

        What is read from now on may be of another owner; a second call does nothing.
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
    records: ManagedLedgerRecords,
    name: str,
    create: bool,
    *,
    takes_from: TakesFrom = lambda _: True,
    process: str | None = None,
) -> OwnedRecord:
    """Become the owner of a managed ledger, or create it, also in a placeholder's place (`managed_ledger_records`).

    Raises:
        OwnershipLostError: it has the mark of an owner that it is not taken from.
        UnknownTopicError: there is none, and `create` is false.
        TopicDeletedError: it is being deleted.
        OutcomeUnknownError, StoreError, FormatError: of the metadata; perhaps it has no owner then.
    """
    owner = uuid4().hex if process is None else f"{process}/{uuid4().hex}"

    def claim(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
        if is_claim(info):
            raise no_record(name)
        return claim_ownership(info, owner, name, takes_from)

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
