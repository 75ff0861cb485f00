"""Delete ledgers with all their copies, and whole topics; choose those whose retention is over.

    1. record: the ledgers are marked for deletion   no copy of them is read, and no offload of them can complete
    2. audit log, cold copy, hot copy                of each, the oldest first; a shared object with the last of them
    3. record: they are forgotten                    of a topic: its transactions' snapshot, the record, its policies

A crash leaves ledgers marked for deletion in a record; the next trim or deletion goes on with them. A topic's record
also has a mark that it is being deleted; then it cannot be opened, so nothing is added to it while it is taken apart.

Retention deletes whole ledgers, from the oldest on, as Pulsar does. A ledger is deleted if it is sealed for longer than
retention's time, or if without it there is still as much as retention's size: either is enough; −1 keeps for ever, 0
nothing. A ledger of which a streaming segment is being offloaded stays until that has ended, well or not. Source:
Pulsar's `ManagedLedgerImpl`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from uuid import uuid4

from offload_core.metadata.catalogue.recorded_copies import other_copy_key, recorded_copies
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import (
    AttemptStatus,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OtherCopy,
    OtherRole,
    unfinished_segment,
)
from offload_core.metadata.records.ledger_changes import needed_objects
from offload_core.metadata.records.replacements import others_of
from offload_core.writing.audit import Deletion
from offload_core.writing.managed_ledger.environment import Environment
from offload_core.writing.managed_ledger.owned_record import DELETION_PROPERTY, begin_deletion, get_property
from offload_hooks.errors import (
    AttemptError,
    OffloadError,
    OptionError,
    UnknownTopicError,
    VersionConflictError,
)

_MIB = 1 << 20


def ledgers_to_trim(
    info: ManagedLedgerInfo,
    retention: RetentionPolicies,
    *,
    now_ms: int,
    open_bytes: int,
    consumed_before: EntryPosition | None = None,
) -> dict[int, str]:
    """The ledgers to delete, by id, and why.

    Args:
        open_bytes: of the ledger that is written.
        consumed_before: ledgers with entries from here on stay; None for none.
    """
    ledgers = [ledger for ledger in info.in_order if not ledger.is_marked_for_deletion]
    left = open_bytes + sum(ledger.info.size or 0 for ledger in ledgers)
    chosen: dict[int, str] = {}
    unfinished = unfinished_segment(info)
    busy = unfinished.ledger_ids if unfinished and unfinished.status is AttemptStatus.ASSIGNED else ()
    for ledger in ledgers:
        if ledger.ledger_id in busy or not ledger.info.is_closed or not _is_before(ledger, consumed_before):
            break
        left -= ledger.info.size or 0
        age_minutes = (now_ms - (ledger.info.timestamp_ms or 0)) / 60_000
        if 0 <= retention.time_in_minutes <= age_minutes:
            why = f"sealed {age_minutes:.0f} minutes ago; retention keeps {retention.time_in_minutes} minutes"
        elif 0 <= retention.size_in_mb * _MIB <= left:
            why = f"{left} bytes are newer; retention keeps {retention.size_in_mb} MB"
        else:
            break
        chosen[ledger.ledger_id] = why
    return chosen


def _is_before(ledger: LedgerRecord, position: EntryPosition | None) -> bool:
    """True if all entries of a sealed ledger are before a position."""
    return position is None or EntryPosition(ledger.ledger_id, (ledger.info.entries or 0) - 1) < position


_TRIES = 10


class CopyDeletion:
    """Step 2, of ledgers that are marked for deletion; an object of several of them is deleted once.

    Args:
        info: a record in which they are marked.
    """

    def __init__(self, environment: Environment, name: str, info: ManagedLedgerInfo) -> None:
        self._environment = environment
        self._name = name
        self._settled = set(needed_objects(info))  # objects that are needed, or deleted already

    def delete_copies(self, ledger: LedgerRecord, why: str) -> None:
        """Delete a ledger's copies, but for objects that another ledger needs.

        Raises:
            AttemptError: the ledger is not marked for deletion.
            OptionError: a cold copy lies in a tier that is not configured.
            StoreError: of a tier or the audit log; it can be called again.
        """
        environment, name, context = self._environment, self._name, ledger.context
        if ledger.has_complete_copy:
            raise AttemptError(
                f"copies of {name} are deleted after its record says so", ledger_id=ledger.ledger_id
            )
        deletion = partial(
            Deletion,
            managed_ledger=name,
            ledger_id=ledger.ledger_id,
            entries=ledger.info.entries,
            size_bytes=ledger.info.size,
        )
        offloads = environment.offloads
        if context is not None and context.uuid is not None:
            if offloads is None:
                raise OptionError(
                    f"a ledger of {name} has a cold copy, and no tier is configured",
                    ledger_id=ledger.ledger_id,
                )
            topic = topic_of_managed_ledger(name)
            shares = {share.uuid: share for share in context.segments}
            copies = [(copy.key, copy.driver, why) for copy in recorded_copies(topic, ledger)]
            copies += [
                (other_copy_key(topic, copy), copy.driver, _why_other(copy, why))
                for copy in others_of(ledger)
            ]
            for key, driver, why_copy in copies:
                if key.uuid in self._settled:
                    continue
                share = shares.get(key.uuid)
                begin, end = (None, None) if share is None else (share.begin, share.end)
                environment.audit.record(
                    deletion(copy="cold", uuid=key.uuid, why=why_copy, begin=begin, end=end)
                )
                offloads.delete_cold_copy(name, key, driver)
                self._settled.add(key.uuid)
        delete_hot(environment, deletion(copy="hot", why=why))


def delete_marked(
    environment: Environment,
    name: str,
    info: ManagedLedgerInfo,
    why: Mapping[int, str],
    listener: Callable[[int], None] | None = None,
) -> tuple[list[int], list[OffloadError]]:
    """Step 2, of all that are marked for deletion: those that were deleted, and what failed.

    The listener is called with each that was deleted.

    A failure that the others would share ends it; else they are deleted all the same.
    """
    deleted: list[int] = []
    failures: list[OffloadError] = []
    copies = CopyDeletion(environment, name, info)
    for ledger in info.in_order:
        if not ledger.is_marked_for_deletion:
            continue
        try:
            copies.delete_copies(ledger, why.get(ledger.ledger_id, "its deletion was begun before"))
        except OffloadError as error:
            failures.append(error)
            if error.retryable:
                break
        else:
            deleted.append(ledger.ledger_id)
            if listener is not None:
                listener(ledger.ledger_id)
    return deleted, failures


def delete_hot(environment: Environment, deletion: Deletion) -> None:
    """Delete a hot copy, if it exists."""
    if deletion.ledger_id is None:
        raise AssertionError("a hot copy is one ledger's")
    environment.audit.record(deletion)
    environment.hot.store.delete(deletion.ledger_id)


def delete_managed_ledger(environment: Environment, name: str) -> bool:
    """Delete a topic: its cold objects, its ledgers, its record, what else is kept of it. Whether there was one.

    An owner that has it open loses it. It can be called again after any failure, also by another process, and must be
    before the topic can be opened or made anew.

    Raises:
        OptionError: a cold copy lies in a tier that is not configured.
        StoreError, OutcomeUnknownError: of the tiers, the metadata or the audit log.
    """
    why = "its topic is deleted"
    try:
        info = environment.records.update(name, partial(begin_deletion, deletion=uuid4().hex)).info
    except UnknownTopicError:
        environment.forget(name)  # an earlier deletion may have been cut off before this
        return False
    mark = get_property(info, DELETION_PROPERTY)
    for is_last in (*[False] * _TRIES, True):
        copies = CopyDeletion(environment, name, info)
        for ledger in sorted(
            info.in_order, key=_is_closed
        ):  # what is written goes first: its writer is fenced
            copies.delete_copies(ledger, why)
        # listed before the mark is read again: then they are not of a topic that was made anew
        unrecorded = environment.hot.of(name)
        known = environment.records.read(name)
        if known is None or get_property(known.info, DELETION_PROPERTY) != mark:
            return True  # another process has ended it
        for ledger_id in unrecorded:
            delete_hot(environment, Deletion(managed_ledger=name, ledger_id=ledger_id, copy="hot", why=why))
        environment.snapshots.delete(name)
        try:
            environment.records.delete(name, known)
            environment.waits.pop(name, None)
            environment.forget(name)
            return True
        except VersionConflictError:  # an offload that was under way has recorded its failure
            if is_last:
                raise
        info = known.info
    raise AssertionError("the last turn returns or raises")


def _why_other(copy: OtherCopy, why: str) -> str:
    """Why a copy goes that is not the one that is read."""
    is_old = copy.role is OtherRole.REPLACED
    return f"{why}; {'another copy took its place' if is_old else 'it was to take the place of a copy'}"


def _is_closed(ledger: LedgerRecord) -> bool:
    return ledger.info.is_closed
