"""Peak memory of one scan task over a ledger of 1 GiB, above the idle worker, in blocks.

The worker is a process of its own that has read a small ledger before, so that it has all its code and kernels.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.material import message_entries, write_ledger
from benchmarks.measure import Result
from offload_core.format.messages.compression import Compression
from pulsar_offload import open_tier, scan

LEDGER_BYTES = 1 << 30
CASES = ((5 << 20, Compression.NONE), (64 << 20, Compression.NONE), (64 << 20, Compression.LZ4))


def run(folder: Path) -> Iterator[Result]:
    """One result per block size and compression."""
    place = folder / "memory"
    for block_bytes, compression in CASES:
        shutil.rmtree(place, ignore_errors=True)
        entries = message_entries(1024, 100, compression)
        write_ledger(place / "small", entries, 16 << 20, block_bytes)
        write_ledger(place / "large", entries, LEDGER_BYTES, block_bytes)
        code = f"from benchmarks.memory import work; work({str(place)!r})"
        printed = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout
        used, rows = json.loads(printed)
        shutil.rmtree(place)
        yield Result(
            name=f"1 task, 1 GiB ledger, blocks of {block_bytes >> 20} MiB, {compression.name}: blocks",
            ours=f"{used / 2**20:.0f} MiB above the idle worker, {rows / 1e6:.2f} M messages",
            peer=f"block {block_bytes >> 20} MiB",
            ratio=used / block_bytes,
            limit=4.0,
            at_most=True,
        )


def work(place: str) -> None:
    """In the worker: read the small ledger, then the large one; print the bytes above idle, and the rows."""
    read(Path(place) / "small")
    idle = forget_peak()
    rows = read(Path(place) / "large")
    print(json.dumps([peak() - idle, rows]))


def read(folder: Path) -> int:
    """Scan everything as one task; the number of messages."""
    with open_tier(folder) as tier:
        planned = scan(tier, task_bytes=2 * LEDGER_BYTES, isolation="uncommitted")
        if len(planned.tasks) != 1:
            raise AssertionError(f"{len(planned.tasks)} tasks")
        return sum(batch.num_rows for batch in planned)


def forget_peak() -> int:
    """Start counting the peak anew where the system can; resident bytes now."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")
    return int(psutil.Process().memory_info().rss)


def peak() -> int:
    """The most resident bytes since `forget_peak` (or ever, where the system cannot start anew)."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
