"""Collecting garbage of a tier of a million objects, of which every tenth pair is an orphan, by its records.

The store answers each request after 30 ms; what it and the records take is measured before and not counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.many_objects import REQUEST_S, Many, ManyObjects, write_records
from benchmarks.measure import Result
from benchmarks.memory import forget_peak, peak
from offload_core.maintenance.gc import Collection
from offload_core.metadata.catalogue import open_records
from offload_core.storage.tier import Tier
from offload_core.writing.audit import FileAuditLog

MANY = Many()
EVERY = 10
"""Of so many pairs one is an orphan."""


def run(folder: Path) -> Iterator[Result]:
    """Seconds and peak memory of a report, and of a collection, each by a process of its own."""
    for is_dry in (True, False):
        code = f"from benchmarks.gc import work; work({str(folder)!r}, is_dry={is_dry})"
        printed = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout
        seconds, used, requests, garbage = json.loads(printed)
        done = "found" if is_dry else "found and deleted"
        name = f"{MANY.objects:,} objects, {MANY.topics:,} records: {garbage:,} orphans {done}"
        ours = f"{seconds:.0f} s, {used / 2**20:.0f} MiB, {requests:,} requests of {REQUEST_S * 1000:.0f} ms"
        limit = 900 * MANY.objects / 1e6
        yield Result(name=f"{name}: s", ours=ours, peer="", ratio=seconds, limit=limit, at_most=True)
        yield Result(name=f"{name}: GiB", ours=ours, peer="", ratio=used / 2**30, limit=2, at_most=True)


def work(folder: str, *, is_dry: bool) -> None:
    """Collect; print the seconds, the bytes above what the store took, the requests, and how much garbage there was."""
    driver, place = ManyObjects(MANY), Path(folder)
    tier = Tier(driver)
    for name in ("records.db", "audit.jsonl"):
        (place / name).unlink(missing_ok=True)
    forgotten = range(EVERY // 2, MANY.ledgers, EVERY)
    url = write_records(place / "records.db", MANY, driver, forgotten=forgotten)
    before = forget_peak()
    began = time.perf_counter()
    collection = Collection(tier, partial(open_records, url, tier, {}))
    outcomes = collection.report() if is_dry else collection.collect(FileAuditLog(place / "audit.jsonl"))
    count = sum(each.is_deleted is not is_dry for each in outcomes)
    seconds = time.perf_counter() - began
    if count != len(forgotten) or len(driver.deleted) != (0 if is_dry else 2 * count):
        raise AssertionError(f"{collection.summary}")
    print(json.dumps([seconds, peak() - before, driver.requests, count]))
