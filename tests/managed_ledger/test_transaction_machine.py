"""Any sequence of transactions, kills, failures, rollovers and trims against a plain model of the topic's entries."""

from __future__ import annotations

from contextlib import suppress

from buffer_model import Model
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from managed_ledgers import NAME, Audit, Clock

from offload_core.managed_ledger import (
    Environment,
    HotLedgers,
    RolloverPolicy,
    SnapshotPolicy,
    TransactionalTopic,
    open_managed_ledger,
)
from offload_core.messages.new_entry import NewMessage, pack_entry
from offload_core.metadata import EntryPosition, ManagedLedgerRecords
from offload_core.policies import RetentionPolicies
from offload_core.transactions import SnapshotStore, TransactionId
from offload_hooks.errors import OffloadError, UnknownTransactionError
from offload_hooks.testing import FaultyMetadataStore, MemoryLedgers, MemoryLedgerStore, MemoryMetadataStore

START = EntryPosition(0, 0)
_choices = st.integers(0, 5)


class TransactionMachine(RuleBasedStateMachine):
    """A topic with transactions, and the entries that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.ledgers = MemoryLedgers()
        self.metadata = FaultyMetadataStore(MemoryMetadataStore())
        self.snapshots = SnapshotStore(self.metadata.store)
        self.begun: list[TransactionId] = []
        self.open_anew(3, 5, 2)

    @property
    def model(self) -> Model:
        return Model.of(self.topic.topic.read_entries(START, 1 << 20, 1 << 30))

    def chosen(self, choice: int) -> TransactionId | None:
        """One of the last transactions; None for none."""
        return self.begun[-choice] if 0 < choice <= len(self.begun) else None

    # --- changes ---------------------------------------------------------------------------------

    @rule(rolled=st.integers(1, 6), entries=st.integers(1, 9), seconds=st.integers(0, 9))
    def open_anew(self, rolled: int, entries: int, seconds: int) -> None:
        """Its process was killed."""
        environment = Environment(
            records=ManagedLedgerRecords(self.metadata),
            hot=HotLedgers(MemoryLedgerStore(self.ledgers)),
            audit=Audit(),
            now_ms=self.clock,
        )
        topic = open_managed_ledger(
            environment, NAME, rollover=RolloverPolicy(max_entries=rolled, min_age_s=0)
        )
        policy = SnapshotPolicy(max_entries=entries, interval_s=seconds)
        former = getattr(self, "topic", None)
        self.topic = TransactionalTopic(environment, topic, policy)
        if former is not None:
            with suppress(OffloadError):
                former.snapshot()  # late, and right for where it is

    @rule()
    def begin(self) -> None:
        self.begun.append(self.topic.begin())

    @rule(choices=st.lists(_choices, min_size=1, max_size=5))
    def add(self, choices: list[int]) -> None:
        payloads = [
            pack_entry(
                [NewMessage(value=b"x")],
                producer_name="p",
                sequence_id=0,
                publish_time_ms=1,
                transaction=self.chosen(choice),
            )
            for choice in choices
        ]
        self.topic.add_entries(payloads)

    @precondition(lambda self: self.begun)
    @rule(choice=_choices, commits=st.booleans())
    def end(self, choice: int, commits: bool) -> None:
        transaction = self.chosen(choice + 1)
        if transaction is None:
            return
        was_open = transaction in self.model.first
        try:
            (self.topic.commit if commits else self.topic.abort)(transaction)
        except UnknownTransactionError:
            assert not was_open
        self.begun.remove(transaction)

    @rule(seconds=st.integers(0, 9))
    def time_passes(self, seconds: int) -> None:
        self.clock.pass_s(seconds)
        self.topic.snapshot_if_due()

    @rule(fault=st.sampled_from(["unavailable", "unknown-before", "unknown-after"]), choice=_choices)
    def snapshots_fail(self, fault: str, choice: int) -> None:
        """While the metadata store fails, something is added."""
        self.metadata.choose = lambda call: fault if "/transaction-buffers/" in call.path else None  # type: ignore[return-value, assignment]
        with suppress(OffloadError):
            self.add([choice, 0])
        with suppress(OffloadError):
            self.topic.snapshot()
        self.metadata.choose = lambda _: None

    @rule()
    def roll(self) -> None:
        self.topic.topic.roll()

    @rule()
    def trim(self) -> None:
        """Behind the stable position nothing goes, as a consumer has not seen it yet."""
        stable = self.topic.status().stable_position
        if stable is not None:
            nothing = RetentionPolicies(retentionTimeInMinutes=0, retentionSizeInMB=0)
            self.topic.topic.trim(nothing, consumed_before=stable)

    # --- what there is ---------------------------------------------------------------------------

    @invariant()
    def it_says_what_the_entries_say(self) -> None:
        self.model.check(self.topic)

    @invariant()
    def the_persisted_snapshot_is_right(self) -> None:
        snapshot, model = self.snapshots.read(NAME), self.model
        if snapshot is None:
            assert not any(model.transactions)
        else:
            model.check_snapshot(snapshot)


TransactionMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestTransactions = TransactionMachine.TestCase
