"""`ManagedLedger`: a topic's entries, appended in one order over many ledgers, by the one process that owns it.

Opening takes it from its owner, and repairs what a process left that ended at any moment:

    1. list the ledgers of this managed ledger in the hot tier
    2. put a mark into the record             its former owner cannot change the record any more
    3. recover ledgers that are recorded as   their writers are fenced, wherever they are; what they have is recorded,
       open                                   and those without entries are forgotten
    4. delete ledgers of 1 that no record     they were created and never recorded, or forgotten, or their deletion was
       has, or as deleted                     cut off

The order of 1 and 2 matters: what is deleted was there before the mark, so it is of a former owner, who cannot record
it any more. A ledger that a later owner creates is not among them. Opening can be called again after any failure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo, ReadPriority
from offload_core.metadata.records.ledger_changes import mark_for_deletion
from offload_core.writing.audit import Deletion
from offload_core.writing.managed_ledger.appender import Appender, RolloverPolicy
from offload_core.writing.managed_ledger.environment import Environment
from offload_core.writing.managed_ledger.followed_transactions import open_filter
from offload_core.writing.managed_ledger.ledger_deletion import (
    delete_hot,
    delete_managed_ledger,
    delete_marked,
    ledgers_to_trim,
)
from offload_core.writing.managed_ledger.owned_record import (
    OwnedRecord,
    TakesFrom,
    claim_record,
    end_ledger,
    lose_ledger,
    terminate,
    without_ledgers,
)
from offload_core.writing.managed_ledger.streaming.completion_requests import requests_of, with_answer
from offload_core.writing.managed_ledger.streaming.status import SegmentCompletion, StreamingStatus
from offload_core.writing.managed_ledger.streaming.topic_streaming import TopicStreaming
from offload_core.writing.managed_ledger.topic_offloads import (
    STOP_TIMEOUT_S,
    OffloadStatus,
    TopicOffloads,
    no_tier,
)
from offload_core.writing.managed_ledger.topic_reader import EntriesRead, TailCache, TopicReader
from offload_core.writing.offload.recorded_segments import StreamingSettings
from offload_core.writing.offload_filters import recorded_filters
from offload_hooks.errors import AttemptError, DataLossError, FormatError, StoreError, UnknownLedgerError
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES
from offload_hooks.values import ReadableBuffer

if TYPE_CHECKING:
    from typing_extensions import Self

_log = logging.getLogger(__name__)


class ManagedLedger:
    """A managed ledger that is open here; made by `open_managed_ledger`. Calls may come from many threads at once.

    Every call raises the errors of the stores. One that changes anything raises `OwnershipLostError` if another has
    opened or deleted the managed ledger meanwhile, and `LedgerClosedError` if it was closed; then nothing was changed.
    """

    def __init__(self, environment: Environment, owned: OwnedRecord, rollover: RolloverPolicy) -> None:
        self._owned = owned
        self._environment = environment
        self._appender = Appender(environment, owned, rollover)
        self._cache = TailCache(environment.cache_bytes)
        self._reader = TopicReader(owned.name, self._find_ledger, environment.open_ledger, self._cache)
        forget = self._reader.readers.forget
        self._offloads = TopicOffloads(environment, owned.name, owned.read, forget)
        self._streaming: TopicStreaming | None = None
        if environment.streaming is not None:
            self._streaming = TopicStreaming(
                environment.streaming,
                environment,
                owned,
                lambda: self._appender.view,
                self._cache,
                forget,
                lambda: self._offloads.offload_status.state == "running",
                lambda last: open_filter(environment, owned.name, last, owned.info),
            )

    def __repr__(self) -> str:
        return f"<ManagedLedger {self.name}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def name(self) -> str:
        """`tenant/namespace/persistent/encoded topic`."""
        return self._owned.name

    @property
    def last_position(self) -> EntryPosition | None:
        """The last acknowledged entry; None if there is none. From memory."""
        return self._appender.view.last_position()

    def read_info(self) -> ManagedLedgerInfo:
        """The record as it is now, offloads of other processes included."""
        return self._owned.read()

    def add_entry(self, payload: ReadableBuffer) -> EntryPosition:
        """Append an entry; where it is. Positions ascend in the order of calls that follow one another.

        When it returns, the entry is acknowledged: it is as safe as the ledger store's options make it.

        Raises:
            OptionError: the payload is larger than the store takes.
            StoreFullError: no room is left; room may come.
            TopicTerminatedError: the topic takes no more entries.
            LedgerFailedError: the entry may be stored or not. The error has the ledger, and the entries
                between which it may be; the managed ledger can be used on.
            OwnershipLostError, LedgerClosedError, StoreError: see the class. Nothing of the call is stored.
        """
        position = self._appender.append(lambda writer: writer.append(payload), (payload,))
        self._keep(position, (bytes(payload),))
        return position

    def add_entries(self, payloads: Sequence[ReadableBuffer]) -> EntryPosition:
        """Append entries that follow one another in one ledger, no others between them; where the first is.

        All are acknowledged or none. At least one. Errors as `add_entry`.
        """
        position = self._appender.append(lambda writer: writer.append_batch(payloads), payloads)
        self._keep(position, [bytes(payload) for payload in payloads])
        return position

    def read_entries(
        self,
        position: EntryPosition,
        max_entries: int,
        max_bytes: int = DEFAULT_READ_BYTES,
        *,
        priority: ReadPriority | None = None,
        up_to: EntryPosition | None = None,
    ) -> EntriesRead:
        """Entries from `position` on, over all ledgers; up to the last acknowledged one, nothing is waited for.

        A position after a ledger's last entry, or of a ledger that was deleted, stands for the next entry that there
        is; `EntryPosition(0, 0)` for the first of all. The newest entries come from memory. A ledger that cannot be
        read ends a read that has entries of those before it; it fails the next one, which begins there.

        Args:
            position: of the first entry.
            max_entries: the most that are read.
            max_bytes: of payloads; at least one entry is read, however large.
            priority: which copy of each ledger is read, and what if that fails; None for that of the environment.
            up_to: nothing after this position is read; None for no bound.

        Raises:
            RangeError, OptionError: a negative position, or bounds below 1.
            UnknownLedgerError: a ledger has no copy where it is read from.
            FormatError, StoreError: of the place that it is read from.
        """
        if priority is None:
            priority = self._environment.priority_of(self.name)
        view = self._appender.view if up_to is None else self._appender.view.up_to(up_to)
        return self._reader.read(view, position, max_entries, max_bytes, priority)

    def roll(self) -> bool:
        """Seal the ledger that is written, and record what it has; return True if it had entries.

        The next entry goes to a new ledger.
        """
        rolled = self._appender.roll()
        if rolled and self._streaming is not None:
            self._streaming.wake()
        return rolled

    def roll_if_due(self) -> bool:
        """Do the same as `roll`, if the rollover policy asks for it, also of an idle ledger; call it at intervals."""
        rolled = self._appender.roll_if_due()
        if rolled and self._streaming is not None:
            self._streaming.wake()
        return rolled

    def offload_prefix(self, position: EntryPosition) -> EntryPosition:
        """Offload all sealed ledgers that are wholly before `position`; the first position that is not offloaded.

        One ledger at a time, the oldest first. A call that comes while another runs joins it: both go as far as the
        farther wants, and get the same result. The ledger that is written stays; `roll` seals it.

        Raises:
            OptionError: no tier is configured, or an unfinished attempt lies in one that is not.
            StoreError, FormatError, DataLossError: of the hot tier, the tier or the metadata. Ledgers that were
                offloaded before it are; the call can be made again.
            LiveAttemptError: another process, or other thread, offloads the next ledger at the moment.
            AttemptError: another process took an attempt over; or the topic is streamed.
            OffloadStoppedError: it was stopped, by `stop_offload` or `close`.
        """
        self._appender.check_open()
        if self.is_streamed:
            raise AttemptError(
                f"the topic {self.name} is streamed, and not offloaded by ledgers",
                hint="Complete its segment, or switch streaming off.",
            )
        try:
            return self._offloads.offload_prefix(position)
        finally:
            if self._streaming is not None:
                self._streaming.wake()  # switched on meanwhile, it has waited for the end of this

    @property
    def is_unfinished(self) -> bool:
        """See `TopicOffloads`."""
        return self._offloads.is_unfinished

    def stop_offload(self) -> None:
        """Stop a running offload before its next ledger or block, without waiting for that.

        All that wait for it get an `OffloadStoppedError`, and its status has it. The ledger that is under way is given
        up and its objects deleted; those that are done stay so.
        """
        self._offloads.stop_offload()

    @property
    def offload_status(self) -> OffloadStatus:
        """The state of the offload that runs, or of the last one that ended, from memory."""
        return self._offloads.offload_status

    def set_streaming(self, settings: StreamingSettings | None) -> None:
        """Stream the topic from now on, or with other bounds; None: no longer. It returns at once.

        Ledgers that are not offloaded yet are streamed first, the oldest first; a ledger-based offload that runs comes
        to its end before. Switched off, a ledger that is partly in segments is finished by segments.

        Raises:
            OptionError: the environment has no `StreamingPool`.
        """
        self._appender.check_open()
        self._streams().set(settings)

    @property
    def streaming(self) -> StreamingSettings | None:
        """The settings by which the topic is streamed; None if it is not."""
        return None if self._streaming is None else self._streaming.settings

    @property
    def is_streamed(self) -> bool:
        """True if streaming is switched on."""
        return self.streaming is not None

    @property
    def has_left_segments(self) -> bool:
        """True if a former owner has begun what waits for `set_streaming`, on or off."""
        return self._streaming is not None and self._streaming.has_left

    @property
    def streaming_status(self) -> StreamingStatus:
        """The state of the streaming, from memory."""
        return StreamingStatus() if self._streaming is None else self._streaming.status

    def complete_segment(self, timeout_s: float | None = None) -> SegmentCompletion:
        """Close the open segment; when it returns, all that was acknowledged before is complete in the tier.

        What the topic's filter does not decide of yet, such as an open transaction, is not waited for: the result has
        the position up to which all is complete, and why not farther. Switched off, that is of ledgers that are partly
        in segments only.

        Raises:
            OptionError: the environment has no `StreamingPool`.
            OffloadStoppedError: it took longer, and goes on; or the managed ledger was closed.
            OffloadError: what made it fail first; it is tried again all the same, see `streaming_status`.
        """
        self._appender.check_open()
        return self._streams().complete(timeout_s)

    def answer_requests(self, timeout_s: float | None = None) -> bool:
        """Complete the segment for requests by `request_completion`; return True if there were any.

        Raises: as `complete_segment`; then they go on waiting.
        """
        asked = requests_of(self._owned.read())
        if not asked:
            return False
        waits_for = None
        if self._streaming is not None:
            waits_for = self.complete_segment(timeout_s).waits_for
        self._appender.change(partial(with_answer, marks=asked, waits_for=waits_for))
        return True

    def delete_hot_copies(self, lag_s: float) -> list[int]:
        """Delete the hot copies of ledgers that were offloaded `lag_s` seconds ago or before; their ids.

        Only if the cold copy is recorded as complete, and a check finds it whole.

        Raises:
            OptionError: no tier is configured, or not the one of a copy.
            DataLossError: a cold copy does not match its record; the hot one stays. Others are deleted.
            StoreError: of the tiers, the metadata or the audit log. Call it again.
        """
        self._appender.check_open()
        return self._offloads.delete_hot_copies(lag_s)

    def terminate(self) -> EntryPosition:
        """End the topic with its last entry, whose position is given; `-1:-1` if it has none.

        Nothing can be added from then on, also when it is opened again. Again: the same answer.
        """
        position = self._appender.end_and_change(terminate).terminated_at
        assert position is not None
        return position

    @property
    def terminated_at(self) -> EntryPosition | None:
        """The last position of a topic that was terminated; None if entries can be added."""
        return self._owned.info.terminated_at

    def trim(
        self,
        retention: RetentionPolicies,
        *,
        consumed_before: EntryPosition | None = None,
        listener: Callable[[int], None] | None = None,
    ) -> list[int]:
        """Delete whole ledgers that retention does not keep, from the oldest on, with all copies; their ids.

        Ledgers that an earlier call marked for deletion are deleted as well. The ledger that is written stays, and so
        do those that a segment is being offloaded of. An object of several ledgers goes with the last of them.

        Args:
            retention: how much and how long consumed ledgers stay.
            consumed_before: ledgers with entries from here on stay, also against retention; None for no bound.
            listener: called with each ledger whose copies were deleted, also if another one fails.

        Raises:
            OptionError: a cold copy lies in a tier that is not configured; other ledgers are deleted.
            StoreError: of the tiers, the metadata or the audit log. Call it again.
        """
        now_ms, writer = self._environment.now_ms(), self._appender.view.writer
        why: dict[int, str] = {}

        def mark(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
            chosen = ledgers_to_trim(
                info,
                retention,
                now_ms=now_ms,
                open_bytes=0 if writer is None else writer.status.size_bytes,
                consumed_before=consumed_before,
            )
            why.update(chosen)
            return mark_for_deletion(info, chosen)

        known = self._appender.change(mark)
        for ledger in known.ledgers:
            if ledger.is_marked_for_deletion:
                self._reader.readers.forget(ledger.ledger_id)
        deleted, failures = delete_marked(self._environment, self.name, known, why, listener)
        self._appender.change(lambda info: without_ledgers(info, deleted))
        if failures:
            raise failures[0]
        return deleted

    def delete(self) -> None:
        """Delete the topic, see `delete_managed_ledger`; whatever is raised, it is not open any more."""
        self._appender.stop()
        self._stop_offloads()
        self._reader.readers.close()
        self._cache.close()
        delete_managed_ledger(self._environment, self.name)

    def close(self) -> None:
        """Seal and record the ledger that is written, and own the topic no more. Opening repairs it, if this fails.

        An offload that runs is stopped, and waited for, some seconds at most. So is a segment that is closed already;
        one that is open stays recorded, and the next owner resumes it.
        """
        self._stop_offloads()
        self._reader.readers.close()
        try:
            self._appender.close()
        finally:
            self._owned.release()

    def _streams(self) -> TopicStreaming:
        if self._streaming is None:
            raise no_tier(self.name)
        return self._streaming

    def _stop_offloads(self) -> None:
        self._offloads.close()
        if self._streaming is not None:
            self._streaming.close(STOP_TIMEOUT_S)

    def _keep(self, position: EntryPosition, payloads: Sequence[bytes]) -> None:
        """Keep appended entries, for readers and for streaming."""
        self._cache.put(position.ledger_id, position.entry_id, payloads)
        if self._streaming is not None:
            self._streaming.offer(position, payloads)

    def _find_ledger(self, ledger_id: int) -> LedgerRecord | None:
        known = self._environment.records.read(self.name)
        ledger = None if known is None else known.info.ledger(ledger_id)
        return None if ledger is None or ledger.is_marked_for_deletion else ledger


def open_managed_ledger(
    environment: Environment,
    name: str,
    *,
    create: bool = True,
    rollover: RolloverPolicy | None = None,
    accept_loss: bool = False,
    only_free: bool = False,
    takes_from: TakesFrom = lambda _: False,
    process: str | None = None,
) -> ManagedLedger:
    """Open a managed ledger, or create it; from now on no other process can append to it.

    Args:
        environment: the process's.
        name: `tenant/namespace/persistent/encoded topic`.
        create: whether one that is not there is created.
        rollover: when it goes on in a new ledger; None for Pulsar's defaults.
        accept_loss: where acknowledged entries of the last ledger are damaged, or the ledger is not there, go on
            without them. What lies in complete segments of a ledger that is not there is kept.
        only_free: whether it is left to an owner that has not closed it; such a one may have been killed, too.
        takes_from: with `only_free`, marks of owners from which it is taken nonetheless.
        process: the name of this process, with which its mark begins.

    Raises:
        UnknownTopicError: there is none, and `create` is false.
        TopicDeletedError: it is being deleted; `delete_managed_ledger` ends that.
        OwnershipLostError: it has an owner, and `only_free`; nothing was changed.
        InvalidKeyError: no such name can be.
        FormatError: the record, or acknowledged entries of the last ledger, are damaged.
        DataLossError: the last ledger is not in the hot tier.
        OutcomeUnknownError, StoreError: of the metadata or the hot tier. It has no owner then.
    """
    found = environment.hot.of(name)
    owned = claim_record(
        environment.records,
        name,
        create,
        takes_from=takes_from if only_free else lambda _: True,
        process=process,
    )
    try:
        _recover(environment, owned, accept_loss)
        _sweep(environment, owned, found)
    except BaseException:
        owned.release()
        raise
    return ManagedLedger(environment, owned, RolloverPolicy() if rollover is None else rollover)


def _recover(environment: Environment, owned: OwnedRecord, accept_loss: bool) -> None:
    """Step 3."""
    for ledger_id in [ledger.ledger_id for ledger in owned.info.in_order if not ledger.info.is_closed]:
        try:
            status = environment.hot.store.recover(ledger_id, accept_loss).status
        except UnknownLedgerError as error:
            if not accept_loss:
                raise DataLossError(
                    f"a ledger of {owned.name} that was not sealed is not in the hot tier",
                    ledger_id=ledger_id,
                    hint="accept_loss=True opens the managed ledger without it.",
                ) from error
            _log.warning("ledger %d of %s is not in the hot tier, and given up", ledger_id, owned.name)
            owned.update(partial(lose_ledger, ledger_id=ledger_id, now_ms=environment.now_ms()))
            continue
        owned.update(partial(end_ledger, status=status, now_ms=environment.now_ms()))


def _sweep(environment: Environment, owned: OwnedRecord, found: Sequence[int]) -> None:
    """Step 4; what cannot be deleted now is found again by the next opening."""
    for ledger_id in found:
        ledger = owned.info.ledger(ledger_id)
        if ledger is not None and (ledger.context is None or not ledger.context.bookkeeper_deleted):
            continue
        try:
            delete_hot(environment, _leftover(owned.name, ledger_id, ledger))
        except (StoreError, FormatError) as error:
            _log.warning("ledger %d of %s is not deleted yet: %s", ledger_id, owned.name, error)


def _leftover(name: str, ledger_id: int, ledger: LedgerRecord | None) -> Deletion:
    why = (
        "it was left, and its topic does not have it"
        if ledger is None
        else "it was left when its deletion began"
    )
    filtered = () if ledger is None else recorded_filters(ledger)
    return Deletion(managed_ledger=name, ledger_id=ledger_id, copy="hot", why=why, filtered=filtered)
