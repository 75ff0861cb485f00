"""Checks of what is written: that it comes back as it was, appears whole, is not overwritten, and can be deleted.

Each takes the `Probe` and answers with a `Finding`. Later ones use what earlier ones made, under the keys here.
"""

from __future__ import annotations

from datetime import UTC, datetime

from offload_core.codec.object_format import CLUSTER_KEY, TOPIC_KEY
from offload_core.doctor.advice import REPORT_DRIVER
from offload_core.doctor.findings import Finding, failed, ok, skipped, warning
from offload_core.doctor.probe import Probe, Subject
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import ObjectExistsError, ObjectNotFoundError

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
"""What Pulsar stores with both objects of a ledger, besides their role; names of topics are percent-encoded."""

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


def data_bytes(probe: Probe) -> int:
    """The size of the data object."""
    return first_part_bytes(probe) + LAST_PART_BYTES


def first_part_bytes(probe: Probe) -> int:
    """The size of the data object's first part: the least that the store takes."""
    return max(probe.capabilities.min_block_bytes, LEAST_PART_BYTES)


def put(probe: Probe) -> Finding:
    """A small object can be stored and read back."""
    key, data = probe.key(INDEX), probe.sample.at(0, INDEX_BYTES)
    stat = probe.write_index(key, data, METADATA | {"role": "index"})
    if stat.size_bytes != INDEX_BYTES:
        return failed(f"{INDEX_BYTES} bytes were stored, the answer says {stat.size_bytes}", REPORT_DRIVER)
    if probe.read_range(key, 0, INDEX_BYTES) != data:
        return failed(f"of {INDEX_BYTES} bytes that were stored, others came back", REPORT_DRIVER)
    return ok(f"{INDEX_BYTES} bytes stored and read back")


def metadata(probe: Probe) -> Finding:
    """User metadata comes back with the small object."""
    return _metadata_finding(probe, INDEX, "index")


def multipart(probe: Probe) -> Finding:
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


def invisible(probe: Probe) -> Finding:
    """Nothing is there before the commit."""
    key = probe.key(DATA)
    if _is_there(probe, key):
        return failed("a data object is there before it is committed", _HALF)
    if key in [found.key for found in probe.list_objects(probe.prefix, limit=10)]:
        return failed("a data object is listed before it is committed", _HALF)
    return ok("neither stat nor list shows the uncommitted object")


def commit(probe: Probe) -> Finding:
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


def head(probe: Probe) -> Finding:
    """`stat` knows the data object's size and user metadata at once."""
    size_bytes = probe.stat(probe.key(DATA)).size_bytes
    if size_bytes != data_bytes(probe):
        return failed(
            f"stat says {size_bytes:,} bytes for an object of {data_bytes(probe):,} bytes", _STALE_STAT
        )
    return _metadata_finding(probe, DATA, "data")


def create_only(probe: Probe) -> Finding:
    """An object that is there is not overwritten by a create-only write, of either kind."""
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


def uploads(probe: Probe) -> Finding:
    """An upload that nobody commits is listed, can be dropped, and is then gone."""
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


def delete(probe: Probe) -> Finding:
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


def delete_again(probe: Probe) -> Finding:
    """Deleting what is not there is no error, and counts."""
    count = probe.delete([probe.key(DATA)])
    if count != 1:
        return failed(f"one key was given, the answer says {count}", REPORT_DRIVER)
    return ok("no error, and counted")


def clock(probe: Probe) -> Finding:
    """The store's clock and this machine's agree."""
    key = probe.key(CLOCK)  # a key of its own: GCS takes one write a second of each
    begun = datetime.now(UTC)
    probe.write_index(key, probe.sample.at(0, INDEX_BYTES), METADATA | {"role": "index"})
    ended = datetime.now(UTC)
    modified_at = probe.stat(key).modified_at
    if modified_at.tzinfo is None:
        return failed("the time of change has no time zone", REPORT_DRIVER)
    ahead_s = seconds_ahead(modified_at, begun, ended)
    if abs(ahead_s) < 1:  # stores tell whole seconds
        return ok("less than 1 s apart")
    where = "ahead of" if ahead_s > 0 else "behind"
    seen = f"the store's clock is {abs(ahead_s):.0f} s {where} this machine's"
    if abs(ahead_s) <= CLOCK_SKEW_S:
        return ok(seen)
    fix = "Set this machine's clock by NTP (chrony, systemd-timesyncd), or the store's: signed requests fail at 15 min."
    return warning(seen, fix)


def seconds_ahead(modified_at: datetime, begun: datetime, ended: datetime) -> float:
    """How far the clock of `modified_at` is ahead of the one that saw the write begin and end; 0 if it may agree."""
    return max((modified_at - ended).total_seconds(), 0) + min((modified_at - begun).total_seconds(), 0)


def _metadata_finding(probe: Probe, name: str, role: str) -> Finding:
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


def _is_there(probe: Probe, key: str) -> bool:
    try:
        probe.stat(key)
    except ObjectNotFoundError:
        return False
    return True


def _small_upload(probe: Probe, key: str) -> tuple[Upload, BlockReceipt]:
    upload = probe.begin_data(key, METADATA | {"role": "data"})
    return upload, probe.write_block(upload, 1, 0, probe.sample.at(0, LAST_PART_BYTES))


def _is_listed(probe: Probe, upload: Upload) -> bool:
    return upload in [found.upload for found in probe.list_uploads(upload.key, limit=100)]
