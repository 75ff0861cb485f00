"""What a topic with transactions gives to read: what is settled, wherever it lies, and nothing behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from managed_ledgers import NAME, Audit
from scenes.copies import gapped_copy
from scenes.transactions import NEVER, START, Model, message, next_to

from offload_core.format.messages.transaction_id import TransactionId
from offload_core.metadata.policies import ReadPriority
from offload_core.metadata.records import (
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
)
from offload_core.metadata.records.filter_record import RECORD_KEY
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.transaction_buffers import BufferState, SnapshotStore
from offload_core.writing.filters import DroppedEntries, FilterMode, FilterRecord
from offload_core.writing.managed_ledger import (
    EntriesRead,
    Environment,
    HotLedgers,
    ManagedLedger,
    RolloverPolicy,
    TransactionalTopic,
    open_managed_ledger,
    settle_transactions,
)
from offload_hooks.errors import StoreUnavailableError
from offload_hooks.ledger_stores import LedgerReader
from offload_hooks.testing import MemoryLedgers, MemoryLedgerStore, MemoryMetadataStore

Payloads = dict[EntryPosition, bytes]
PREFIX = EntryPosition(1 << 40, 0)


def read_all(read: Callable[[EntryPosition], EntriesRead], position: EntryPosition = START) -> Payloads:
    """What comes from a position on, read by read, in order."""
    found: Payloads = {}
    while len(got := read(position)):
        for at, payload in got:
            assert not found or at > max(found)
            found[at] = bytes(payload)
        position = got.next_position
    return found


def with_filter_record(info: ManagedLedgerInfo, ledger_id: int, stop: EntryPosition) -> ManagedLedgerInfo:
    """A ledger's copy as one from which a filter that knew of transactions took entries."""
    record = FilterRecord.of("transactions", FilterMode.GAP, stop, DroppedEntries(), {})

    def changed(ledger: LedgerRecord) -> LedgerRecord:
        if ledger.ledger_id != ledger_id:
            return ledger
        context = ledger.context or OffloadContext(complete=True, bookkeeper_deleted=True)
        driver = context.driver or DriverMetadata(name="local")
        driver = driver.with_property(RECORD_KEY, record.pack(short=True))
        return replace(ledger, context=replace(context, driver=driver))

    return replace(info, ledgers=tuple(map(changed, info.ledgers)))


@pytest.fixture
def topic(tiered: Environment, opened: Callable[..., ManagedLedger]) -> TransactionalTopic:
    bare = open_managed_ledger(tiered, NAME, rollover=RolloverPolicy(max_entries=2, min_age_s=0))
    return TransactionalTopic(replace(tiered, cache_bytes=0), bare, NEVER)


# --- hot, and from cold to hot -----------------------------------------------------------------


def test_what_is_behind_the_stable_position_is_not_there_yet(topic: TransactionalTopic) -> None:
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


def test_nothing_is_there_before_an_open_first_entry(topic: TransactionalTopic) -> None:
    first = topic.add_entries([message(topic.begin())])
    assert len(topic.read_entries(START, 100)) == 0
    assert len(topic.read_entries(first, 100)) == 0


def test_without_transactions_all_is_there(topic: TransactionalTopic) -> None:
    topic.add_entries([message(), message()])
    assert len(topic.read_entries(START, 100)) == 2


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("priority", [ReadPriority.OFFLOADED_FIRST, ReadPriority.BOOKKEEPER_FIRST])
def test_an_unfiltered_copy_shows_no_more_than_the_hot_one(
    topic: TransactionalTopic, priority: ReadPriority, deleted: bool
) -> None:
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

    def __init__(self, steps: list[str]) -> None:
        self.ledgers = MemoryLedgerStore(MemoryLedgers())
        self.cold: dict[int, Callable[[], LedgerReader]] = {}
        self.environment = Environment(
            records=ManagedLedgerRecords(MemoryMetadataStore()),
            hot=HotLedgers(self.ledgers),
            open_reader=self._open,
            audit=Audit(),
            cache_bytes=0,
        )
        self.topic = self.open_anew()
        self.begun: dict[str, TransactionId] = {}
        for step in steps:
            self._take(step)
        self.model = Model.of(self.topic.topic.read_entries(START, 1 << 20))
        self.topic.snapshot()

    def open_anew(self) -> TransactionalTopic:
        """As another process does."""
        return TransactionalTopic(self.environment, open_managed_ledger(self.environment, NAME), NEVER)

    def filter(self, chosen: int, *, markers: bool = False) -> Payloads:
        """Put filtered copies in the place of those ledgers that are settled and chosen; what was left out.

        Of aborted transactions, and with `markers` those of all as well.
        """
        left_out: Payloads = {}
        stable = self.model.stable
        by_ledger: dict[int, Payloads] = {}
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

    def _open(self, record: LedgerRecord, _: ReadPriority, __: str) -> LedgerReader:
        cold = self.cold.get(record.ledger_id)
        return self.ledgers.open(record.ledger_id) if cold is None else cold()

    def _take(self, step: str) -> None:
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


def visible(layout: Layout, left_out: Mapping[EntryPosition, bytes]) -> Payloads:
    """What is settled and was not left out, by the plain model."""
    stable = layout.model.stable
    return {
        at: payload
        for at, payload in layout.model.entries
        if at not in left_out and stable is not None and at <= stable
    }


@given(steps=_steps, chosen=st.integers(0, 255), at_once=st.integers(1, 9), data=st.data())
def test_any_layout_gives_what_is_settled_and_was_kept(
    steps: list[str], chosen: int, at_once: int, data: st.DataObject
) -> None:
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
def test_a_topic_that_is_reset_after_its_ledgers_were_filtered_is_settled_no_less(
    steps: list[str], chosen: int
) -> None:
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
    assert settled is not None
    assert settled.stable_position == again.stable_position


# --- while entries cannot be followed up -------------------------------------------------------


def test_cold_entries_that_are_settled_are_read_while_hot_ones_cannot_be(tiered: Environment) -> None:
    fails = False
    cold_ids: set[int] = set()

    def open_reader(record: LedgerRecord, priority: ReadPriority, name: str) -> LedgerReader:
        if fails and record.ledger_id not in cold_ids:
            raise StoreUnavailableError("the hot tier is out of reach", ledger_id=record.ledger_id)
        assert tiered.open_reader is not None
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


def test_a_read_that_a_first_transaction_overtakes_gives_what_was_settled(
    environment: Environment, opened: Callable[..., ManagedLedger], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = TransactionalTopic(environment, opened(), NEVER)
    last = topic.add_entries([message()])
    read = topic.topic.read_entries

    def overtaken(*given: Any, **named: Any) -> EntriesRead:
        topic.add_entries([message(topic.begin())])
        return read(*given, **named)

    monkeypatch.setattr(topic.topic, "read_entries", overtaken)
    assert [at for at, _ in topic.read_entries(START, 10)] == [last]
