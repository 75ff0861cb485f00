"""Checks that measure: bytes a second up and down, time per request, and what others left behind."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from offload_core.doctor.advice import REPORT_DRIVER, stale_uploads_advice
from offload_core.doctor.findings import Finding, failed, ok, skipped, warning
from offload_core.doctor.probe import NAME, Probe
from offload_core.doctor.reading import subject_of
from offload_core.doctor.writing import METADATA
from offload_hooks import ByteRange

DEFAULT_BYTES = 8 << 20
BLOCK_BYTES = 4 << 20
"""The blocks of the object that is uploaded, where the store's limits allow."""

LATENCY_REQUESTS = 15
SMALL_BYTES = 64

ABANDONED = timedelta(days=7)
"""An upload that is older is taken for abandoned."""

FORGOTTEN = timedelta(hours=1)
"""Objects of another doctor that are older are taken for left behind."""

_COUNTED = 10_000


def throughput(probe: Probe, size_bytes: int) -> Finding:
    """Bytes a second up, one part after another, and down, as a scan reads: by ranges, several on their way."""
    key, limits = probe.key("throughput"), probe.capabilities
    block = max(
        limits.min_block_bytes, min(BLOCK_BYTES, limits.max_block_bytes), -(-size_bytes // limits.max_blocks)
    )
    upload = probe.begin_data(key, METADATA | {"role": "data"})
    up_s = 0.0
    receipts = []
    for number, (offset, length) in enumerate(_pieces(size_bytes, block), start=1):
        data = probe.sample.at(offset, length)
        begun = time.perf_counter()
        receipts.append(probe.write_block(upload, number, offset, data))
        up_s += time.perf_counter() - begun
    begun = time.perf_counter()
    probe.commit_data(upload, receipts, create_only=False)
    up_s += time.perf_counter() - begun
    down_s, is_same = _read_down(probe, key, size_bytes, is_sample=True)
    if not is_same:
        return failed("other bytes came back than were stored", REPORT_DRIVER)
    return ok(f"up {_rate(size_bytes, up_s)}, down {_rate(size_bytes, down_s)} ({len(receipts)} parts)")


def download(probe: Probe, size_bytes: int) -> Finding:
    """Bytes a second down, of the object that was there."""
    subject = subject_of(probe)
    size_bytes = min(size_bytes, subject.size_bytes)
    down_s, _ = _read_down(probe, subject.key, size_bytes, is_sample=False)
    return ok(f"down {_rate(size_bytes, down_s)}")


def latency(probe: Probe) -> Finding:
    """The time of one small read."""
    subject = subject_of(probe)
    length = min(SMALL_BYTES, subject.size_bytes)
    times = []
    for i in range(LATENCY_REQUESTS):
        offset = (subject.size_bytes - length) * i // LATENCY_REQUESTS
        begun = time.perf_counter()
        probe.read_range(subject.key, offset, length)
        times.append(time.perf_counter() - begun)
    median, slowest = statistics.median(times), max(times)
    return ok(f"median {median * 1e3:.1f} ms, slowest {slowest * 1e3:.1f} ms of {LATENCY_REQUESTS} requests")


def leftovers(probe: Probe) -> Finding:
    """Uploads and objects of doctors that were left behind long ago, by whomever."""
    now = datetime.now(UTC)
    uploads = []
    if probe.capabilities.stale_uploads:
        found = probe.list_uploads("", limit=_COUNTED)
        uploads = [each for each in found if now - each.started_at > ABANDONED]
    listed = probe.list_objects(NAME, limit=_COUNTED)
    forgotten = [
        each
        for each in listed
        if now - each.modified_at > FORGOTTEN and not each.key.startswith(probe.prefix)
    ]
    seen, fixes = [], []
    if uploads:
        oldest = min(each.started_at for each in uploads)
        seen.append(
            f"{len(uploads):,} uploads older than a week, the oldest of {oldest:%Y-%m-%d}; they cost room"
        )
        fixes.append(stale_uploads_advice(probe.description.name))
    if forgotten:
        seen.append(f"{len(forgotten):,} objects that an earlier doctor left")
        fixes.append(f"Delete the objects whose keys begin with {NAME!r}.")
    if seen:
        return warning("; ".join(seen), " ".join(fixes))
    if not probe.capabilities.stale_uploads:
        return skipped("the driver declares no stale_uploads to list; no objects of an earlier doctor")
    return ok("no uploads older than a week, no objects of an earlier doctor")


def _pieces(size_bytes: int, piece_bytes: int) -> Iterator[tuple[int, int]]:
    for offset in range(0, size_bytes, piece_bytes):
        yield offset, min(piece_bytes, size_bytes - offset)


def _read_down(probe: Probe, key: str, size_bytes: int, *, is_sample: bool) -> tuple[float, bool]:
    """How long it takes to read so many bytes, and whether they are those of the sample."""
    seconds, is_same = 0.0, True
    limits = probe.capabilities
    pieces = list(_pieces(size_bytes, limits.range_bytes))
    at_once = max(limits.ranges_ahead, 1)
    for i in range(0, len(pieces), at_once):
        ranges = [
            ByteRange(key=key, offset=offset, length=length) for offset, length in pieces[i : i + at_once]
        ]
        begun = time.perf_counter()
        read = probe.read_ranges(ranges)
        seconds += time.perf_counter() - begun
        if is_sample:
            same = (
                data == probe.sample.at(each.offset, each.length)
                for data, each in zip(read, ranges, strict=True)
            )
            is_same = is_same and all(same)
    return seconds, is_same


def _rate(size_bytes: int, seconds: float) -> str:
    return f"{size_bytes / max(seconds, 1e-6) / 1e6:,.0f} MB/s"
