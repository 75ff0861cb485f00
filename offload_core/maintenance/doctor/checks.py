"""The checks of an examination: of reading, of writing, and those that measure.

Reading: the tier answers, listings are up to date and in order, ranges are exact; ranges are read of any object,
whether it was made here or was there before. Writing: an object comes back as it was, appears whole, is not
overwritten, and can be deleted. Measuring: bytes a second up and down, time per request, and what others left. Each
takes the `TierProbe` and answers with a `CheckFinding`. Later ones use what earlier ones made, under the keys here.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import islice
from typing import TypeVar
from uuid import uuid4

from offload_core.format.codec.object_format import CLUSTER_KEY, TOPIC_KEY
from offload_core.maintenance.doctor.results import (
    REPORT_DRIVER,
    CheckFinding,
    failed,
    ok,
    skipped,
    stale_uploads_advice,
    warning,
)
from offload_core.metadata.catalogue.summaries import count_text
from offload_core.storage.tier import Tier
from offload_hooks import BlockReceipt, ByteRange, ListedObject, ObjectStat, StaleUpload, Upload
from offload_hooks.errors import FormatError, ObjectExistsError, ObjectNotFoundError, RangeError

INDEX = "index"
INDEX_BYTES = 4096
DATA = "data"
LEAST_PART_BYTES = 64 << 10
LAST_PART_BYTES = 4097
SPARE = "spare"
CLOCK = "clock"

CLOCK_SKEW_S = 60
"""Requests that are signed for a time 15 minutes off are refused by S3; a clock that drifts is seen before."""

METADATA = {
    "s3managedledgeroffloaderformatversion": "1",
    TOPIC_KEY: "public/default/persistent/offload%2Fdoctor%C3%A9",
    CLUSTER_KEY: "offload-doctor",
}
"""User metadata that Pulsar stores with both objects of a ledger, besides their role; topics are percent-encoded."""

_NOT_KEPT = (
    "Pulsar and this program tell topics by it. Look for a proxy or gateway that drops or rewrites "
    "headers; if there is none: " + REPORT_DRIVER
)
_HALF = "Readers would see half of an object. " + REPORT_DRIVER
_STALE_STAT = "Turn off whatever caches answers of the store: a proxy, a gateway, an option of the driver."
_OVERWRITTEN = (
    "Two writers would overwrite each other. Upgrade the store to a version with conditional writes "
    "(S3: If-None-Match), or look for a proxy that drops the condition."
)


def data_bytes(probe: TierProbe) -> int:
    """The size of the data object."""
    return first_part_bytes(probe) + LAST_PART_BYTES


def first_part_bytes(probe: TierProbe) -> int:
    """The size of the data object's first part: the least that the store takes."""
    return max(probe.capabilities.min_block_bytes, LEAST_PART_BYTES)


def put(probe: TierProbe) -> CheckFinding:
    """A small object can be stored and read back."""
    key, data = probe.key(INDEX), probe.sample.at(0, INDEX_BYTES)
    stat = probe.write_index(key, data, METADATA | {"role": "index"})
    if stat.size_bytes != INDEX_BYTES:
        return failed(f"{INDEX_BYTES} bytes were stored, the answer says {stat.size_bytes}", REPORT_DRIVER)
    if probe.read_range(key, 0, INDEX_BYTES) != data:
        return failed(f"of {INDEX_BYTES} bytes that were stored, others came back", REPORT_DRIVER)
    return ok(f"{INDEX_BYTES} bytes stored and read back")


def metadata(probe: TierProbe) -> CheckFinding:
    """User metadata comes back with the small object."""
    return _metadata_finding(probe, INDEX, "index")


def multipart(probe: TierProbe) -> CheckFinding:
    """A data object takes two parts, the second before the first where the driver can."""
    upload = probe.begin_data(probe.key(DATA), METADATA | {"role": "data"})
    first = (1, 0, first_part_bytes(probe))
    last = (2, first_part_bytes(probe), LAST_PART_BYTES)
    in_order = probe.capabilities.ordered_parts
    for number, offset, length in (first, last) if in_order else (last, first):
        data = probe.sample.at(offset, length)
        probe.receipts.append(probe.write_block(upload, number, offset, data))
    order = "in order, as the driver asks for" if in_order else "the second first"
    return ok(f"2 parts of {first[2]:,} and {last[2]:,} bytes stored, {order}")


def invisible(probe: TierProbe) -> CheckFinding:
    """No object exists before the commit."""
    key = probe.key(DATA)
    if _is_there(probe, key):
        return failed("a data object is there before it is committed", _HALF)
    if key in [found.key for found in probe.list_objects(probe.prefix, limit=10)]:
        return failed("a data object is listed before it is committed", _HALF)
    return ok("neither stat nor list shows the uncommitted object")


def commit(probe: TierProbe) -> CheckFinding:
    """The commit makes the data object visible, in its full size."""
    (upload,) = [upload for upload in probe.uploads if upload.key == probe.key(DATA)]
    stat = probe.commit_data(upload, probe.receipts, create_only=probe.capabilities.create_only)
    if stat.size_bytes != data_bytes(probe):
        return failed(
            f"an object of {data_bytes(probe)} bytes was committed, the answer says {stat.size_bytes}",
            REPORT_DRIVER,
        )
    probe.subject = Subject(
        key=stat.key, size_bytes=stat.size_bytes, middle=first_part_bytes(probe), is_sample=True
    )
    return ok(f"an object of {stat.size_bytes:,} bytes, made of 2 parts")


def head(probe: TierProbe) -> CheckFinding:
    """`stat` knows the data object's size and user metadata at once."""
    size_bytes = probe.stat(probe.key(DATA)).size_bytes
    if size_bytes != data_bytes(probe):
        return failed(
            f"stat says {size_bytes:,} bytes for an object of {data_bytes(probe):,} bytes", _STALE_STAT
        )
    return _metadata_finding(probe, DATA, "data")


def create_only(probe: TierProbe) -> CheckFinding:
    """An existing object is not overwritten by a create-only write, of either kind."""
    if not probe.capabilities.create_only:
        return skipped("the driver does not declare create_only")
    index, data = probe.key(INDEX), probe.key(DATA)
    try:
        probe.write_index(index, b"overwritten", METADATA | {"role": "index"}, create_only=True)
    except ObjectExistsError:
        pass
    else:
        return failed("a create-only write of a small object replaced the one that was there", _OVERWRITTEN)
    upload, receipt = _small_upload(probe, data)
    try:
        probe.commit_data(upload, [receipt], create_only=True)
    except ObjectExistsError:
        pass
    else:
        return failed("a create-only commit replaced the data object that was there", _OVERWRITTEN)
    if (probe.stat(index).size_bytes, probe.stat(data).size_bytes) != (INDEX_BYTES, data_bytes(probe)):
        return failed("a create-only write was refused, but changed the object", _OVERWRITTEN)
    return ok("refused for both kinds of objects, which are as they were")


def uploads(probe: TierProbe) -> CheckFinding:
    """Check that an upload without a commit is listed, can be dropped, and is then gone."""
    key = probe.key(SPARE)
    upload, _ = _small_upload(probe, key)
    listed = probe.capabilities.stale_uploads
    if listed and not _is_listed(probe, upload):
        return failed(
            "an upload that was begun is not listed", f"It would cost money unseen. {REPORT_DRIVER}"
        )
    if not probe.abort_data(upload):
        return failed("an upload that was begun is not there when it is aborted", REPORT_DRIVER)
    if probe.abort_data(upload):
        return failed("an upload that was aborted is still there", REPORT_DRIVER)
    if listed and _is_listed(probe, upload):
        return failed("an upload that was aborted is still listed", REPORT_DRIVER)
    if _is_there(probe, key):
        return failed("an upload that was aborted left an object", _HALF)
    return ok(
        "listed, aborted and gone" if listed else "aborted (the driver declares no stale_uploads to list)"
    )


def delete(probe: TierProbe) -> CheckFinding:
    """A deleted object is gone at once, and no other with it."""
    key = probe.key(DATA)
    probe.delete([key])
    if _is_there(probe, key):
        return failed(
            "an object is still there after it was deleted",
            f"The driver says deleted where nothing was, or an answer was cached. {_STALE_STAT}",
        )
    if key in [found.key for found in probe.list_objects(probe.prefix, limit=10)]:
        return failed("an object is still listed after it was deleted", _STALE_STAT)
    if not _is_there(probe, probe.key(INDEX)):
        return failed("deleting one object removed another", REPORT_DRIVER)
    return ok("gone at once, the other object is still there")


def delete_again(probe: TierProbe) -> CheckFinding:
    """Deleting a missing object is no error, and counts."""
    count = probe.delete([probe.key(DATA)])
    if count != 1:
        return failed(f"one key was given, the answer says {count}", REPORT_DRIVER)
    return ok("no error, and counted")


def clock(probe: TierProbe) -> CheckFinding:
    """The store's clock and this machine's agree."""
    key = probe.key(CLOCK)  # a key of its own: GCS takes one write a second of each
    begun = datetime.now(timezone.utc)
    probe.write_index(key, probe.sample.at(0, INDEX_BYTES), METADATA | {"role": "index"})
    ended = datetime.now(timezone.utc)
    modified_at = probe.stat(key).modified_at
    if modified_at.tzinfo is None:
        return failed("the time of change has no time zone", REPORT_DRIVER)
    ahead_s = seconds_ahead(modified_at, begun, ended)
    if abs(ahead_s) < 1:  # stores give whole seconds
        return ok("less than 1 s apart")
    where = "ahead of" if ahead_s > 0 else "behind"
    seen = f"the store's clock is {abs(ahead_s):.0f} s {where} this machine's"
    if abs(ahead_s) <= CLOCK_SKEW_S:
        return ok(seen)
    fix = "Set this machine's clock by NTP (chrony, systemd-timesyncd), or the store's: signed requests fail at 15 min."
    return warning(seen, fix)


def seconds_ahead(modified_at: datetime, begun: datetime, ended: datetime) -> float:
    """Return how far `modified_at` is ahead of the clock that saw the write begin and end; 0 if it may agree."""
    return max((modified_at - ended).total_seconds(), 0) + min((modified_at - begun).total_seconds(), 0)


def _metadata_finding(probe: TierProbe, name: str, role: str) -> CheckFinding:
    wanted = METADATA | {"role": role}
    found = probe.stat(probe.key(name)).user_metadata
    missing = [key for key in wanted if key not in found]
    changed = [key for key in wanted if key in found and found[key] != wanted[key]]
    if missing or changed:
        faults = [
            f"{', '.join(keys)} {what}" for keys, what in ((missing, "lost"), (changed, "changed")) if keys
        ]
        return failed(f"user metadata: {'; '.join(faults)}", _NOT_KEPT)
    where = "in the store" if probe.capabilities.user_metadata == "native" else "in a sidecar"
    return ok(f"all {len(wanted)} names that Pulsar needs, kept {where}")


def _is_there(probe: TierProbe, key: str) -> bool:
    try:
        probe.stat(key)
    except ObjectNotFoundError:
        return False
    return True


def _small_upload(probe: TierProbe, key: str) -> tuple[Upload, BlockReceipt]:
    upload = probe.begin_data(key, METADATA | {"role": "data"})
    return upload, probe.write_block(upload, 1, 0, probe.sample.at(0, LAST_PART_BYTES))


def _is_listed(probe: TierProbe, upload: Upload) -> bool:
    return upload in [found.upload for found in probe.list_uploads(upload.key, limit=100)]


_LOOKED_AT = 1000
"""Objects of a listing that are searched for one to read."""

_STALE_LIST = (
    "Objects that were just written would not be found. Turn off whatever caches listings: a proxy, a "
    "gateway, an option of the driver; or use a store whose listings are up to date."
)


def reach(probe: TierProbe) -> CheckFinding:
    """The tier exists and answers, with these credentials."""
    found = probe.list_objects(limit=1)
    return ok("it answers and has objects" if found else "it answers and is empty")


def listing(probe: TierProbe) -> CheckFinding:
    """A listing shows written objects at once, in order, and can begin after a key."""
    first, second = probe.key(DATA), probe.key(INDEX)
    found = probe.list_objects(probe.prefix, limit=10)
    missing = {first, second} - {each.key for each in found}
    if missing:
        return failed(f"{len(missing)} of 2 objects are not listed after they were written", _STALE_LIST)
    expected = [(first, data_bytes(probe)), (second, INDEX_BYTES)]
    if [(each.key, each.size_bytes) for each in found] != expected:
        return failed(
            "the listing has another order, other sizes or more objects than were written", REPORT_DRIVER
        )
    if [each.key for each in probe.list_objects(probe.prefix, first, limit=10)] != [second]:
        return failed("a listing that starts after a key shows others than those after it", REPORT_DRIVER)
    return ok("both objects at once, in order; start_after is kept")


def choose(probe: TierProbe) -> CheckFinding:
    """There is an object to read, and the listing's order is right as far as it was read."""
    found = probe.list_objects(limit=_LOOKED_AT)
    keys = [each.key.encode() for each in found]
    if keys != sorted(keys):
        return failed("the listing is not in the order of the keys' UTF-8 bytes", REPORT_DRIVER)
    readable = [each for each in found if each.size_bytes]
    if not readable:
        return skipped("there is no object to read")
    after = probe.list_objects(start_after=found[0].key, limit=1)
    if [each.key for each in after] != [each.key for each in found[1:2]]:
        return failed("a listing that starts after a key shows others than those after it", REPORT_DRIVER)
    listed, stat, damaged = _largest(probe, readable)
    if stat.size_bytes != listed.size_bytes:
        return failed(
            f"stat says {stat.size_bytes:,} bytes, the listing {listed.size_bytes:,}", REPORT_DRIVER
        )
    probe.subject = Subject(
        key=stat.key, size_bytes=stat.size_bytes, middle=stat.size_bytes // 2, is_sample=False
    )
    names = ", ".join(sorted(stat.user_metadata)) or "none"
    left_out = f"; {damaged} with damaged user metadata left out: see offload verify" if damaged else ""
    return ok(
        f"{len(found):,} objects looked at; one of {stat.size_bytes:,} bytes is read; user metadata: {names}{left_out}"
    )


def _largest(probe: TierProbe, listed: Sequence[ListedObject]) -> tuple[ListedObject, ObjectStat, int]:
    """The largest object whose user metadata can be read, and how many larger ones have damaged ones.

    Raises:
        FormatError: of all of them, the user metadata of the smallest.
    """
    by_size = sorted(listed, key=lambda each: each.size_bytes, reverse=True)
    for damaged, each in enumerate(by_size):
        try:
            return each, probe.stat(each.key), damaged
        except FormatError:
            if each is by_size[-1]:
                raise
    raise AssertionError("there is an object")


def ranges(probe: TierProbe) -> CheckFinding:
    """The first, middle and last bytes of an object, one by one and many at once."""
    subject = subject_of(probe)
    size = subject.size_bytes
    wanted = [
        (offset, min(length, size - offset))
        for offset, length in (
            (0, 1),
            (0, 4096),
            (max(subject.middle - 100, 0), 200),
            (max(size - 7, 0), 7),
            (size - 1, 1),
        )
    ]
    one_by_one = [bytes(probe.read_range(subject.key, *each)) for each in wanted]
    at_once = probe.read_ranges(
        [ByteRange(key=subject.key, offset=offset, length=length) for offset, length in wanted]
    )
    if [bytes(data) for data in at_once] != one_by_one:
        return failed("ranges that are read at once have other bytes than one by one", REPORT_DRIVER)
    if subject.is_sample and one_by_one != [probe.sample.at(*each) for each in wanted]:
        return failed(
            "a range has other bytes than were written there",
            f"Parts or offsets are mixed up. {REPORT_DRIVER}",
        )
    return ok(f"{len(wanted)} ranges: first, middle and last bytes, one by one and at once")


def past_the_end(probe: TierProbe) -> CheckFinding:
    """A range that ends past the object is refused."""
    subject = subject_of(probe)
    for offset in (subject.size_bytes - 1, subject.size_bytes):
        try:
            probe.read_range(subject.key, offset, 2)
        except RangeError:
            continue
        return failed("a range past an object's end is read as if it were there", REPORT_DRIVER)
    return ok("refused")


def subject_of(probe: TierProbe) -> Subject:
    """The object to read; an earlier check made or found it."""
    assert probe.subject is not None
    return probe.subject


DEFAULT_BYTES = 8 << 20
BLOCK_BYTES = 4 << 20
"""The blocks of the object that is uploaded, where the store's limits allow."""

LATENCY_REQUESTS = 15
SMALL_BYTES = 64

ABANDONED = timedelta(days=7)
"""An upload that is older is taken for abandoned."""

FORGOTTEN = timedelta(hours=1)
"""Older objects of another doctor are leftovers."""

_COUNTED = 10_000


def throughput(probe: TierProbe, size_bytes: int) -> CheckFinding:
    """Bytes a second up, one part after another, and down, as a scan reads: by ranges, several on their way."""
    key, limits = probe.key("throughput"), probe.capabilities
    block = max(
        limits.min_block_bytes, min(BLOCK_BYTES, limits.max_block_bytes), -(-size_bytes // limits.max_blocks)
    )
    upload = probe.begin_data(key, METADATA | {"role": "data"})
    up_s = 0.0
    receipts = []
    for number, (offset, length) in enumerate(_ranges(size_bytes, block), start=1):
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


def download(probe: TierProbe, size_bytes: int) -> CheckFinding:
    """Bytes a second down, of the object that was there."""
    subject = subject_of(probe)
    size_bytes = min(size_bytes, subject.size_bytes)
    down_s, _ = _read_down(probe, subject.key, size_bytes, is_sample=False)
    return ok(f"down {_rate(size_bytes, down_s)}")


def latency(probe: TierProbe) -> CheckFinding:
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


def leftovers(probe: TierProbe) -> CheckFinding:
    """Uploads and objects of doctors that were left long ago."""
    now = datetime.now(timezone.utc)
    uploads = []
    if probe.capabilities.stale_uploads:
        found = probe.list_uploads("", limit=_COUNTED)
        uploads = [each for each in found if now - each.started_at > ABANDONED]
    listed = probe.list_objects(PREFIX, limit=_COUNTED)
    forgotten = [
        each
        for each in listed
        if now - each.modified_at > FORGOTTEN and not each.key.startswith(probe.prefix)
    ]
    seen, fixes = [], []
    if uploads:
        oldest = min(each.started_at for each in uploads)
        seen.append(
            f"{count_text(len(uploads), 'upload')} older than a week, the oldest of {oldest:%Y-%m-%d}; they cost room"
        )
        fixes.append(stale_uploads_advice(probe.description.name))
    if forgotten:
        seen.append(f"{count_text(len(forgotten), 'object')} that an earlier doctor left")
        fixes.append(f"Delete the objects whose keys begin with {PREFIX!r}.")
    if seen:
        return warning("; ".join(seen), " ".join(fixes))
    if not probe.capabilities.stale_uploads:
        return skipped("the driver declares no stale_uploads to list; no objects of an earlier doctor")
    return ok("no uploads older than a week, no objects of an earlier doctor")


def _ranges(size_bytes: int, range_bytes: int) -> Iterator[tuple[int, int]]:
    for offset in range(0, size_bytes, range_bytes):
        yield offset, min(range_bytes, size_bytes - offset)


def _read_down(probe: TierProbe, key: str, size_bytes: int, *, is_sample: bool) -> tuple[float, bool]:
    """Read a number of bytes; return the seconds, and True if they are those of the sample."""
    seconds, is_same = 0.0, True
    limits = probe.capabilities
    spans = list(_ranges(size_bytes, limits.range_bytes))
    at_once = max(limits.ranges_ahead, 1)
    for i in range(0, len(spans), at_once):
        ranges = [
            ByteRange(key=key, offset=offset, length=length) for offset, length in spans[i : i + at_once]
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


PREFIX = "offload-doctor-"
_PERIOD = 1_000_003
"""Prime, so that no two parts of an object have the same bytes."""

_T = TypeVar("_T")


class Sample:
    """The bytes of a made object, of any size: random, so that nothing on the way compresses them."""

    def __init__(self) -> None:
        self._bytes = os.urandom(_PERIOD)

    def at(self, offset: int, length: int) -> bytes:
        """`length` bytes from byte `offset`."""
        begin = offset % _PERIOD
        repeated = self._bytes * ((begin + length) // _PERIOD + 1)
        return repeated[begin : begin + length]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An object to read.

    Attributes:
        key: its key.
        size_bytes: its size, at least 1.
        middle: an offset in its middle; where two parts meet, if it was made here.
        is_sample: whether its bytes are those of the sample; they are unknown otherwise.
    """

    key: str
    size_bytes: int
    middle: int
    is_sample: bool


class TierProbe:
    """A Tier under examination; the methods are those of the Tier.

    Attributes:
        tier: the Tier.
        prefix: what all keys begin with that are made here.
        hook: the hook that was called last, to know what an error came from.
        keys: of all objects that may be there because of us.
        uploads: all that were begun here and not seen to be gone.
        receipts: of the parts of the data object that is being made.
        subject: the object that the checks of reading read, once there is one.
        sample: the bytes of all objects that are made.
    """

    def __init__(self, tier: Tier) -> None:
        self.tier = tier
        self.description = tier.describe()
        self.capabilities = self.description.capabilities
        self.prefix = f"{PREFIX}{uuid4()}-"
        self.hook = "describe"
        self.keys: dict[str, None] = {}
        self.uploads: dict[Upload, None] = {}
        self.receipts: list[BlockReceipt] = []
        self.subject: Subject | None = None
        self.sample = Sample()

    def key(self, name: str) -> str:
        """The key of one of our objects."""
        return self.prefix + name

    def write_index(
        self, key: str, data: bytes, user_metadata: Mapping[str, str], *, create_only: bool = False
    ) -> ObjectStat:
        """See `Tier`."""
        self.hook = "write_index"
        self.keys[key] = None
        return self.tier.write_index(key, data, user_metadata=user_metadata, create_only=create_only)

    def begin_data(self, key: str, user_metadata: Mapping[str, str]) -> Upload:
        """See `Tier`."""
        self.hook = "begin_data"
        self.keys[key] = None
        upload = self.tier.begin_data(key, user_metadata=user_metadata)
        self.uploads[upload] = None
        return upload

    def write_block(self, upload: Upload, part_number: int, offset: int, data: bytes) -> BlockReceipt:
        """See `Tier`."""
        self.hook = "write_block"
        return self.tier.write_block(upload, part_number, offset, data)

    def commit_data(
        self, upload: Upload, receipts: Sequence[BlockReceipt], *, create_only: bool
    ) -> ObjectStat:
        """See `Tier`."""
        self.hook = "commit_data"
        stat = self.tier.commit_data(upload, receipts, create_only=create_only)
        self.uploads.pop(upload, None)
        return stat

    def abort_data(self, upload: Upload) -> bool:
        """See `Tier`."""
        self.hook = "abort_data"
        return self.tier.abort_data(upload)

    def read_range(self, key: str, offset: int, length: int) -> memoryview:
        """See `Tier`."""
        self.hook = "read_range"
        return self.tier.read_range(key, offset, length)

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """See `Tier`."""
        self.hook = "read_ranges"
        return self.tier.read_ranges(ranges)

    def stat(self, key: str) -> ObjectStat:
        """See `Tier`."""
        self.hook = "stat"
        return self.tier.stat(key)

    def list_objects(self, prefix: str = "", start_after: str = "", *, limit: int) -> list[ListedObject]:
        """The first `limit` objects; see `Tier`."""
        self.hook = "list_objects"
        return _first(self.tier.list_objects(prefix, start_after), limit)

    def list_uploads(self, prefix: str, *, limit: int) -> list[StaleUpload]:
        """The first `limit` uploads; see `Tier`."""
        self.hook = "list_uploads"
        return _first(self.tier.list_uploads(prefix), limit)

    def delete(self, keys: Sequence[str]) -> int:
        """See `Tier`."""
        self.hook = "delete"
        return self.tier.delete(keys)


def _first(found: Iterator[_T], limit: int) -> list[_T]:
    """The first `limit`; a listing that is a generator is ended here, not when it happens to be collected."""
    try:
        return list(islice(found, limit))
    finally:
        if isinstance(found, Generator):
            found.close()
