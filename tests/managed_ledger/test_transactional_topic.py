"""Transactions of a managed ledger: begun, added to, ended, and opened again."""

import logging
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from managed_ledgers import NAME, Audit
from scenes.copies import gapped_copy
from scenes.transactions import NEVER, ONE, PLAIN, START, Model, abort, commit, found_in, message, next_to, of

from offload_core.format.messages.entry import TransactionId
from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import DriverMetadata, EntryPosition, OffloadContext, ReadPriority
from offload_core.metadata.records.filter_record import RECORD_KEY, DroppedEntries, FilterMode, FilterRecord
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.transaction_buffers import BufferSnapshot, BufferState, SnapshotStore
from offload_core.writing.managed_ledger import (
    Environment,
    HotLedgers,
    RolloverPolicy,
    SnapshotPolicy,
    TransactionalTopic,
    delete_managed_ledger,
    open_managed_ledger,
    settle_transactions,
)
from offload_hooks.errors import (
    FormatError,
    LedgerFailedError,
    StoreUnavailableError,
    UnknownTransactionError,
)
from offload_hooks.testing import FaultyMetadataStore, MemoryLedgers, MemoryLedgerStore, MemoryMetadataStore
from offload_hooks.testing.threads import together


@pytest.fixture
def metadata():
    return FaultyMetadataStore(MemoryMetadataStore())


@pytest.fixture
def records(metadata):
    return ManagedLedgerRecords(metadata)


@pytest.fixture
def snapshots(records):
    return SnapshotStore(records.store)


# --- begun, added to, ended --------------------------------------------------------------------


def test_transactions_are_begun_added_to_committed_and_aborted(anew):
    topic = anew()
    kept, dropped = topic.begin(), topic.begin()
    first = topic.add_entries([message(), message(kept), message(dropped), message()])
    status = topic.status()
    assert status.state is BufferState.READY
    assert status.stable_position == first
    assert tuple(status.open_transactions) == (kept, dropped)
    assert topic.abort(dropped) == next_to(first, 4)
    assert topic.status().stable_position == first
    assert topic.commit(kept) == next_to(first, 5)
    assert topic.status().stable_position == next_to(first, 5)
    assert topic.decide(next_to(first), kept) == "committed"
    assert topic.decide(next_to(first, 2), dropped) == "aborted"
    assert topic.decide(next_to(first, 3), None) == "committed"
    payloads = [bytes(payload) for _, payload in topic.topic.read_entries(START, 100)]
    _, markers, _, times = found_in(payloads, first.entry_id)
    assert [each[1:] for each in markers] == [[22, *dropped], [21, *kept]]
    assert times[1] == 1_700_000_000_000


def test_ids_of_transactions_are_nobody_elses(anew):
    topics = [anew(), anew()]
    assert len({topic.begin() for topic in topics for _ in range(100)}) == 200


def test_what_was_never_begun_or_has_ended_cannot_be_ended(anew):
    topic = anew()
    transaction = topic.begin()
    topic.add_entries([message(transaction)])
    assert tuple(topic.status().open_transactions) == (transaction,)
    topic.commit(transaction)
    before = topic.topic.last_position
    for unknown in (transaction, TransactionId(4, 4)):
        for end in (topic.commit, topic.abort):
            with pytest.raises(UnknownTransactionError, match=r"is open in acme/cold/persistent/orders"):
                end(unknown)
    assert topic.topic.last_position == before


@pytest.mark.parametrize("is_there", [True, False])
def test_an_end_of_unknown_outcome_can_be_asked_for_again_and_is_written_once(anew, monkeypatch, is_there):
    """Else a commit that is there would be followed by an abort, by which its entries would be dropped."""
    topic = anew()
    transaction = topic.begin()
    first = topic.add_entries([message(transaction)])
    add = topic.topic.add_entry

    def fail(payload):
        if is_there:
            add(payload)
        raise LedgerFailedError("nobody knows")

    with monkeypatch.context() as patch:
        patch.setattr(topic.topic, "add_entry", fail)
        with pytest.raises(LedgerFailedError):
            topic.commit(transaction)
    if is_there:
        for again in (topic.commit, topic.abort):
            with pytest.raises(UnknownTransactionError):
                again(transaction)
    else:
        topic.commit(transaction)
    assert topic.decide(first, transaction) == "committed"


def test_an_unknown_transaction_does_not_have_a_topic_followed(anew, snapshots):
    topic = anew()
    topic.add_entries([message()])
    with pytest.raises(UnknownTransactionError):
        topic.commit(TransactionId(0, 1))
    assert snapshots.read(NAME) is None


def test_an_entry_that_is_not_pulsars_is_refused(anew):
    topic = anew()
    with pytest.raises(FormatError, match="entry 1"):
        topic.add_entries([message(), b"something else"])
    assert topic.topic.last_position is None


def test_entries_of_brokers_transactions_are_followed_as_well(anew):
    topic = anew()
    happened = [of(ONE), PLAIN, abort(ONE), of((3, 3)), commit((3, 3))]
    first = topic.add_entries([event.pack(i) for i, event in enumerate(happened)])
    assert topic.decide(first, TransactionId(*ONE)) == "aborted"
    assert topic.status().stable_position == next_to(first, 4)


# --- many at once ------------------------------------------------------------------------------


def test_threads_begin_add_and_end_at_once(anew):
    rollover = RolloverPolicy(max_entries=40, min_age_s=0)
    topic = anew(SnapshotPolicy(max_entries=20, interval_s=1000), rollover=rollover)
    ended = []

    def work(seed):
        for number in range(25):
            transaction, commits = topic.begin(), (seed + number) % 2 == 0
            places = [topic.add_entries([message(transaction), message()]) for _ in range(2)]
            (topic.commit if commits else topic.abort)(transaction)
            ended.extend((transaction, commits, place) for place in places)

    together([partial(work, seed) for seed in range(4)], 60)
    for each in (topic, anew()):
        assert tuple(each.status().open_transactions) == ()
        assert each.status().stable_position == topic.topic.last_position
        for transaction, commits, place in ended:
            assert each.decide(place, transaction) == ("committed" if commits else "aborted")


def puts(metadata):
    """How many snapshots were written."""
    return sum(call.method == "put" and "/transaction-buffers/" in call.path for call in metadata.calls)


def test_a_topic_without_transactions_has_no_snapshot_and_is_not_read(anew, metadata, snapshots):
    topic = anew(SnapshotPolicy(max_entries=1, interval_s=0))
    for _ in range(200):
        last = topic.add_entries([message()])
    status = topic.status()
    assert (status.state, status.stable_position) == (BufferState.NO_SNAPSHOT, last)
    assert status.persisted_position is None
    assert topic.decide(last, None) == "committed"
    assert topic.decide(last, TransactionId(*ONE)) == "undecided"
    assert topic.decide(next_to(last), None) == "undecided"
    assert topic.snapshot() is None
    assert not topic.snapshot_if_due()
    assert snapshots.read(NAME) is None
    assert anew().status().state is BufferState.NO_SNAPSHOT


def test_the_first_snapshot_is_there_before_the_first_entry_of_a_transaction(anew, metadata, snapshots):
    topic = anew()
    plain = topic.add_entries([message()])
    transaction = topic.begin()
    for fault in ("unavailable", "unknown-before"):
        metadata.choose = lambda call, fault=fault: fault if "/transaction-buffers/" in call.path else None
        for call in (
            lambda: topic.add_entries([message(), message(transaction)]),
            lambda: topic.commit(transaction),
        ):
            with pytest.raises(StoreUnavailableError):
                call()
    assert topic.topic.last_position == plain
    topic.add_entries([message()])
    metadata.choose = lambda _: None
    topic.add_entries([message(transaction)])
    assert snapshots.read(NAME) == BufferSnapshot(stable_position=next_to(plain))
    assert tuple(topic.status().open_transactions) == (transaction,)


def test_snapshots_are_persisted_after_so_many_entries_and_so_much_time(anew, metadata, clock):
    topic = anew(SnapshotPolicy(max_entries=100, interval_s=60))
    transaction = topic.begin()
    topic.add_entries([message(transaction)])
    topic.commit(transaction)
    assert puts(metadata) == 1
    for _ in range(1000):
        topic.add_entries([message()])
    assert 8 <= puts(metadata) <= 11
    before = puts(metadata)
    assert not topic.snapshot_if_due()
    topic.add_entries([message()])
    clock.pass_s(60)
    assert topic.snapshot_if_due()
    assert not topic.snapshot_if_due()
    clock.pass_s(600)
    assert not topic.snapshot_if_due(), "nothing is new"
    topic.add_entries([message()])
    assert puts(metadata) == before + 2
    assert topic.status().persisted_position == topic.topic.last_position


def test_a_due_snapshot_that_fails_fails_no_entry_and_comes_later(anew, metadata, caplog):
    topic = anew(SnapshotPolicy(max_entries=10, interval_s=1000))
    topic.commit(topic.begin())
    metadata.choose = lambda call: "unavailable" if "/transaction-buffers/" in call.path else None
    before = len(metadata.calls)
    with caplog.at_level(logging.WARNING):
        for _ in range(80):
            last = topic.add_entries([message()])
    tries = [call for call in metadata.calls[before:] if "/transaction-buffers/" in call.path]
    assert 1 <= len(tries) <= 10, "it is not tried with each entry"
    assert "the transactions of acme/cold/persistent/orders are not followed up yet" in caplog.text
    assert topic.status().stable_position == last
    assert topic.status().persisted_position is None
    metadata.choose = lambda _: None
    for _ in range(10):
        topic.add_entries([message()])
    assert topic.status().persisted_position >= last


def test_a_snapshot_says_what_a_new_process_goes_on_with(anew, snapshots):
    topic = anew(rollover=RolloverPolicy(max_entries=3, min_age_s=0))
    held, dropped, later = topic.begin(), topic.begin(), topic.begin()
    first = topic.add_entries([message(dropped)])
    topic.abort(dropped)
    stable = topic.add_entries([message()])
    topic.add_entries([message(held), message(later)])
    topic.abort(later)
    written = topic.snapshot()
    assert written == snapshots.read(NAME) == topic.persisted
    assert written.stable_position == stable
    assert set(written.aborted) == {dropped, later}
    after = anew()
    assert after.status() == topic.status()
    assert after.decide(first, dropped) == "aborted"
    after.commit(held)
    assert after.status().stable_position == after.topic.last_position


def test_a_former_owner_does_not_put_a_snapshot_back(anew, snapshots):
    former = anew()
    former.add_entries([message(former.begin())])
    topic = anew()
    (transaction,) = topic.status().open_transactions
    topic.abort(transaction)
    written = topic.snapshot()
    former.snapshot()
    assert snapshots.read(NAME) == written


def test_aborted_transactions_go_with_their_ledgers(anew):
    topic = anew()
    old, new = topic.begin(), topic.begin()
    for transaction in (old, new):
        topic.add_entries([message(transaction)])
        topic.abort(transaction)
        topic.topic.roll()
    assert set(topic.snapshot().aborted) == {old, new}
    topic.topic.trim(RetentionPolicies(), consumed_before=topic.topic.last_position)
    assert set(topic.snapshot().aborted) == {new}
    assert set(anew().snapshot().aborted) == {new}


def test_a_topics_snapshot_is_deleted_with_it(anew, environment, snapshots):
    topic = anew()
    topic.commit(topic.begin())
    assert snapshots.read(NAME) is not None
    delete_managed_ledger(environment, NAME)
    assert snapshots.read(NAME) is None
    assert anew().status().state is BufferState.NO_SNAPSHOT


def test_what_is_not_in_memory_is_read_from_the_ledgers(environment, hot):
    """The hot copy first, whatever the topic's readers are told."""
    priorities = []

    def open_reader(record, priority, _):
        priorities.append(priority)
        return hot.open(record.ledger_id)

    environment = replace(
        environment, cache_bytes=0, open_reader=open_reader, priority_of=lambda _: ReadPriority.OFFLOADED_ONLY
    )
    topic = TransactionalTopic(environment, open_managed_ledger(environment, NAME), NEVER)
    transaction = topic.begin()
    first = topic.add_entries([message(), message(transaction)])
    topic.topic.roll()
    topic.add_entries([message()])
    assert topic.status().stable_position == first
    assert set(priorities) == {ReadPriority.BOOKKEEPER_FIRST}


PREFIX = EntryPosition(1 << 40, 0)


def read_all(read, position=START):
    """What comes from a position on, read by read, in order."""
    found = {}
    while len(got := read(position)):
        for at, payload in got:
            assert not found or at > max(found)
            found[at] = bytes(payload)
        position = got.next_position
    return found


def with_filter_record(info, ledger_id, stop):
    """A ledger's copy as one from which a filter that knew of transactions took entries."""
    record = FilterRecord.of("transactions", FilterMode.GAP, stop, DroppedEntries(), {})

    def changed(ledger):
        if ledger.ledger_id != ledger_id:
            return ledger
        context = ledger.context or OffloadContext(complete=True, bookkeeper_deleted=True)
        driver = context.driver or DriverMetadata(name="local")
        driver = driver.with_property(RECORD_KEY, record.pack(short=True))
        return replace(ledger, context=replace(context, driver=driver))

    return replace(info, ledgers=tuple(map(changed, info.ledgers)))


@pytest.fixture
def topic(tiered, opened):
    bare = open_managed_ledger(tiered, NAME, rollover=RolloverPolicy(max_entries=2, min_age_s=0))
    return TransactionalTopic(replace(tiered, cache_bytes=0), bare, NEVER)


# --- hot, and from cold to hot -----------------------------------------------------------------


def test_what_is_behind_the_stable_position_is_not_there_yet(topic):
    first = topic.add_entries([message(), message()])
    held = topic.begin()
    began = topic.add_entries([message(held), message()])
    read = topic.read_entries(first, 100)
    assert [at for at, _ in read] == [first, next_to(first)]
    again = topic.read_entries(read.next_position, 100)
    assert (len(again), again.next_position) == (0, read.next_position)
    again = topic.read_entries(began, 100)
    assert (len(again), again.next_position) == (0, began)
    topic.commit(held)
    assert [at for at, _ in topic.read_entries(again.next_position, 2)] == [began, next_to(began)]


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("priority", [ReadPriority.OFFLOADED_FIRST, ReadPriority.BOOKKEEPER_FIRST])
def test_an_unfiltered_copy_shows_no_more_than_the_hot_one(topic, priority, deleted):
    """To move a ledger to the tier is nothing that a consumer sees."""
    topic.add_entries([message(), message()])
    held = topic.begin()
    topic.add_entries([message(), message(held)])
    topic.add_entries([message(), message()])
    topic.topic.roll()
    read = partial(topic.read_entries, max_entries=2, priority=priority)
    before = read_all(read)
    assert len(before) == 3
    topic.topic.offload_prefix(PREFIX)
    if deleted:
        assert len(topic.topic.delete_hot_copies(0)) == 3
    assert read_all(read) == before
    topic.commit(held)
    assert len(read_all(read)) == 7


# --- any layout, against a plain model ---------------------------------------------------------

_steps = st.lists(st.sampled_from(["plain", "1", "2", "3", "commit", "abort", "roll"]), max_size=40)


class Layout:
    """A topic in memory, of whose settled ledgers some are filtered copies with gaps."""

    def __init__(self, steps):
        self.ledgers = MemoryLedgerStore(MemoryLedgers())
        self.cold = {}
        self.environment = Environment(
            records=ManagedLedgerRecords(MemoryMetadataStore()),
            hot=HotLedgers(self.ledgers),
            open_reader=self._open,
            audit=Audit(),
            cache_bytes=0,
        )
        self.topic = self.open_anew()
        self.begun = {}
        for step in steps:
            self._take(step)
        self.model = Model.of(self.topic.topic.read_entries(START, 1 << 20))
        self.topic.snapshot()

    def open_anew(self):
        """As another process does."""
        return TransactionalTopic(self.environment, open_managed_ledger(self.environment, NAME), NEVER)

    def filter(self, chosen, *, markers=False):
        """Put filtered copies in the place of those ledgers that are settled and chosen; what was left out.

        Of aborted transactions, and with `markers` those of all as well.
        """
        left_out = {}
        stable = self.model.stable
        by_ledger = {}
        owners = dict(zip((at for at, _ in self.model.entries), self.model.transactions, strict=True))
        for at, payload in self.model.entries:
            by_ledger.setdefault(at.ledger_id, {})[at] = payload
        for number, (ledger_id, entries) in enumerate(by_ledger.items()):
            is_sealed = ledger_id != max(by_ledger) and stable is not None and max(entries) <= stable
            if not is_sealed or not chosen >> number & 1:
                continue
            dropped = {
                at: payload
                for at, payload in entries.items()
                if owners[at] in self.model.aborted or (markers and b"pulsar.txn.marker" in payload)
            }
            left_out |= dropped
            kept = {at.entry_id: payload for at, payload in entries.items() if at not in dropped}
            self.cold[ledger_id] = gapped_copy(kept, len(entries)).open
        return left_out

    def _open(self, record, _, __):
        cold = self.cold.get(record.ledger_id)
        return self.ledgers.open(record.ledger_id) if cold is None else cold()

    def _take(self, step):
        topic = self.topic
        if step == "roll":
            topic.topic.roll()
        elif step == "plain":
            topic.add_entries([message()])
        elif step in ("commit", "abort"):
            if self.begun:
                number = min(self.begun)
                getattr(topic, step)(self.begun.pop(number))
        else:
            topic.add_entries([message(self.begun.setdefault(step, topic.begin())), message()])


def visible(layout, left_out):
    """What is settled and was not left out, by the plain model."""
    stable = layout.model.stable
    return {
        at: payload
        for at, payload in layout.model.entries
        if at not in left_out and stable is not None and at <= stable
    }


@given(steps=_steps, chosen=st.integers(0, 255), at_once=st.integers(1, 9), data=st.data())
def test_any_layout_gives_what_is_settled_and_was_kept(steps, chosen, at_once, data):
    layout = Layout([*steps, "plain"])
    left_out = layout.filter(chosen)
    layout.topic = layout.open_anew()
    read = partial(layout.topic.read_entries, max_entries=at_once)
    expected = visible(layout, left_out)
    assert read_all(read) == expected
    start = data.draw(st.sampled_from([at for at, _ in layout.model.entries]))
    start = next_to(start, data.draw(st.integers(0, 2)))
    assert read_all(read, start) == {at: each for at, each in expected.items() if at >= start}
    # who waits at the end gets the rest when what is open has ended
    end = START
    while len(got := read(end)):
        end = got.next_position
    for transaction in list(layout.begun.values()):
        layout.topic.commit(transaction)
    layout.model = Model.of(layout.topic.topic.read_entries(START, 1 << 20))
    layout.begun = {}
    rest = read_all(read, end)
    assert not set(rest) & set(expected)
    assert set(rest) | set(expected) == {at for at, _ in layout.model.entries}


@given(steps=_steps, chosen=st.integers(0, 255))
@example(steps=["1", "commit", "roll", "1"], chosen=1)
@example(steps=["plain", "roll", "1", "roll", "commit", "roll"], chosen=4)
def test_a_topic_that_is_reset_after_its_ledgers_were_filtered_is_settled_no_less(steps, chosen):
    """Markers that were left out are those of transactions that have ended."""
    layout = Layout([*steps, "plain"])
    before = layout.topic.status()
    layout.filter(chosen, markers=True)
    for ledger_id in layout.cold:
        change = partial(with_filter_record, ledger_id=ledger_id, stop=PREFIX)
        layout.environment.records.update(NAME, change)
    snapshots = SnapshotStore(layout.environment.records.store)
    snapshots.reset(NAME)
    again = layout.open_anew().status()
    assert again.state is BufferState.READY
    assert again.open_transactions == before.open_transactions
    if before.state is BufferState.READY:
        assert again.stable_position == before.stable_position
    settled = settle_transactions(layout.environment, NAME)
    assert settled.stable_position == again.stable_position


# --- while entries cannot be followed up -------------------------------------------------------


def test_cold_entries_that_are_settled_are_read_while_hot_ones_cannot_be(tiered):
    fails = False
    cold_ids = set()

    def open_reader(record, priority, name):
        if fails and record.ledger_id not in cold_ids:
            raise StoreUnavailableError("the hot tier is out of reach", ledger_id=record.ledger_id)
        return tiered.open_reader(record, priority, name)

    environment = replace(tiered, open_reader=open_reader, cache_bytes=0)
    rollover = RolloverPolicy(max_entries=2, min_age_s=0)
    topic = TransactionalTopic(environment, open_managed_ledger(environment, NAME, rollover=rollover), NEVER)
    topic.commit(topic.begin())
    cold = topic.add_entries([message()])
    topic.topic.roll()
    topic.topic.offload_prefix(PREFIX)
    cold_ids.update(topic.topic.delete_hot_copies(0))
    assert cold_ids == {cold.ledger_id}
    hot = topic.add_entries([message()])
    fails = True
    read = topic.read_entries(START, 10)
    assert [at for at, _ in read] == [START, cold]
    with pytest.raises(StoreUnavailableError, match="out of reach"):
        topic.read_entries(read.next_position, 10)
    fails = False
    assert [at for at, _ in topic.read_entries(read.next_position, 10)] == [hot]


def test_a_read_that_a_first_transaction_overtakes_gives_what_was_settled(environment, opened, monkeypatch):
    topic = TransactionalTopic(environment, opened(), NEVER)
    last = topic.add_entries([message()])
    read = topic.topic.read_entries

    def overtaken(*given, **named):
        topic.add_entries([message(topic.begin())])
        return read(*given, **named)

    monkeypatch.setattr(topic.topic, "read_entries", overtaken)
    assert [at for at, _ in topic.read_entries(START, 10)] == [last]
