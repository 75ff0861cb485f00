"""The embedded hot tier against plain files: the same entries through a buffer, with the same schedule of fsyncs.

Entries of 1 KiB to one disk; either is synced every 100 ms by a thread of its own (`interval`). The peer writes a
length before each entry and no more: no checksum, no index, no lock, and what is in its buffer is lost by a kill, where
ours keeps what it has acknowledged. One by one is one thread that waits for each entry's id. Reading is by batches of
1 MiB, each entry checked, against `read` of the same bytes, which looks at none.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.measure import Result, seconds_side_by_side
from offload_core.storage.hot import FileLedgerStore

ENTRY_BYTES = 1024
BATCH = [random.Random(i).randbytes(ENTRY_BYTES) for i in range(1000)]
BATCHES = 256
SINGLES = 64
INTERVAL_S = 0.1
ROUNDS = 5
_LENGTH = struct.Struct(">I")


def run(folder: Path) -> Iterator[Result]:
    """Appending by batches and one by one, with targets in MB/s; reading."""
    place = folder / "hot"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    store = FileLedgerStore(place / "ledgers", sync="interval", sync_interval_s=INTERVAL_S)
    cases: tuple[tuple[str, Callable[[FileLedgerStore], int], int, float], ...] = (
        ("batches of 1,000", append_batches, BATCHES, 100.0),
        ("one by one", append_one_by_one, SINGLES, 40.0),
    )
    for name, append, batches, target in cases:
        ours, peer, ratio = seconds_side_by_side(
            lambda append=append: store.delete(append(store)),
            lambda batches=batches: write_plain(place / "plain", batches),
            rounds=ROUNDS,
        )
        rates = [batches * len(BATCH) * ENTRY_BYTES / 1e6 / seconds for seconds in (ours, peer)]
        shown = f"{rates[0]:.0f} MB/s"
        yield Result(name=f"append, {name}, MB/s", ours=shown, peer="", ratio=rates[0], limit=target)
        yield Result(name=f"append, {name}", ours=shown, peer=f"plain file {rates[1]:.0f} MB/s", ratio=ratio)
    yield reading(store, place)
    store.close()
    shutil.rmtree(place)


def append_batches(store: FileLedgerStore) -> int:
    """A ledger of `BATCHES` batches, sealed; its id."""
    writer = store.create({})
    for _ in range(BATCHES):
        writer.append_batch(BATCH)
    writer.close()
    return writer.ledger_id


def append_one_by_one(store: FileLedgerStore) -> int:
    """A ledger of `SINGLES` thousand entries, one by one, sealed; its id."""
    writer = store.create({})
    for _ in range(SINGLES):
        for payload in BATCH:
            writer.append(payload)
    writer.close()
    return writer.ledger_id


def write_plain(path: Path, batches: int) -> None:
    """The peer."""
    done = threading.Event()
    with path.open("wb", buffering=1 << 20) as file:

        def sync() -> None:
            while not done.wait(INTERVAL_S):
                os.fdatasync(file.fileno())

        thread = threading.Thread(target=sync)
        thread.start()
        for _ in range(batches):
            for payload in BATCH:
                file.write(_LENGTH.pack(len(payload)))
                file.write(payload)
        file.flush()
        done.set()
        thread.join()
        os.fdatasync(file.fileno())
    path.unlink()


def reading(store: FileLedgerStore, place: Path) -> Result:
    """All entries of a sealed ledger, which the system has in memory."""
    ledger_id = append_batches(store)
    count = BATCHES * len(BATCH)
    size = count * ENTRY_BYTES
    ours, peer, ratio = seconds_side_by_side(
        lambda: read_all(store, ledger_id, count),
        lambda: read_plain(place / "ledgers" / f"{ledger_id}.ledger"),
        rounds=ROUNDS,
    )
    return Result(
        name="read a sealed ledger",
        ours=f"{size / 1e9 / ours:.2f} GB/s",
        peer=f"read {size / 1e9 / peer:.2f} GB/s",
        ratio=ratio,
    )


def read_all(store: FileLedgerStore, ledger_id: int, count: int) -> None:
    """Ours."""
    reader, read = store.open(ledger_id), 0
    while read < count:
        read += len(reader.read(read, count - 1))
    reader.close()


def read_plain(path: Path) -> None:
    """The peer."""
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
