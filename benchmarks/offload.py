"""Offload of sealed ledgers, from the embedded hot tier to an S3 service on this machine.

Against Pulsar's offloader in a warm JVM: a ledger of 1 GiB of entries of 1 KiB. Ours is read from its files, every
entry checked; Pulsar's offloader is handed the same entries from memory. The service shares all cores with either. Both
also to an endpoint that takes bytes and forgets them, so that the service is not what limits them.

Appending meanwhile: one thread appends entries of 1 KiB at a fixed rate, one by one or what came in a millisecond at
once, a second one offloads ledger after ledger, in the same process. A call's time counts from when its first entry was
due, so that one that waits delays those behind it. The uploads are in this process, or in one of their own, or there
at a pace of four times what is appended, as a policy's rate limit makes it.
"""

from __future__ import annotations

import itertools
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
from oracle import MANAGED_LEDGER, Oracle
from servers.versitygw import Versitygw

from benchmarks.java import PARTS, Ledger, against_java, open_tier_at, tier_for_java
from benchmarks.measure import Result
from benchmarks.sink import running_sink
from benchmarks.stores import in_memory_where_it_can_be
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import (
    MemoryBudget,
    PluginSpec,
    Tier,
    TierSpec,
    UploadProcess,
    open_with_upload_process,
)
from offload_core.writing.offload import LedgerOffloader

ENTRY_BYTES = 1024
LEDGER_BYTES = 1 << 30
BLOCK_BYTES = 64 << 20
BATCH = 1024
TARGET = 3.0
OFFERED_BYTES_PER_S = 30e6
ENTRIES_PER_MS = 29
APPEND_S = 15.0
PACE_BYTES_PER_S = 120e6
MOST_TIMES_SLOWER = 1.5


def run(folder: Path) -> Iterator[Result]:
    """Offload against Java's, with and without signatures of the bytes; appends while an offload runs."""
    place = in_memory_where_it_can_be(folder)
    store = FileLedgerStore(folder / "offload-hot", sync="interval")
    try:
        with Versitygw().start(place / "service") as server, Oracle(place) as oracle:
            server.make_bucket("bench")
            ledger_id = filled(store)
            with running_sink() as sink:
                for where, service in (("a service", server), ("a sink that costs nothing", sink)):
                    for signing in ("always", "never"):
                        with open_tier_at(service, signing) as tier:
                            yield offloading(
                                oracle, service, store, tier, ledger_id, f"{signing}, to {where}"
                            )
            for name, entries in (("one by one", 1), ("a batch each ms", ENTRIES_PER_MS)):
                yield from appending(store, server, ledger_id, name, entries)
    finally:
        store.close()
        shutil.rmtree(place)
        shutil.rmtree(folder / "offload-hot")


def filled(store: FileLedgerStore) -> int:
    """A sealed ledger of `LEDGER_BYTES`; its id."""
    writer = store.create({})
    values = memoryview(Ledger.of(ENTRY_BYTES, BATCH).values)
    payloads = [values[i * ENTRY_BYTES : (i + 1) * ENTRY_BYTES] for i in range(BATCH)]
    for _ in range(LEDGER_BYTES // (ENTRY_BYTES * BATCH)):
        writer.append_batch(payloads)
    writer.close()
    return writer.ledger_id


def offload(store: FileLedgerStore, tier: Tier, ledger_id: int) -> None:
    """One offload of the ledger, which is deleted again."""
    offloader = LedgerOffloader(
        tier,
        max_block_bytes=BLOCK_BYTES,
        budget=MemoryBudget((PARTS + 1) * BLOCK_BYTES),
        parts_in_flight=PARTS,
    )
    uuid, reader = uuid4(), store.open(ledger_id)
    try:
        offloader.offload(reader, uuid, {"managedledgername": MANAGED_LEDGER})
    finally:
        reader.close()
    offloader.delete_offloaded(ledger_id, uuid)


def offloading(
    oracle: Oracle, server: Versitygw, store: FileLedgerStore, tier: Tier, ledger_id: int, signing: str
) -> Result:
    """Ours against Pulsar's, which always signs."""
    count = LEDGER_BYTES // ENTRY_BYTES
    numbers = itertools.count(1)
    request = {
        "tier": tier_for_java(server),
        "entries": str(Ledger.of(ENTRY_BYTES, count).saved(oracle)),
        "count": count,
        "ledger": ledger_id,
        "managed_ledger": MANAGED_LEDGER,
    }
    return against_java(
        f"a ledger of 1 GiB, entries of 1 KiB, {PARTS} parts at once, signed: {signing}",
        lambda: offload(store, tier, ledger_id),
        lambda: oracle.ask("offload", uuid=str(UUID(int=next(numbers))), **request),
        count,
        LEDGER_BYTES,
        TARGET,
        warm_rounds=1,
        rounds=3,
    )


def appending(
    store: FileLedgerStore, server: Versitygw, ledger_id: int, name: str, entries: int
) -> Iterator[Result]:
    """The 99th percentile of appends at a fixed rate, while offloads run one after another, over that without."""
    append_latencies(store, entries)  # the first appends of a process are not counted
    with open_tier_at(server, "never") as tier:
        spec = tier.spec
        assert spec is not None
        pace = PluginSpec(name="rate-limit", options={"bytes_per_second": PACE_BYTES_PER_S})
        ways: tuple[tuple[str, Callable[[], Tier]], ...] = (
            ("in this process", lambda: Tier.open(spec)),
            ("uploads in their own process", lambda: by_a_process(spec)),
            (
                f"the same at {PACE_BYTES_PER_S / 1e6:.0f} MB/s",
                lambda: by_a_process(replace(spec, layers=(*spec.layers, pace))),
            ),
        )
    for way, opened in ways:
        alone = append_latencies(store, entries)
        with opened() as tier:
            beside = latencies_beside_offloads(store, tier, ledger_id, entries)
        before, meanwhile = (float(np.percentile(each, 99)) for each in (alone, beside))
        yield Result(
            name=f"append at {OFFERED_BYTES_PER_S / 1e6:.0f} MB/s, {name}, p99, while an offload runs, {way}",
            ours=f"{meanwhile * 1e3:.2f} ms",
            peer=f"without {before * 1e3:.2f} ms",
            ratio=meanwhile / before,
            limit=MOST_TIMES_SLOWER,
            at_most=True,
        )


def by_a_process(spec: TierSpec) -> Tier:
    """A tier that a process of its own uploads to."""
    return open_with_upload_process(spec, UploadProcess(spec))


def latencies_beside_offloads(store: FileLedgerStore, tier: Tier, ledger_id: int, entries: int) -> np.ndarray:
    """As `append_latencies`, while offloads run."""
    done = threading.Event()

    def offload_on() -> None:
        while not done.is_set():
            offload(store, tier, ledger_id)

    thread = threading.Thread(target=offload_on)
    thread.start()
    try:
        return append_latencies(store, entries)
    finally:
        done.set()
        thread.join()


def append_latencies(store: FileLedgerStore, entries: int) -> np.ndarray:
    """Seconds (float64) from when each call, of so many entries, was due until it was acknowledged."""
    interval = entries * ENTRY_BYTES / OFFERED_BYTES_PER_S
    batch = [bytes(ENTRY_BYTES)] * entries
    latencies = np.empty(int(APPEND_S / interval))
    writer = store.create({})
    began = time.perf_counter()
    for i in range(len(latencies)):
        due = began + i * interval
        if (early := due - time.perf_counter()) > 0:
            time.sleep(early)
        if entries == 1:
            writer.append(batch[0])
        else:
            writer.append_batch(batch)
        latencies[i] = time.perf_counter() - due
    writer.close()
    store.delete(writer.ledger_id)
    return latencies
