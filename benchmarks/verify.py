"""Verifying: every byte of a tier against a scan of its messages with checksums, and the metadata of many objects.

The objects of the first have checksums beside them, which are compared as well, and then alone. The second are a
million, behind a driver that answers each request after 30 ms, without records and with those of 1,000 topics; what the
store takes is measured before and not counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from entries import pip17_object
from tiers import lay_out

from benchmarks.many_objects import REQUEST_S, Many, ManyObjects, write_records
from benchmarks.material import message_entries
from benchmarks.measure import Result, one_core, seconds_side_by_side
from benchmarks.memory import forget_peak, peak
from offload_core.format.messages.compression import Compression
from offload_core.maintenance.verify import Sealing, Verification
from offload_core.metadata.catalogue import open_records
from offload_core.storage.executors import ThreadExecutor
from offload_core.storage.tier import Tier
from offload_core.writing.audit import LoggedChanges
from pulsar_offload import TierReader, open_tier, scan

LEDGER_BYTES = 64 << 20
LEDGERS = 3
MANY = Many()

CASES = (
    (1024, 100, Compression.NONE),
    (1024, 100, Compression.LZ4),
    (100, 100, Compression.ZSTD),
    (1024, 1, Compression.NONE),
)


def run(folder: Path) -> Iterator[Result]:
    """A ratio for each kind of messages: of the seconds of a scan to those of a verification, one thread each."""
    with one_core():
        for size, per_batch, compression in CASES:
            yield from _deep(folder, size, per_batch, compression)
    yield from _metadata(folder)


def _deep(folder: Path, size: int, per_batch: int, compression: Compression) -> Iterator[Result]:
    root = folder / f"verify-{size}-{per_batch}-{compression.name}"
    entries = message_entries(size, per_batch, compression)
    repeated = LEDGER_BYTES // sum(map(len, entries)) + 1
    written = pip17_object(entries * repeated, max_block_bytes=16 << 20)
    for number in range(LEDGERS):
        lay_out(root, replace(written, key=replace(written.key, ledger_id=number)), attempt=number)
    total = LEDGERS * len(written.data)
    batch = f"{per_batch} per batch" if per_batch > 1 else "not batched"
    messages = f"messages of {size:,} B, {batch}, {compression.name}"
    with open_tier(root) as tier:
        _verify(tier, sealing=Sealing(tier.store, LoggedChanges()))
        for how, by_checksums in (("every byte", False), ("by checksums", True)):
            ours, peer, ratio = seconds_side_by_side(
                partial(_verify, tier, by_checksums=by_checksums), partial(_scan, tier), rounds=5
            )
            yield Result(
                name=f"{how}, {messages}",
                ours=f"{total / ours / 1e6:,.0f} MB/s",
                peer=f"scan of messages: {total / peer / 1e6:,.0f} MB/s",
                ratio=ratio,
                limit=0.8,
            )


def _verify(tier: TierReader, **options: Any) -> None:
    if list(Verification(tier.store, deep=True, executor=ThreadExecutor(1), **options)):
        raise AssertionError("what is sound is found to be wrong")


def _scan(tier: TierReader) -> int:
    return sum(batch.num_rows for batch in scan(tier))


def _metadata(folder: Path) -> Iterator[Result]:
    code = f"from benchmarks.verify import work; work({str(folder)!r})"
    for records in (False, True):
        asked = [sys.executable, "-c", code.replace(")", f", records={records})")]
        printed = subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout
        seconds, used, requests = json.loads(printed)
        name = f"metadata of {MANY.objects:,} objects" + (f", {MANY.topics:,} records" if records else "")
        ours = f"{seconds:.0f} s, {used / 2**20:.0f} MiB, {requests:,} requests of {REQUEST_S * 1000:.0f} ms"
        limit = 900 * MANY.objects / 1e6
        yield Result(name=f"{name}: s", ours=ours, peer="", ratio=seconds, limit=limit, at_most=True)
        yield Result(name=f"{name}: GiB", ours=ours, peer="", ratio=used / 2**30, limit=2, at_most=True)


def work(folder: str, *, records: bool) -> None:
    """Verify the metadata; print the seconds, the bytes above what the store took, and the requests."""
    driver = ManyObjects(MANY)
    tier = Tier(driver)
    opened = None
    if records:
        file = Path(folder) / "records.db"
        file.unlink(missing_ok=True)
        opened = partial(open_records, write_records(file, MANY, driver), tier, {})
    before = forget_peak()
    began = time.perf_counter()
    verification = Verification(tier, records=opened)
    findings = sum(1 for _ in verification)
    seconds = time.perf_counter() - began
    summary = verification.summary
    if findings or (summary.objects, summary.ledgers) != (MANY.ledgers, MANY.ledgers if records else 0):
        raise AssertionError(f"{summary}")
    print(json.dumps([seconds, peak() - before, driver.requests]))
