"""Entries of 1 KiB offered to a segment, against the ledger-based offload of as many: processor time and rate.

The tier is a folder, and an S3 service on this machine, both in memory where the machine has a file system there. The
entries are offered as they come from an append, a batch of a MiB in memory; the ledger is read from its files.
Processor time is that of this process, all threads, without the service.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

from oracle import MANAGED_LEDGER
from servers.versitygw import Versitygw

from benchmarks.java import PARTS, Ledger, open_tier_at
from benchmarks.measure import Result
from benchmarks.offload import BATCH, BLOCK_BYTES, ENTRY_BYTES, LEDGER_BYTES, filled, offload
from benchmarks.stores import in_memory_where_it_can_be
from offload_core.metadata.records import EntryPosition
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import MemoryBudget, Tier, open_store
from offload_core.writing.offload import OfferResult, SegmentOffloader
from offload_hooks.ledger_stores import EntryBatch

ROUNDS = 3
MOST_TIMES_DEARER = 1.5
WAIT_S = 0.001


def run(folder: Path) -> Iterator[Result]:
    """To a folder, and to the service."""
    place = in_memory_where_it_can_be(folder)
    store = FileLedgerStore(folder / "streaming-hot", sync="never")
    try:
        ledger_id = filled(store)
        with open_store(place / "tier") as tier:
            yield from compare("a folder", store, tier, ledger_id)
        with Versitygw().start(place / "service") as server:
            server.make_bucket("bench")
            with open_tier_at(server, "never") as tier:
                yield from compare("versitygw", store, tier, ledger_id)
    finally:
        store.close()
        shutil.rmtree(place)
        shutil.rmtree(folder / "streaming-hot")


def compare(name: str, store: FileLedgerStore, tier: Tier, ledger_id: int) -> Iterator[Result]:
    """Both in turn, after one round of each that is not counted."""
    batch = EntryBatch.of(0, [bytes(Ledger.of(ENTRY_BYTES, 1).values)] * BATCH)
    stream(tier, batch)
    offload(store, tier, ledger_id)
    pairs = [
        (measured(lambda: stream(tier, batch)), measured(lambda: offload(store, tier, ledger_id)))
        for _ in range(ROUNDS)
    ]
    for what, unit, place, limit in (
        ("processor time", "s/GiB", 1, MOST_TIMES_DEARER),
        ("time", "s/GiB", 0, None),
    ):
        ours, theirs = (statistics.median(pair[i][place] for pair in pairs) for i in (0, 1))
        yield Result(
            name=f"a segment of 1 GiB, entries of 1 KiB, to {name}: {what}",
            ours=f"{ours:.2f} {unit}",
            peer=f"ledger-based {theirs:.2f} {unit}",
            ratio=statistics.median(mine[place] / other[place] for mine, other in pairs),
            limit=limit,
            at_most=True,
        )


def measured(call: Callable[[], None]) -> tuple[float, float]:
    """Seconds by the clock, and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - clock, time.process_time() - processor


def stream(tier: Tier, batch: EntryBatch) -> None:
    """One segment of as many entries as the ledger has, offered as fast as they are taken; deleted again."""
    budget, uuid, entry_id = MemoryBudget((PARTS + 1) * BLOCK_BYTES), uuid4(), 0
    with ThreadPoolExecutor(PARTS) as executor:
        segments = SegmentOffloader(
            tier, budget=budget, executor=executor, max_block_bytes=BLOCK_BYTES, parts_in_flight=PARTS
        )
        handle = segments.open_segment(uuid, EntryPosition(1, 0), {"managedledgername": MANAGED_LEDGER})
        while entry_id < LEDGER_BYTES // ENTRY_BYTES:
            done = entry_id % BATCH
            given = EntryBatch(entry_id, batch.data, batch.offsets[done:])
            offered = handle.offer_entries(1, given)
            entry_id += offered.accepted
            if offered.result is OfferResult.BUFFER_FULL:
                time.sleep(WAIT_S)
        handle.close()
        handle.result().result()
        segments.delete_offloaded(uuid)
