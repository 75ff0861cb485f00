"""Checks of what is read: the tier answers, listings are up to date and in order, ranges are exact.

Ranges are read of any object, whether it was made here or was there before.
"""

from __future__ import annotations

from offload_core.doctor.advice import REPORT_DRIVER
from offload_core.doctor.findings import Finding, failed, ok, skipped
from offload_core.doctor.probe import Probe, Subject
from offload_core.doctor.writing import DATA, INDEX, INDEX_BYTES, data_bytes
from offload_hooks import ByteRange
from offload_hooks.errors import RangeError

_LOOKED_AT = 1000
"""So many objects of a listing are looked at for one to read."""

_STALE_LIST = (
    "Objects that were just written would not be found. Turn off whatever caches listings: a proxy, a "
    "gateway, an option of the driver; or use a store whose listings are up to date."
)


def reach(probe: Probe) -> Finding:
    """The tier is there and answers, with these credentials."""
    found = probe.list_objects(limit=1)
    return ok("it answers and has objects" if found else "it answers and is empty")


def listing(probe: Probe) -> Finding:
    """A listing shows at once what was written, in order, and can begin after a key."""
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
        return failed("a listing that starts after a key shows others than those behind it", REPORT_DRIVER)
    return ok("both objects at once, in order; start_after is kept")


def choose(probe: Probe) -> Finding:
    """There is an object to read, and the tier's order is right as far as it was looked at."""
    found = probe.list_objects(limit=_LOOKED_AT)
    keys = [each.key.encode() for each in found]
    if keys != sorted(keys):
        return failed("the listing is not in the order of the keys' UTF-8 bytes", REPORT_DRIVER)
    readable = [each for each in found if each.size_bytes]
    if not readable:
        return skipped("there is no object to read")
    largest = max(readable, key=lambda each: each.size_bytes)
    after = probe.list_objects(start_after=found[0].key, limit=1)
    if [each.key for each in after] != [each.key for each in found[1:2]]:
        return failed("a listing that starts after a key shows others than those behind it", REPORT_DRIVER)
    stat = probe.stat(largest.key)
    if stat.size_bytes != largest.size_bytes:
        return failed(
            f"stat says {stat.size_bytes:,} bytes, the listing {largest.size_bytes:,}", REPORT_DRIVER
        )
    probe.subject = Subject(
        key=stat.key, size_bytes=stat.size_bytes, middle=stat.size_bytes // 2, is_sample=False
    )
    names = ", ".join(sorted(stat.user_metadata)) or "none"
    return ok(
        f"{len(found):,} objects looked at; one of {stat.size_bytes:,} bytes is read; user metadata: {names}"
    )


def ranges(probe: Probe) -> Finding:
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


def past_the_end(probe: Probe) -> Finding:
    """A range that ends past the object is refused."""
    subject = subject_of(probe)
    for offset in (subject.size_bytes - 1, subject.size_bytes):
        try:
            probe.read_range(subject.key, offset, 2)
        except RangeError:
            continue
        return failed("a range past an object's end is read as if it were there", REPORT_DRIVER)
    return ok("refused")


def subject_of(probe: Probe) -> Subject:
    """The object to read; an earlier check made or found it."""
    assert probe.subject is not None
    return probe.subject
