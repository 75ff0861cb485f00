"""`offload ls` and `offload du` of a million objects, behind a driver that answers each request after 30 ms.

What is listed by topic and by ledger goes through a sort; what the store itself takes is measured before and not
counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.many_objects import REQUEST_S, Many, ManyObjects
from benchmarks.measure import Result
from benchmarks.memory import forget_peak, peak
from offload_core.maintenance.inventory import Row, RowLevel, Spool, measure, rows_of
from offload_core.metadata.catalogue.survey import LedgerSurvey
from offload_core.storage.tier import Tier

MANY = Many()


def run(folder: Path) -> Iterator[Result]:
    """Seconds and GiB of each."""
    del folder
    for what in WORK:
        code = f"from benchmarks.listing import work; work({what!r})"
        printed = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout
        seconds, used, requests = json.loads(printed)
        name = f"{what} of {MANY.objects:,} objects"
        ours = f"{seconds:.0f} s, {used / 2**20:.0f} MiB, {requests:,} requests of {REQUEST_S * 1000:.0f} ms"
        limit = 900 * MANY.objects / 1e6
        yield Result(name=f"{name}: s", ours=ours, peer="", ratio=seconds, limit=limit, at_most=True)
        yield Result(name=f"{name}: GiB", ours=ours, peer="", ratio=used / 2**30, limit=2, at_most=True)


def work(what: str) -> None:
    """List; print the seconds, the bytes above what the store took, and the requests."""
    driver = ManyObjects(MANY)
    tier = Tier(driver)
    before = forget_peak()
    began = time.perf_counter()
    WORK[what](tier)
    print(json.dumps([time.perf_counter() - began, peak() - before, driver.requests]))


def _list(tier: Tier) -> None:
    with LedgerSurvey() as survey:
        survey.fill(tier)
        for level, expected in ((RowLevel.TOPIC, MANY.topics), (RowLevel.LEDGER, MANY.ledgers)):
            with Spool[Row]() as rows:
                for row in rows_of(survey.ledgers(), level):
                    rows.add(row, row.data_bytes)
                if sum(1 for _ in rows.sorted(descending=True)) != expected:
                    raise AssertionError(f"not all {level.value}s are listed")


def _measure(tier: Tier) -> None:
    usage = measure(tier, now=datetime.now(UTC))
    if usage.objects[()] != MANY.objects:
        raise AssertionError("not all objects are counted")


WORK: dict[str, Callable[[Tier], None]] = {"ls": _list, "du": _measure}
