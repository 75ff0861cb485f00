"""The examination of a tier: a good one passes, each broken promise is told by name, everything is removed."""

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

import misbehaving as bad
import pytest

from offload_core.maintenance.doctor import examine
from offload_core.maintenance.doctor.results import advice, permission
from offload_core.storage.tier import Tier
from offload_drivers.local import LocalDriver
from offload_hooks import TierHooks, hookimpl
from offload_hooks.errors import OptionError, StoreFullError, StoreTimeoutError, StoreUnavailableError

WRITING = [
    *("reach", "put", "metadata", "multipart", "invisible", "commit", "head", "list", "ranges"),
    *("past_the_end", "create-only", "uploads", "clock", "throughput", "latency", "delete"),
    *("delete_again", "leftovers", "cleanup"),
]
READING = ["reach", "list", "ranges", "past_the_end", "throughput", "latency", "leftovers"]


def examined(driver, **options):
    with Tier(driver) as tier:
        return examine(tier, **{"throughput_bytes": 10_000, **options})


def findings(diagnosis):
    return {result.name.replace(" ", "_"): result.finding for result in diagnosis.results}


def with_status(diagnosis, *statuses):
    return [name for name, finding in findings(diagnosis).items() if finding.status in statuses]


def files(root):
    """All files but the local driver's lock."""
    found = {str(path.relative_to(root)) for path in root.rglob("*")}
    return found - {".offload-uploads", ".offload-uploads/lock"}


@pytest.fixture
def root(tmp_path):
    """An empty tier that is there."""
    tier = tmp_path / "tier"
    tier.mkdir()
    return tier


# --- a tier that works -------------------------------------------------------------------------


def test_a_local_tier_passes_and_nothing_is_left(root):
    diagnosis = examined(LocalDriver(root), throughput_bytes=9 << 20)
    assert [(name, finding.status) for name, finding in findings(diagnosis).items()] == [
        (name, "ok") for name in WRITING
    ]
    assert not diagnosis.has_failed
    assert files(root) == set()
    assert all(result.seconds >= 0 for result in diagnosis.results)
    assert (diagnosis.driver, diagnosis.location) == ("local", root.as_uri())
    assert diagnosis.prefix.startswith("offload-doctor-")


def test_every_examination_uses_names_of_its_own(root):
    assert examined(LocalDriver(root)).prefix != examined(LocalDriver(root)).prefix


def test_objects_of_others_are_left_alone(root):
    with Tier(LocalDriver(root)) as tier:
        tier.write_index("a", b"theirs")
        tier.begin_data("b")
    before = files(root)
    assert not examined(LocalDriver(root)).has_failed
    assert files(root) == before


def test_a_driver_that_takes_blocks_in_order_gets_them_so(root):
    diagnosis = examined(bad.Named(root, ordered_parts=True))
    assert with_status(diagnosis, "failed", "skipped") == []
    assert "in order, as the driver asks for" in findings(diagnosis)["multipart"].seen


def test_parts_are_as_small_as_the_driver_takes_them(root):
    diagnosis = examined(bad.Named(root, min_block_bytes=5 << 20), throughput_bytes=6 << 20)
    assert not diagnosis.has_failed
    assert (
        "2 parts of 5,242,880 and 4,097 bytes stored, the second first"
        in findings(diagnosis)["multipart"].seen
    )
    assert "(2 parts)" in findings(diagnosis)["throughput"].seen


def test_what_the_driver_does_not_declare_is_not_asked_for(root):
    diagnosis = examined(bad.Named(root, create_only=False, stale_uploads=False))
    assert with_status(diagnosis, "skipped") == ["create-only", "leftovers"]
    assert "does not declare create_only" in findings(diagnosis)["create-only"].seen
    assert findings(diagnosis)["uploads"].status == "ok"


def test_throughput_needs_a_byte(root):
    with pytest.raises(OptionError):
        examined(LocalDriver(root), throughput_bytes=0)
    assert files(root) == set()


# --- broken promises ---------------------------------------------------------------------------

FAULTS: Mapping[str, tuple[type[LocalDriver], str, str, str]] = {
    "metadata lost": (bad.LosesMetadata, "metadata", "role lost", "drops or rewrites headers"),
    "metadata changed": (bad.DecodesMetadata, "metadata", "managedledgername changed", "rewrites headers"),
    "index overwritten": (bad.OverwritesIndexes, "create-only", "small object replaced", "If-None-Match"),
    "data overwritten": (bad.OverwritesData, "create-only", "commit replaced", "If-None-Match"),
    "stale list": (bad.ListsLate, "list", "2 of 2 objects are not listed", "caches listings"),
    "wrong order": (bad.ListsBackwards, "list", "another order", "driver's authors"),
    "start_after ignored": (bad.ListsFromTheBeginning, "list", "starts after a key", "driver's authors"),
    "uploads visible": (bad.ShowsUploads, "invisible", "before it is committed", "half of an object"),
    "ranges cut": (bad.CutsRanges, "past_the_end", "read_range: the driver", "driver's authors"),
    "ranges padded": (bad.PadsRanges, "past_the_end", "as if it were there", "driver's authors"),
    "ranges one off": (bad.ReadsOneOff, "ranges", "other bytes", "mixed up"),
    "parts mixed up": (bad.WritesInOrderOfArrival, "ranges", "other bytes", "mixed up"),
    "silent delete": (bad.DeletesNothing, "delete", "still there", "caches answers"),
    "delete not idempotent": (bad.DeletesOnce, "delete_again", "delete: ", "It was there before"),
    "uploads hidden": (bad.HidesUploads, "uploads", "not listed", "cost money"),
    "any exception": (bad.RaisesAnything, "head", "stat: the driver raised ValueError", "driver's authors"),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("driver", "name", "seen", "fix"), FAULTS.values(), ids=FAULTS)
def test_a_broken_promise_fails_its_check_and_says_what_to_do_and_nothing_is_left(
    root, driver, name, seen, fix
):
    diagnosis = examined(driver(root))
    finding = findings(diagnosis)[name]
    assert (finding.status, diagnosis.has_failed) == ("failed", True)
    assert seen in finding.seen
    assert fix in (finding.fix or "")
    assert bad.SECRET not in repr(diagnosis)
    if driver is not bad.DeletesNothing:
        assert (diagnosis.left_behind, findings(diagnosis)["cleanup"].status) == ((), "ok")
        assert files(root) == set()


def test_a_skewed_clock_is_a_warning(root):
    diagnosis = examined(bad.HasAnotherClock(root))
    finding = findings(diagnosis)["clock"]
    assert (finding.status, diagnosis.has_failed) == ("warning", False)
    assert finding.seen == "the store's clock is 120 s ahead of this machine's"
    assert "NTP" in (finding.fix or "")


# --- what is refused ---------------------------------------------------------------------------

NEEDED = [
    ("s3", "s3:AbortMultipartUpload", "s3:DeleteObject", "s3:ListBucket"),
    ("gcs", "storage.objects.delete", "storage.objects.delete", "storage.objects.list"),
    ("azure", "Storage Blob Data Contributor", "(a SAS: d)", "(a SAS: l)"),
    ("hdfs", ".offload-uploads", "-wx", "r-x"),
    ("local", ".offload-uploads", "-wx", "r-x"),
    ("somebodys", "the permission to abort", "the permission to delete", "the permission to list"),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "abort", "delete", "listing"), NEEDED)
def test_a_refusal_names_the_permission_that_is_missing(root, name, abort, delete, listing):
    refused = findings(examined(bad.DeniesAbort(root, name=name)))["uploads"]
    assert refused.seen.startswith("abort_data: the store refused to abort (object offload-doctor-")
    assert abort in (refused.fix or "")
    assert delete in (findings(examined(bad.DeniesDelete(root, name=name)))["delete"].fix or "")
    assert listing in (findings(examined(bad.DeniesList(root, name=name)))["reach"].fix or "")


@pytest.mark.parametrize("name", [name for name, *_ in NEEDED])
def test_every_hook_has_a_permission(name):
    hooks = [hook for hook in vars(TierHooks) if not hook.startswith("_") and hook != "describe"]
    assert len(hooks) == 12
    known = [permission(name, hook) for hook in hooks]
    assert all("reach" not in words for words in known)
    assert all(words.startswith("the permission to") for words in known) == (name == "somebodys")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (StoreUnavailableError("gone"), "endpoint"),
        (StoreTimeoutError("late"), "timeouts"),
        (StoreFullError("full"), "quota"),
        (StoreFullError("full", hint="Delete the cat pictures."), "Delete the cat pictures."),
    ],
)
def test_other_errors_have_advice_as_well(error, words):
    assert words in advice("s3", "write_index", error)


def test_a_root_that_is_not_there_fails_and_nothing_else_is_tried(tmp_path):
    diagnosis = examined(LocalDriver(tmp_path / "nowhere"))
    assert with_status(diagnosis, "failed") == ["reach"]
    assert len(with_status(diagnosis, "skipped")) == len(WRITING) - 1
    assert "mkdir -p" in (findings(diagnosis)["reach"].fix or "")
    assert findings(diagnosis)["put"].seen == "needs 'reach', which failed"
    assert findings(diagnosis)["metadata"].seen == "needs 'put', which was skipped"
    assert not (tmp_path / "nowhere").exists()


# --- what is left behind -----------------------------------------------------------------------


@pytest.mark.parametrize("driver", [bad.DeniesDelete, bad.DeletesNothing])
def test_objects_that_cannot_be_removed_are_named(root, driver):
    diagnosis = examined(driver(root))
    assert findings(diagnosis)["cleanup"].status == "failed"
    objects = {name for name in files(root) if not name.endswith(".metadata.json")}
    assert objects
    assert set(diagnosis.left_behind) == objects
    assert diagnosis.prefix in (findings(diagnosis)["cleanup"].fix or "")


def test_uploads_that_cannot_be_dropped_are_named_and_everything_else_is_removed(root):
    diagnosis = examined(bad.DeniesAbort(root, name="s3"))
    assert diagnosis.left_behind
    assert all(" (upload " in name for name in diagnosis.left_behind)
    assert {name.split("/")[0] for name in files(root)} == {".offload-uploads"}
    assert "s3:AbortMultipartUpload" in (findings(diagnosis)["cleanup"].fix or "")


def test_an_interruption_ends_the_examination_and_everything_is_removed(root):
    diagnosis = examined(bad.Interrupts(root))
    assert diagnosis.interrupted
    assert diagnosis.has_failed
    found = findings(diagnosis)
    assert list(found) == WRITING
    assert [name for name in found if found[name].seen == "the examination was broken off"] == WRITING[5:-1]
    assert found["cleanup"].status == "ok"
    assert files(root) == set()


def test_an_interrupted_cleanup_names_what_is_left(root):
    diagnosis = examined(bad.Interrupts(root, again=True))
    assert diagnosis.left_behind == (f"{diagnosis.prefix}index", f"{diagnosis.prefix}data")
    assert "broken off" in (findings(diagnosis)["cleanup"].fix or "")


def test_old_uploads_of_others_are_a_warning(root):
    finding = findings(examined(bad.HasOldUploads(root, name="s3")))["leftovers"]
    assert finding.status == "warning"
    assert "3 uploads older than a week, the oldest of 2020-02-01" in finding.seen
    assert "AbortIncompleteMultipartUpload" in (finding.fix or "")


def test_what_an_earlier_doctor_left_is_a_warning(root):
    for name, age_s in (("offload-doctor-1-index", 7200), ("offload-doctor-2-index", 0)):
        (root / name).write_bytes(b"x")
        os.utime(root / name, (time.time() - age_s,) * 2)
    finding = findings(examined(LocalDriver(root)))["leftovers"]
    assert (finding.status, finding.seen) == ("warning", "1 object that an earlier doctor left")


# --- read only ---------------------------------------------------------------------------------


class ReadOnly(LocalDriver):
    """Fails the test that writes."""

    @hookimpl
    def begin_data(self):
        raise AssertionError("a data object was begun")

    @hookimpl
    def write_index(self):
        raise AssertionError("an object was written")

    @hookimpl
    def delete(self):
        raise AssertionError("something was deleted")

    @hookimpl
    def abort_data(self):
        raise AssertionError("something was aborted")


def test_read_only_reads_what_is_there_and_writes_nothing(root):
    with Tier(LocalDriver(root)) as tier:
        for key, size in (("a", 0), ("b/c", 100_000), ("d", 5)):
            tier.write_index(key, os.urandom(size), user_metadata={"role": "index"})
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    diagnosis = examined(ReadOnly(root), read_only=True)
    assert with_status(diagnosis, "ok") == READING
    assert "one of 100,000 bytes is read; user metadata: role" in findings(diagnosis)["list"].seen
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_read_only_an_empty_tier_has_nothing_to_read(root):
    diagnosis = examined(ReadOnly(root), read_only=True)
    assert with_status(diagnosis, "ok") == ["reach", "leftovers"]
    assert findings(diagnosis)["ranges"].seen == "needs 'list', which was skipped"
    assert not diagnosis.has_failed


@pytest.mark.parametrize(
    ("driver", "name"),
    [(bad.ListsBackwards, "list"), (bad.ListsFromTheBeginning, "list"), (bad.PadsRanges, "past_the_end")],
)
def test_read_only_finds_what_reading_shows(root, driver, name):
    with Tier(LocalDriver(root)) as tier:
        for key in "abc":
            tier.write_index(key, b"0123456789")
    assert with_status(examined(driver(root), read_only=True), "failed") == [name]


# --- documents ---------------------------------------------------------------------------------


def test_every_check_is_documented_in_its_order():
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    table = page.partition("\n| Check |")[2].partition("\n\n")[0]
    named = [name.replace(" ", "_") for name in re.findall(r"^\| `([\w -]+)` \|", table, re.M)]
    assert named == [*WRITING, "private_files"], "which is not of the tier"
