"""Any sequence of transactions, kills, failures, rollovers, trims and what others do, against a plain model of the
topic's entries: stable position, decisions, what is read, and every snapshot that is persisted.
"""

from contextlib import suppress

from effort import effort
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from managed_ledgers import NAME, Clock, environment_of
from scenes.transactions import START, Model, message

from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import EntryPosition
from offload_core.reading.transaction_buffers import SnapshotStore
from offload_core.writing.managed_ledger import (
    RolloverPolicy,
    SnapshotPolicy,
    TransactionalTopic,
    open_managed_ledger,
    settle_transactions,
)
from offload_hooks.errors import OffloadError, UnknownTransactionError
from offload_hooks.testing import FaultyMetadataStore, MemoryLedgers, MemoryLedgerStore, MemoryMetadataStore

_choices = st.integers(0, 4)


class TransactionMachine(RuleBasedStateMachine):
    """A topic with transactions, and the entries that it has."""

    def __init__(self):
        super().__init__()
        self.clock = Clock()
        self.ledgers = MemoryLedgers()
        self.metadata = FaultyMetadataStore(MemoryMetadataStore())
        self.snapshots = SnapshotStore(self.metadata.store)
        self.begun = []
        self.known = {}
        self.since = START
        self.former = None
        self.open_anew(3, 5, 2)

    def environment(self):
        """A new process'."""
        return environment_of(self.metadata, MemoryLedgerStore(self.ledgers), None, now_ms=self.clock)

    @property
    def model(self):
        """Of all entries that ever were."""
        read = self.topic.topic.read_entries(START, 1 << 20, 1 << 30)
        self.known |= {position: bytes(payload) for position, payload in read}
        self.since = next((position for position, _ in read), START)
        return Model.of(sorted(self.known.items()))

    def chosen(self, choice):
        """One of three transactions, of which one is begun where one has ended; None for none."""
        while len(self.begun) < 3:
            self.begun.append(self.topic.begin())
        return self.begun[choice - 1] if 0 < choice <= 3 else None

    # --- changes ---------------------------------------------------------------------------------

    @rule(rolled=st.integers(1, 6), entries=st.integers(1, 9), seconds=st.integers(0, 9))
    def open_anew(self, rolled, entries, seconds):
        """Its process was killed."""
        environment = self.environment()
        topic = open_managed_ledger(
            environment, NAME, rollover=RolloverPolicy(max_entries=rolled, min_age_s=0)
        )
        policy = SnapshotPolicy(max_entries=entries, interval_s=seconds)
        self.former = getattr(self, "topic", None)
        self.topic = TransactionalTopic(environment, topic, policy)

    @precondition(lambda self: self.former is not None)
    @rule()
    def a_former_owner_is_late(self):
        before = self.snapshots.read(NAME)
        with suppress(OffloadError):
            self.former.snapshot()
        assert before is None or not self.snapshots.read(NAME).is_behind(before)

    @rule(choices=st.lists(_choices, min_size=1, max_size=5))
    def add(self, choices):
        self.topic.add_entries([message(self.chosen(choice)) for choice in choices])

    @rule(choice=st.integers(1, 3), commits=st.booleans())
    def end(self, choice, commits):
        transaction = self.chosen(choice)
        was_open = transaction in self.model.first
        try:
            (self.topic.commit if commits else self.topic.abort)(transaction)
        except UnknownTransactionError:
            assert not was_open
        if commits:  # what was aborted is sent to once more
            self.begun.remove(transaction)

    @rule(seconds=st.integers(0, 9))
    def time_passes(self, seconds):
        self.clock.pass_s(seconds)
        self.topic.snapshot_if_due()

    @rule(fault=st.sampled_from(["unavailable", "unknown-before", "unknown-after"]), choice=_choices)
    def snapshots_fail(self, fault, choice):
        """While the metadata store fails, something is added."""
        self.metadata.choose = lambda call: fault if "/transaction-buffers/" in call.path else None
        with suppress(OffloadError):
            self.add([choice, 0])
        with suppress(OffloadError):
            self.topic.snapshot()
        self.metadata.choose = lambda _: None

    @rule(fault=st.sampled_from([None, None, "unavailable", "unknown-before", "unknown-after"]))
    def another_process_settles(self, fault):
        """All that is sealed, up to what is open, if nothing fails."""
        before, sealed = self.snapshots.read(NAME), self.topic.topic.read_info()
        self.metadata.choose = lambda call: fault if call.method == "put" else None
        settled = None
        with suppress(OffloadError):
            settled = settle_transactions(self.environment(), NAME)
        self.metadata.choose = lambda _: None
        after = self.snapshots.read(NAME)
        if before is None:
            assert settled is after is None
            return
        assert not after.is_behind(before)
        if settled is not None:
            assert settled == after
            ends = [each for each in sealed.in_order if each.info.is_closed and each.info.entries]
            stable = self.model.stable
            for each in ends:
                last = EntryPosition(each.ledger_id, (each.info.entries or 0) - 1)
                if self.is_settled_by_then(last):
                    assert after.stable_position >= last
            assert after.stable_position is None or (stable is not None and after.stable_position <= stable)

    def is_settled_by_then(self, last):
        """Whether what the ledgers up to this entry say is enough to settle all of them."""
        until = Model.of((at, payload) for at, payload in sorted(self.known.items()) if at <= last)
        return until.stable == last

    @precondition(lambda self: self.since == min(self.known, default=START))
    @rule()
    def an_operator_resets_it(self):
        """While it is open nowhere, and nothing was trimmed: then a new owner reads all of it."""
        self.snapshots.reset(NAME)
        self.open_anew(3, 5, 2)

    @rule()
    def roll(self):
        self.topic.topic.roll()

    @rule()
    def trim(self):
        """What no snapshot stands for yet stays, and transactions that have ended get no messages after it."""
        persisted = self.topic.status().persisted_position
        if persisted is not None:
            aborted = self.model.aborted
            self.begun = [each for each in self.begun if each not in aborted]
            self.topic.topic.trim(RetentionPolicies(), consumed_before=persisted)

    # --- what there is ---------------------------------------------------------------------------

    @invariant()
    def it_says_what_the_entries_say(self):
        self.model.check(self.topic, since=self.since)

    @invariant()
    def it_gives_to_read_what_is_settled(self):
        model, found = self.model, []
        position = START
        while len(read := self.topic.read_entries(position, 3)):
            found += [at for at, _ in read]
            position = read.next_position
        stable = model.stable
        settled = [at for at, _ in model.entries if stable is not None and self.since <= at <= stable]
        assert found == settled

    @invariant()
    def the_persisted_snapshot_is_right(self):
        snapshot, model = self.snapshots.read(NAME), self.model
        if snapshot is None:
            assert not any(model.transactions)
        else:
            model.check_snapshot(snapshot, since=self.since)


TransactionMachine.TestCase.settings = effort(0.3, stateful_step_count=25)
TestTransactions = TransactionMachine.TestCase
