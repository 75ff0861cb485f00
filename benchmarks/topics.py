"""A managed ledger against the ledger store alone: what ownership, rollover and the cache of newest entries cost.

Entries of 1 KiB to one disk by the embedded store, synced every 100 ms (`interval`); one by one is one thread that
waits for each entry's position. The targets are in MB/s.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Result, seconds_side_by_side
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.managed_ledger import Environment, HotLedgers, ManagedLedger, open_managed_ledger
from offload_hooks.ledger_stores import LedgerWriter

ENTRY_BYTES = 1024
BATCH = [random.Random(i).randbytes(ENTRY_BYTES) for i in range(1000)]
BATCHES = 128
SINGLES = 32
ROUNDS = 5


def run(folder: Path) -> Iterator[Result]:
    """Adding by batches and one by one."""
    place = folder / "topics"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    hot = FileLedgerStore(place / "ledgers", sync="interval")
    metadata = SqliteStore(f"sqlite:{place}/records.db", create=True)
    environment = Environment(records=ManagedLedgerRecords(metadata), hot=HotLedgers(hot))
    topic = open_managed_ledger(environment, "acme/cold/persistent/orders")
    cases: tuple[tuple[str, Callable[[], None], Callable[[LedgerWriter], None], int, float], ...] = (
        ("batches of 1,000", lambda: add_batches(topic), append_batches, BATCHES, 100.0),
        ("one by one", lambda: add_one_by_one(topic), append_one_by_one, SINGLES, 40.0),
    )
    for name, add, append, batches, target in cases:
        ours, peer, ratio = seconds_side_by_side(
            lambda add=add: (add(), topic.roll()),  # type: ignore[misc]
            lambda append=append: with_writer(hot, append),  # type: ignore[misc]
            rounds=ROUNDS,
        )
        rates = [batches * len(BATCH) * ENTRY_BYTES / 1e6 / seconds for seconds in (ours, peer)]
        shown = f"{rates[0]:.0f} MB/s"
        yield Result(name=f"add, {name}, MB/s", ours=shown, peer="", ratio=rates[0], limit=target)
        yield Result(name=f"add, {name}", ours=shown, peer=f"ledger {rates[1]:.0f} MB/s", ratio=ratio)
    topic.delete()
    hot.close()
    metadata.close()
    shutil.rmtree(place)


def add_batches(topic: ManagedLedger) -> None:
    """Ours."""
    for _ in range(BATCHES):
        topic.add_entries(BATCH)


def add_one_by_one(topic: ManagedLedger) -> None:
    """Ours."""
    for _ in range(SINGLES):
        for payload in BATCH:
            topic.add_entry(payload)


def with_writer(hot: FileLedgerStore, append: Callable[[LedgerWriter], None]) -> None:
    """The peer: a ledger, sealed."""
    writer = hot.create({})
    append(writer)
    writer.close()
    hot.delete(writer.ledger_id)


def append_batches(writer: LedgerWriter) -> None:
    """The peer."""
    for _ in range(BATCHES):
        writer.append_batch(BATCH)


def append_one_by_one(writer: LedgerWriter) -> None:
    """The peer."""
    for _ in range(SINGLES):
        for payload in BATCH:
            writer.append(payload)
