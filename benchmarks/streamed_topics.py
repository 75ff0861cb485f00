"""Appends to topics that are streamed: what the appends pay, how far behind the tier is, and many topics at once.

One thread appends 30 MB/s of 1 KiB entries, ten in a call, to a managed ledger over the embedded store; another process
is an S3 service on this machine. Rounds with streaming off and on come in turn. The slow store takes a twentieth of
what is appended. Lag is what was acknowledged and is in no complete segment yet.
"""

from __future__ import annotations

import random
import shutil
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from servers.versitygw import Versitygw

from benchmarks.measure import Result
from benchmarks.stores import MIB, in_memory_where_it_can_be
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import segments_of
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import Tier, open_store
from offload_core.writing.managed_ledger import (
    Environment,
    HotLedgers,
    ManagedLedger,
    StreamingPool,
    StreamingSettings,
    open_managed_ledger,
)
from offload_hooks.testing import MemoryLedgers, MemoryLedgerStore, MemoryMetadataStore

ENTRY_BYTES = 1024
CALL = 10
BYTES_PER_S = 30_000_000
ROUND_S = 5.0
ROUNDS = 3
SETTINGS = StreamingSettings(max_segment_bytes=64 * MIB, max_segment_age_s=10, block_bytes=8 * MIB)
MOST_TIMES_SLOWER = 1.5
READABLE_WITHIN_S = 5.0
TOPICS = 10_000
TRICKLE = 20
AGE_S = 30.0
BUDGET_BYTES = 256 * MIB
BUFFER_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of appends: the calls' times in s, the most that was not in the tier, and until it was."""

    calls_s: np.ndarray
    most_lag_bytes: int
    completed_s: float

    @property
    def p99_s(self) -> float:
        """Of a hundred calls, the second slowest."""
        return float(np.quantile(self.calls_s, 0.99))


def run(folder: Path) -> Iterator[Result]:
    """One busy topic, with a store that keeps up and one that does not; and many with a trickle each."""
    place = in_memory_where_it_can_be(folder)
    try:
        with Versitygw().start(place / "service") as server:
            server.make_bucket("bench")
            opened = partial(
                open_store,
                "s3://bench/streamed",
                endpoint_url=server.endpoint,
                region=server.region,
                access_key_id=server.root.access_key,
                secret_access_key=server.root.secret_key,
                payload_signing="never",
                upload_niceness=10,
            )
            with opened() as tier:
                yield from compare("versitygw", folder, tier, is_slow=False)
            slow = {"bytes_per_second": BYTES_PER_S // 20}
            with opened(layers=[("rate-limit", slow)]) as tier:
                yield from compare("versitygw, 20 times too slow", folder, tier, is_slow=True)
        yield from many_topics(place)
    finally:
        shutil.rmtree(place)


def compare(name: str, folder: Path, tier: Tier, *, is_slow: bool) -> Iterator[Result]:
    """Rounds off and on in turn; with a store that keeps up, also how far behind it is."""
    with topic_over(folder, tier) as (topic, _):
        append_for(topic, 1.0)
        off, on = [], []
        for _ in range(ROUNDS):
            topic.set_streaming(None)
            off.append(append_for(topic, ROUND_S))
            topic.set_streaming(SETTINGS)
            if not is_slow:
                topic.complete_segment()
            on.append(append_for(topic, ROUND_S))
            if not is_slow:
                began = time.perf_counter()
                topic.complete_segment()
                on[-1] = Round(
                    calls_s=on[-1].calls_s,
                    most_lag_bytes=on[-1].most_lag_bytes,
                    completed_s=time.perf_counter() - began,
                )
        ours, theirs = (statistics.median(each.p99_s for each in rounds) for rounds in (on, off))
        yield Result(
            name=f"an append at 30 MB/s, streamed to {name}: p99",
            ours=f"{ours * 1e3:.2f} ms",
            peer=f"off {theirs * 1e3:.2f} ms",
            ratio=statistics.median(a.p99_s / b.p99_s for a, b in zip(on, off, strict=True)),
            limit=MOST_TIMES_SLOWER,
            at_most=True,
        )
        if not is_slow:
            completed = max(each.completed_s for each in on)
            yield Result(
                name="readable after its segment was closed by hand, s",
                ours=f"{completed:.2f} s",
                peer="",
                ratio=completed,
                limit=READABLE_WITHIN_S,
                at_most=True,
            )
            lag = max(each.most_lag_bytes for each in on) / SETTINGS.max_segment_bytes
            yield Result(
                name="lag at 30 MB/s, in segments of 64 MiB",
                ours=f"{lag * SETTINGS.max_segment_bytes / MIB:.0f} MiB",
                peer="",
                ratio=lag,
                limit=2,
                at_most=True,
            )


@contextmanager
def topic_over(folder: Path, tier: Tier) -> Iterator[tuple[ManagedLedger, StreamingPool]]:
    """A topic that is open, and its pool."""
    place = folder / "streamed"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, place)
        environment, pool = environment_of(stack, place, tier)
        topic = open_managed_ledger(environment, "acme/cold/persistent/orders")
        yield topic, pool
        topic.close()


def environment_of(stack: ExitStack, place: Path, tier: Tier) -> tuple[Environment, StreamingPool]:
    """Records and ledgers in a folder, and a pool."""
    hot = FileLedgerStore(place / "ledgers", sync="interval")
    stack.callback(hot.close)
    metadata = SqliteStore(f"sqlite:{place}/records.db", create=True)
    stack.callback(metadata.close)
    tiers = KnownTiers(tier)
    pool = stack.enter_context(StreamingPool(lambda _: nullcontext(tiers), budget_bytes=BUDGET_BYTES))
    records = ManagedLedgerRecords(metadata)
    return Environment(records=records, hot=HotLedgers(hot), streaming=pool), pool


def append_for(topic: ManagedLedger, seconds: float) -> Round:
    """Append at the pace; the time of each call."""
    payloads = [random.Random(i).randbytes(ENTRY_BYTES) for i in range(CALL)]
    gap_s = CALL * ENTRY_BYTES / BYTES_PER_S
    times = np.zeros(int(seconds / gap_s))
    began = time.perf_counter()
    most_lag = 0
    for i in range(len(times)):
        wait_s = began + i * gap_s - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        called = time.perf_counter()
        position = topic.add_entries(payloads)
        times[i] = time.perf_counter() - called
        if i % 100 == 0 and topic.is_streamed:
            end = topic.streaming_status.last_end
            if end is not None and end.ledger_id == position.ledger_id:
                most_lag = max(most_lag, (position.entry_id - end.entry_id) * ENTRY_BYTES)
    return Round(calls_s=times, most_lag_bytes=most_lag, completed_s=0.0)


def many_topics(folder: Path) -> Iterator[Result]:
    """Ten thousand topics with a few entries each, whose segments close by age, to a folder."""
    settings = replace(SETTINGS, max_segment_age_s=AGE_S)
    with ExitStack() as stack:
        tier = stack.enter_context(open_store(folder / "cold"))
        pool = stack.enter_context(
            StreamingPool(
                lambda _: nullcontext(KnownTiers(tier)), budget_bytes=BUDGET_BYTES, buffer_bytes=BUFFER_BYTES
            )
        )
        records = ManagedLedgerRecords(MemoryMetadataStore())
        hot = MemoryLedgerStore(MemoryLedgers())
        environment = Environment(records=records, hot=HotLedgers(hot), streaming=pool, cache_bytes=0)
        names = [f"acme/cold/persistent/topic-{i}" for i in range(TOPICS)]
        topics = [open_managed_ledger(environment, name) for name in names]
        payload = random.Random(0).randbytes(ENTRY_BYTES)
        most_taken = most_buffered = 0
        began, processor = time.perf_counter(), time.process_time()
        for topic in topics:
            topic.set_streaming(settings)
        for _ in range(TRICKLE):
            for topic in topics:
                topic.add_entry(payload)
        while sum(topic.streaming_status.completed for topic in topics) < TOPICS:
            most_taken = max(most_taken, pool.budget.taken_bytes)
            most_buffered = max(most_buffered, pool.buffer_budget.taken_bytes)
            time.sleep(0.1)
        seconds, processor = time.perf_counter() - began, time.process_time() - processor
        counts = [len(segments_of(topic.read_info())) for topic in topics]
        yield Result(
            name=f"{TOPICS:,} topics of {TRICKLE} KiB: memory of blocks and buffers, of the budgets",
            ours=f"{(most_taken + most_buffered) / MIB:.0f} MiB, {threading.active_count()} threads",
            peer="",
            ratio=max(most_taken / BUDGET_BYTES, most_buffered / BUFFER_BYTES),
            limit=1,
            at_most=True,
        )
        yield Result(
            name="objects of each topic, all closed by age",
            ours=f"{max(counts)}, after {seconds:.0f} s, of the processor {processor:.0f} s",
            peer="",
            ratio=max(counts),
            limit=1,
            at_most=True,
        )
        for topic in topics:
            topic.close()
