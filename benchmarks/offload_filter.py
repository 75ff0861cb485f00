"""What the offload filter `transactions` costs, against the same offload without a filter.

A ledger of 256 MiB, of Pulsar's entries of one message of 1 KiB, from the embedded hot tier's files to an S3 service on
this machine, as the suite `offload` has it. Beside it, to a folder in memory, where nothing hides behind a service: for
that there is no target. Without transactions; and with 30 % of the entries in transactions that were aborted, 40 % in
such as were committed, of 20 entries each, eight of them at a time, in both modes. The transactions are settled
already, as a topic's owner keeps them; settling them, for somebody who has not followed the topic, is a pass more over
the entries, which is shown beside.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

from servers.versitygw import Versitygw

from benchmarks.java import open_tier_at
from benchmarks.measure import Result, seconds_side_by_side
from benchmarks.stores import in_memory_where_it_can_be
from offload_core.format.messages.entry import NewMessage, TransactionId, pack_entry, pack_marker
from offload_core.metadata.records.filter_record import FilterMode, FilterRecord
from offload_core.reading.transaction_buffers import BufferSnapshot, TransactionBuffer
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import Tier
from offload_core.writing.offload import LedgerOffloader
from offload_core.writing.offload_filters import ChosenFilter
from offload_core.writing.transaction_filter import TransactionOffloadFilter
from offload_drivers.local import LocalDriver
from offload_hooks.filters import SettledTransactions

LEDGER_BYTES = 256 << 20
MESSAGE_BYTES = 1024
BLOCK_BYTES = 64 << 20
ABORTED, COMMITTED = 0.3, 0.4
IN_TRANSACTION, AT_ONCE = 20, 8
MOST_WITHOUT, MOST_WITH = 1.10, 1.25
READ_BYTES = 4 << 20


def run(folder: Path) -> Iterator[Result]:
    """Each mode over the offload without a filter."""
    place = in_memory_where_it_can_be(folder)
    store = FileLedgerStore(folder / "filter-hot", sync="never")
    try:
        plain = filled(store, with_transactions=False)
        mixed = filled(store, with_transactions=True)
        settled = settle(store, mixed)
        with Versitygw().start(place / "service") as server:
            server.make_bucket("bench")
            with open_tier_at(server, "never") as tier:
                for mode in FilterMode:
                    yield filtering(store, tier, plain, mode, None, "S3, no transactions", MOST_WITHOUT)
                    yield filtering(store, tier, mixed, mode, settled, "S3, 30 % aborted", MOST_WITH)
        with Tier(LocalDriver(str(place / "cold"))) as folder_tier:
            for mode in FilterMode:
                yield filtering(store, folder_tier, plain, mode, None, "a folder, no transactions", None)
                yield filtering(store, folder_tier, mixed, mode, settled, "a folder, 30 % aborted", None)
            yield timed("settling them", lambda: settle(store, mixed), store, folder_tier, mixed, None)
    finally:
        store.close()
        shutil.rmtree(place)
        shutil.rmtree(folder / "filter-hot")


class Topic:
    """A topic whose transactions are settled."""

    name = "persistent://bench/filter/topic"

    def __init__(self, settled: SettledTransactions | None) -> None:
        self._settled = settled

    def settle(self) -> SettledTransactions | None:
        """See `FilteredTopic`."""
        return self._settled


def filtering(
    store: FileLedgerStore,
    tier: Tier,
    ledger_id: int,
    mode: FilterMode,
    settled: SettledTransactions | None,
    name: str,
    most: float | None,
) -> Result:
    """An offload through the filter over one without, and what it saved."""
    chosen = ChosenFilter(name="transactions", mode=mode, filter=TransactionOffloadFilter())
    records: list[FilterRecord | None] = []

    def filtered() -> None:
        records.append(offload(store, tier, ledger_id, chosen, Topic(settled)))

    result = timed(name, filtered, store, tier, ledger_id, most)
    record = records[-1]
    assert record is not None
    saved = record.total_dropped.payload_bytes / LEDGER_BYTES
    return Result(
        name=f"to {name}, {mode.value}s, {saved:.0%} of the bytes saved, time",
        ours=result.ours,
        peer=result.peer,
        ratio=result.ratio,
        limit=most,
        at_most=True,
    )


def timed(
    name: str,
    ours: Callable[[], object],
    store: FileLedgerStore,
    tier: Tier,
    ledger_id: int,
    most: float | None,
) -> Result:
    """Seconds of something over those of an offload without a filter."""
    mine, other, ratio = seconds_side_by_side(ours, lambda: offload(store, tier, ledger_id), rounds=9)
    return Result(
        name=name,
        ours=f"{LEDGER_BYTES / mine / 1e6:.0f} MB/s",
        peer=f"no filter {LEDGER_BYTES / other / 1e6:.0f} MB/s",
        ratio=1 / ratio,
        limit=most,
        at_most=True,
    )


def offload(
    store: FileLedgerStore,
    tier: Tier,
    ledger_id: int,
    chosen: ChosenFilter | None = None,
    topic: Topic | None = None,
) -> FilterRecord | None:
    """One offload of the ledger, which is deleted again; what a filter did."""
    offloader, uuid, reader = (
        LedgerOffloader(tier, max_block_bytes=BLOCK_BYTES),
        uuid4(),
        store.open(ledger_id),
    )
    try:
        run_of_filter = None if chosen is None or topic is None else chosen.open(topic)
        done = offloader.offload(reader, uuid, {}, filter_run=run_of_filter)
    finally:
        reader.close()
    offloader.delete_offloaded(ledger_id, uuid)
    return done.filter


def settle(store: FileLedgerStore, ledger_id: int) -> SettledTransactions:
    """A pass over the entries by a transaction buffer."""
    buffer = TransactionBuffer.restore(BufferSnapshot(stable_position=None))
    reader = store.open(ledger_id)
    begin, count = 0, reader.status().entry_count
    while begin < count:
        read = reader.read(begin, count - 1, READ_BYTES)
        buffer.add(ledger_id, read)
        begin = read.stop_entry_id
    reader.close()
    return SettledTransactions(stop=(ledger_id, count), aborted=frozenset(buffer.aborted), waits_for="")


def filled(store: FileLedgerStore, *, with_transactions: bool) -> int:
    """A sealed ledger of `LEDGER_BYTES` of messages, and markers beside; its id."""
    rng = random.Random(1)
    writer = store.create({})
    under_way: list[tuple[TransactionId, int]] = []
    payloads: list[bytes] = []
    for number in range(LEDGER_BYTES // MESSAGE_BYTES):
        transaction = None
        if with_transactions and rng.random() < ABORTED + COMMITTED:
            if len(under_way) < AT_ONCE:
                under_way.append((TransactionId(1, number), 0))
            place = rng.randrange(len(under_way))
            transaction, sent = under_way[place]
            under_way[place] = (transaction, sent + 1)
        message = NewMessage(value=rng.randbytes(MESSAGE_BYTES))
        payloads.append(
            pack_entry(
                [message],
                producer_name="bench",
                sequence_id=number,
                publish_time_ms=1_700_000_000_000 + number,
                transaction=transaction,
            )
        )
        for done in [each for each in under_way if each[1] == IN_TRANSACTION]:
            under_way.remove(done)
            payloads.append(end_of(done[0], rng))
        if len(payloads) >= AT_ONCE * IN_TRANSACTION:
            writer.append_batch(payloads)
            payloads.clear()
    payloads += [end_of(each, rng) for each, _ in under_way]
    if payloads:
        writer.append_batch(payloads)
    writer.close()
    return writer.ledger_id


def end_of(transaction: TransactionId, rng: random.Random) -> bytes:
    """Its marker."""
    commits = rng.random() >= ABORTED / (ABORTED + COMMITTED)
    return pack_marker(transaction, commits=commits, publish_time_ms=1_700_000_000_000)
