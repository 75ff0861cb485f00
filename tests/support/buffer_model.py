"""What a topic's entries say of its transactions, by going through all of them: the transaction buffer's model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from transactional import START

from offload_core.managed_ledger import TransactionalTopic
from offload_core.messages.entry import split_entry
from offload_core.messages.transaction_id import TransactionId
from offload_core.metadata import EntryPosition
from offload_core.transactions import BufferSnapshot, BufferState, TransactionBuffer
from offload_hooks.ledger_stores import EntryBatch


@dataclass
class Model:
    """Entries by position, with the transaction of each, and what became of the transactions."""

    entries: list[tuple[EntryPosition, bytes]] = field(default_factory=list)
    transactions: list[TransactionId | None] = field(default_factory=list)
    first: dict[TransactionId, EntryPosition] = field(default_factory=dict)
    aborted: set[TransactionId] = field(default_factory=set)

    @classmethod
    def of(cls, entries: Iterable[tuple[EntryPosition, bytes | memoryview]]) -> Model:
        """A model of all entries that there are."""
        model = cls()
        for position, payload in entries:
            model.add(position, bytes(payload))
        return model

    def add(self, position: EntryPosition, payload: bytes) -> None:
        """The next entry."""
        metadata = split_entry(payload).metadata
        transaction = None
        if metadata.HasField("txnid_most_bits"):
            transaction = TransactionId(metadata.txnid_most_bits, metadata.txnid_least_bits)
        self.entries.append((position, payload))
        self.transactions.append(transaction)
        if transaction is None:
            return
        if metadata.HasField("marker_type"):
            self.first.pop(transaction, None)
            if metadata.marker_type == 22:
                self.aborted.add(transaction)
        elif transaction not in self.aborted:
            self.first.setdefault(transaction, position)

    @property
    def stable(self) -> EntryPosition | None:
        """The last entry before the first of any open transaction."""
        first = min(self.first.values(), default=EntryPosition(1 << 62, 0))
        return max((position for position, _ in self.entries if position < first), default=None)

    def check(self, topic: TransactionalTopic, where: object = "", since: EntryPosition = START) -> None:
        """Compare with what a topic says; entries before `since` were deleted."""
        status = topic.status()
        if status.state is BufferState.NO_SNAPSHOT:
            assert not any(self.transactions), where
            assert status.stable_position == topic.topic.last_position, where
            return
        assert status.state is BufferState.READY, where
        assert set(status.open_transactions) == set(self.first), where
        stable = self.stable
        assert status.stable_position == stable, where
        for (position, _), transaction in zip(self.entries, self.transactions, strict=True):
            if position >= since:
                expected = self.decide(position, transaction, stable)
                assert topic.decide(position, transaction) == expected, where

    def decide(
        self, position: EntryPosition, transaction: TransactionId | None, stable: EntryPosition | None
    ) -> str:
        """What became of an entry, where this is the stable position."""
        if stable is None or position > stable:
            return "undecided"
        return "aborted" if transaction in self.aborted else "committed"

    def check_snapshot(
        self, snapshot: BufferSnapshot, where: object = "", since: EntryPosition = START
    ) -> None:
        """A snapshot is right where it is, and so is what is made of it and the entries behind it."""
        buffer = TransactionBuffer.restore(snapshot)
        buffer.become_ready()
        stable, mine = snapshot.stable_position, self.stable
        if stable is not None and mine is not None:
            assert stable <= mine, where
        for (position, _), transaction in zip(self.entries, self.transactions, strict=True):
            if stable is not None and since <= position <= stable:
                assert buffer.decide(position, transaction) == self.decide(position, transaction, mine), where
        for position, payload in self.entries:
            if stable is None or position > stable:
                buffer.add(position.ledger_id, EntryBatch.of(position.entry_id, [payload]))
        assert set(buffer.open_transactions) == set(self.first), where
        there = {
            transaction
            for (position, _), transaction in zip(self.entries, self.transactions, strict=True)
            if transaction is not None and position >= since
        }
        assert {each for each in there if buffer.is_aborted(each)} == there & self.aborted, where
