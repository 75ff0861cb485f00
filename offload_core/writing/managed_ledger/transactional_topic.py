"""Transactions of a managed ledger: begun, added to, committed and aborted; its transaction buffer and its snapshots.

    before the first transactional entry    a snapshot is persisted: without one there are no such entries
    after an entry is acknowledged          the buffer reads on, by batches; a snapshot is persisted where one is due
    on opening                              the last snapshot, and the entries after its stable position

The buffer may lag acknowledged entries, and a snapshot may lag the buffer; both are right for their position. So a
process may end at any moment. Nothing is read of a topic without a snapshot.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from offload_core.format.messages.entry import TransactionId, pack_marker
from offload_core.metadata.records import EntryPosition, ReadPriority
from offload_core.reading.transaction_buffers import BufferSnapshot, Decision, find_events
from offload_core.writing.managed_ledger.environment import Environment
from offload_core.writing.managed_ledger.followed_transactions import (
    READ_AT_ONCE,
    FollowedTransactions,
    TransactionStatus,
)
from offload_core.writing.managed_ledger.managed_ledger import ManagedLedger
from offload_core.writing.managed_ledger.topic_reader import EntriesRead
from offload_hooks.errors import OffloadError, UnknownTransactionError
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch
from offload_hooks.values import ReadableBuffer

_log = logging.getLogger(__name__)

_READ_AFTER = 64
"""Entries after which the buffer reads on; earlier for a call that needs it."""


_NOWHERE = EntryPosition(-1, -1)
"""Before all entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotPolicy:
    """The intervals of snapshots, which are persisted if there is anything new.

    Attributes:
        max_entries: in entries; similar to Pulsar's `transactionBufferSnapshotMaxTransactionCount`.
        interval_s: in seconds; Pulsar's `transactionBufferSnapshotMinTimeInMillis`.
    """

    max_entries: int = 1000
    interval_s: float = 5


class TransactionalTopic:
    """A managed ledger that is open here, with transactions. Calls may come from many threads at once.

    All entries are added by it. Every call raises what those of the managed ledger raise.

    Args:
        environment: the process's, that the topic was opened in.
        topic: it is not closed; one of these for it.
        policy: when snapshots are persisted; None for Pulsar's defaults.

    Raises:
        MetadataError, FormatError: the snapshot, or an entry after it, is damaged, with the place.
        StoreError: of the metadata, or of where entries are read.
    """

    def __init__(
        self, environment: Environment, topic: ManagedLedger, policy: SnapshotPolicy | None = None
    ) -> None:
        self.topic = topic
        self._now_ms = environment.now_ms
        self._policy = SnapshotPolicy() if policy is None else policy
        self._lock = threading.RLock()
        self._behind = 0  # entries, about: many threads count
        self._tried_ms, self._tried_entries = self._now_ms(), 0
        self._coordinator = secrets.randbits(62)
        self._numbers = itertools.count()
        self._begun: set[TransactionId] = set()
        self._followed = FollowedTransactions(
            environment.snapshots,
            topic.name,
            lambda position: topic.read_entries(
                position, READ_AT_ONCE, priority=ReadPriority.BOOKKEEPER_FIRST
            ),
            topic.read_info,
        )
        self._read_on()

    def __repr__(self) -> str:
        return f"<TransactionalTopic {self.topic.name}>"

    @property
    def name(self) -> str:
        """The managed ledger's."""
        return self.topic.name

    def begin(self) -> TransactionId:
        """Begin a transaction; its id, which no other has. Nothing is written."""
        transaction = TransactionId(self._coordinator, next(self._numbers))
        with self._lock:
            self._begun.add(transaction)
        return transaction

    def add_entries(self, payloads: Sequence[ReadableBuffer]) -> EntryPosition:
        """Append Pulsar's entries, of transactions or of none, see `ManagedLedger.add_entries`.

        What comes to a transaction after its abort is aborted as well.

        Raises:
            FormatError: one is no entry of Pulsar's; with its number. Nothing was added.
        """
        if any(find_events(None, EntryBatch.of(0, payloads))):
            self._use()
        position = self.topic.add_entries(payloads)
        self._follow(len(payloads))
        return position

    def commit(self, transaction: TransactionId) -> EntryPosition:
        """Commit a transaction; where its marker is.

        Raises:
            UnknownTransactionError: it was not begun here and has no entries, or it has ended.
            LedgerFailedError: whether it has ended is not known. Call it again: if it has, it is unknown.
        """
        return self._end(transaction, commits=True)

    def abort(self, transaction: TransactionId) -> EntryPosition:
        """Abort a transaction, so that its messages are never read; as `commit`."""
        return self._end(transaction, commits=False)

    def read_entries(
        self,
        position: EntryPosition,
        max_entries: int,
        max_bytes: int = DEFAULT_READ_BYTES,
        *,
        priority: ReadPriority | None = None,
    ) -> EntriesRead:
        """The settled entries, as consumers of committed messages get them; see `decide` for each.

        As `ManagedLedger.read_entries`, but up to the stable position: after it nothing is read, and `next_position`
        stays. What was settled before, as all that a filter let go to the tier, is
        read also while entries cannot be followed up.
        """
        return self.topic.read_entries(
            position, max_entries, max_bytes, priority=priority, up_to=self._readable_to(position)
        )

    def status(self) -> TransactionStatus:
        """The state now, all that is acknowledged included."""
        with self._lock:
            self._read_on()
            return self._followed.status(self.topic.last_position)

    def decide(self, position: EntryPosition, transaction: TransactionId | None) -> Decision:
        """The decision on an entry, see `TransactionBuffer.decide`.

        Where no transaction was used yet, all that is acknowledged without one is settled.
        """
        with self._lock:
            self._read_on()
            if self._followed.is_used:
                return self._followed.buffer.decide(position, transaction)
            last = self.topic.last_position
            is_there = last is not None and position <= last and transaction is None
            return "committed" if is_there else "undecided"

    @property
    def persisted(self) -> BufferSnapshot | None:
        """The last persisted snapshot; None if there is none. From memory."""
        return self._followed.persisted

    def snapshot(self) -> BufferSnapshot | None:
        """Persist a snapshot of all that is acknowledged; None where no transaction was used."""
        with self._lock:
            if not self._followed.is_used:
                return None
            self._read_on()
            self._tried_ms, self._tried_entries = self._now_ms(), self._followed.new_entries
            snapshot = self._followed.persist()
            self._tried_entries = 0
            return snapshot

    def snapshot_if_due(self) -> bool:
        """Do the same as `snapshot`, if the policy asks for it; return True if it did. Call it at intervals."""
        with self._lock:
            self._read_on()
            if not self._is_due():
                return False
            self.snapshot()
            return True

    def _readable_to(self, position: EntryPosition) -> EntryPosition:
        """The last entry that is settled; where no transaction was used, of those that there are now."""
        with self._lock:
            try:
                self._read_on()
            except OffloadError:
                if position > (self._followed.buffer.stable_position or _NOWHERE):
                    raise
            if not self._followed.is_used:
                return self.topic.last_position or _NOWHERE
            return self._followed.buffer.stable_position or _NOWHERE

    def _use(self) -> None:
        """Persist the first snapshot: from now on there may be entries of transactions."""
        with self._lock:
            if not self._followed.is_used:
                self._followed.use(self.topic.last_position)
                self._read_on()

    def _end(self, transaction: TransactionId, *, commits: bool) -> EntryPosition:
        with self._lock:
            self.topic.roll_if_due()  # what an append before left unknown is known from now on
            self._read_on()
            if self._followed.buffer.is_open(transaction):
                self._begun.discard(transaction)  # its entries show from now on whether it has ended
            elif transaction not in self._begun:
                raise UnknownTransactionError(
                    f"no transaction {transaction} is open in {self.topic.name}",
                    hint="It may have ended before, or was never begun.",
                )
            self._use()
            marker = pack_marker(transaction, commits=commits, publish_time_ms=self._now_ms())
            position = self.topic.add_entry(marker)
            self._begun.discard(transaction)
        self._follow(1)
        return position

    def _follow(self, added: int) -> None:
        """After entries were acknowledged: let the buffer read on at times. Nothing that fails here fails the call."""
        self._behind += added
        if not self._followed.is_used or not (self._behind >= _READ_AFTER or self._is_due()):
            return
        if not self._lock.acquire(blocking=False):
            return  # the thread that holds it reads on, or the next one does
        try:
            self.snapshot_if_due()
        except OffloadError as error:
            _log.warning("the transactions of %s are not followed up yet: %s", self.topic.name, error)
        finally:
            self._lock.release()

    def _is_due(self) -> bool:
        new = self._followed.new_entries + self._behind
        is_late = self._now_ms() - self._tried_ms >= self._policy.interval_s * 1000
        is_much = new - self._tried_entries >= self._policy.max_entries
        return self._followed.is_used and (is_much or (new > 0 and is_late))

    def _read_on(self) -> None:
        """Add all acknowledged entries to the buffer."""
        self._behind = 0
        self._followed.read_on(self.topic.last_position)
