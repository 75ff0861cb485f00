"""Planning a scan of 100,000 ledgers over a store that answers each request after 30 ms: seconds, and peak memory.

It is planned twice: the second plan finds on disk what the first has read. The store lies in the memory of the process
that plans, which is measured before and not counted. The scan's first and last task are read, to show that what was
planned is right.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from uuid import UUID

from entries import pip17_object
from tiers import MODIFIED_AT, MemoryDriver, Names

from benchmarks.many_objects import LISTED_AT_ONCE, REQUEST_S
from benchmarks.material import message_entries
from benchmarks.measure import Result
from benchmarks.memory import forget_peak, peak
from offload_core.format.messages.compression import Compression
from offload_core.metadata.catalogue.catalogue_cache import FOLDER_VARIABLE
from offload_core.reading.scan import read_task
from offload_core.storage.tier import Tier
from offload_hooks import hookimpl
from offload_hooks.values import DriverDescription, ListedObject, ObjectStat, WholeObject
from pulsar_offload import TierReader, scan

LEDGERS = 100_000


def run(folder: Path) -> Iterator[Result]:
    """Seconds and peak memory of each plan, by a process of its own."""
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        for name, limit_s in (("first", 20), ("second", 3)):
            code = "from benchmarks.planning import work; work()"
            environment = os.environ | {FOLDER_VARIABLE: str(Path(cache).resolve())}
            printed = subprocess.run(
                [sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, env=environment
            ).stdout
            seconds, processor_s, used, requests, tasks = json.loads(printed)
            name = f"{name} plan of {LEDGERS:,} ledgers, {REQUEST_S * 1000:.0f} ms a request"
            ours = (
                f"{seconds:.1f} s, {processor_s:.1f} s of the processor, {used / 2**20:.0f} MiB, "
                f"{requests:,} requests, {tasks:,} tasks"
            )
            yield Result(name=f"{name}: s", ours=ours, peer="", ratio=seconds, limit=limit_s, at_most=True)
            yield Result(name=f"{name}: GiB", ours=ours, peer="", ratio=used / 2**30, limit=1, at_most=True)


def work() -> None:
    """Plan; print the seconds, those of the processor, the bytes above what the store took, the requests, the tasks."""
    driver = SlowDriver()
    with TierReader(Tier(driver), catalogue_cache=True) as tier:
        before = forget_peak()
        began, processor_began = time.perf_counter(), time.process_time()
        reading = scan(tier, task_bytes=1 << 20, isolation="uncommitted")
        seconds, processor_s = time.perf_counter() - began, time.process_time() - processor_began
        used = peak() - before
        requests = driver.requests
        expected = len(reading.tasks[0].extents) * driver.messages
        for task in (reading.tasks[0], reading.tasks[-1]):
            rows = sum(batch.num_rows for batch in read_task(tier.store, task, reading.options))
            if rows != len(task.extents) * driver.messages:
                raise AssertionError(f"{rows} messages instead of {expected}")
    print(json.dumps([seconds, processor_s, used, requests, len(reading.tasks)]))


class SlowDriver(MemoryDriver):
    """Ledgers in memory, all of the same bytes; each request takes a while."""

    def __init__(self, ledgers: int = LEDGERS) -> None:
        entries = message_entries(100, 10, Compression.NONE)[:4]
        written = pip17_object(entries)
        self.messages = 10 * len(entries)
        objects = {}
        for number in range(ledgers):
            uuid = UUID(bytes=sha256(str(number).encode()).digest()[:16])
            key = replace(written.key, uuid=uuid, ledger_id=number)
            objects[key.data_key] = written.data
            objects[key.index_key] = written.index
        super().__init__(objects, metadata=Names().as_metadata("data"))
        self._listed = [
            ListedObject(key=key, size_bytes=len(data), modified_at=MODIFIED_AT, version="1")
            for key, data in sorted(objects.items())
        ]
        self._keys = sorted(objects)
        self.requests = 0

    @hookimpl
    def describe(self) -> DriverDescription:
        """As an object store."""
        described = super().describe()
        return replace(described, capabilities=replace(described.capabilities, lists_from_any_key=True))

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> object:
        """Bytes of an object."""
        self._wait()
        return super().read_range(key, offset, length)

    @hookimpl
    def read_object(self, key: str) -> WholeObject:
        """An object with its stat, as S3 answers both."""
        return WholeObject(stat=self.stat(key), data=self.objects[key])

    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        """What is known of an object."""
        self._wait()
        return replace(super().stat(key), version="1")

    @hookimpl
    def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """The objects, many with each request."""
        at = bisect_right(self._keys, max(prefix, start_after))
        for begin in range(at, len(self._listed), LISTED_AT_ONCE):
            self._wait()
            yield from self._listed[begin : begin + LISTED_AT_ONCE]

    def _wait(self) -> None:
        self.requests += 1
        time.sleep(REQUEST_S)
