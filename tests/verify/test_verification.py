"""The course of a verification: what is not said, what fails, and what vanishes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from damage import Scene
from damage.in_records import change_context
from damage.scenes import (
    LEDGER,
    NOW_MS,
    PAYLOADS,
    Stored,
    filtered_segments,
    in_memory_tier,
    mapfiles,
    one_ledger,
    opened_records,
    pip17,
    streaming,
)
from damage.sealed import sealed
from entries import LedgerPart, pip17_object, streaming_object
from tiers import TOPIC, uuid_of

from offload_core.maintenance.verify import Code, Verification
from offload_core.metadata.catalogue.record_source import FileRecords
from offload_core.metadata.records import DriverMetadata
from offload_core.metadata.records.attempts import AttemptHolder, AttemptLease, with_lease
from offload_core.storage.tier import Tier
from offload_hooks import DriverDescription, ListedObject, ObjectStat, hookimpl
from offload_hooks.errors import ObjectNotFoundError, StoreUnavailableError
from offload_hooks.testing import MemoryDriver, MemoryTier
from offload_hooks.values import Capabilities


class Failing(MemoryDriver):
    """Objects that cannot be read, or that vanish when they are looked at."""

    def __init__(
        self, tier: MemoryTier, *, broken: str = "nothing", gone: str = "nothing", hook: str = "stat"
    ) -> None:
        super().__init__(tier, Capabilities())
        self._broken, self.gone, self._hook = broken, gone, hook

    def _check(self, key: str, hook: str) -> None:
        if hook == self._hook and self._broken in key:
            raise StoreUnavailableError("the store is tired", key=key)
        if hook == self._hook and self.gone in key:
            raise ObjectNotFoundError("no such object", key=key)

    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        self._check(key, "stat")
        return super().stat(key)

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> memoryview:
        self._check(key, "read_range")
        return super().read_range(key, offset, length)


def failing(scene: Scene, **how: str) -> Tier:
    return Tier(Failing(in_memory_tier(scene.objects), **how))


def two_ledgers() -> Scene:
    scene = pip17(records=False)
    scene.add(pip17_object(PAYLOADS, ledger_id=LEDGER + 1), 1)
    return scene


# --- what fails, and what vanishes -----------------------------------------------------------------


@pytest.mark.parametrize("hook", ["stat", "read_range"])
def test_an_object_that_cannot_be_read_is_named_and_the_others_are_verified(hook: str) -> None:
    scene = two_ledgers()
    scene.flip(scene.key(1), 200)
    verification = Verification(failing(scene, broken=f"-ledger-{LEDGER}", hook=hook), deep=True)
    assert [(each.code, each.key) for each in verification] == [(Code.MESSAGE_CHECKSUM, scene.key(1))]
    (error,) = verification.summary.failures
    assert (verification.summary.failed, error.key in (scene.key(), scene.index_key())) == (1, True)


@pytest.mark.parametrize("hook", ["stat", "read_range"])
def test_an_object_that_vanishes_meanwhile_was_never_there(hook: str) -> None:
    scene = two_ledgers()
    verification = Verification(failing(scene, gone=f"-ledger-{LEDGER}", hook=hook), deep=True)
    assert list(verification) == []
    assert verification.summary.failed == 0


def test_data_that_vanishes_before_it_is_read_was_never_there() -> None:
    scene = pip17(records=False)

    class LosesData(MemoryDriver):
        @hookimpl
        def read_range(self, key: str, offset: int, length: int) -> memoryview:
            if key == scene.key():
                raise ObjectNotFoundError("no such object", key=key)
            return super().read_range(key, offset, length)

    verification = Verification(Tier(LosesData(in_memory_tier(scene.objects), Capabilities())), deep=True)
    assert list(verification) == []
    assert (verification.summary.failed, verification.summary.deep_objects) == (0, 0)


def test_an_index_that_comes_later_is_not_missed() -> None:
    """Listed between the two commits of an offload."""
    scene = pip17(records=False)

    class ListsDataOnly(MemoryDriver):
        @hookimpl
        def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
            found = super().list_objects(prefix, start_after)
            return iter([each for each in found if not each.key.endswith("-index")])

    assert list(Verification(Tier(ListsDataOnly(in_memory_tier(scene.objects), Capabilities())))) == []


def test_an_index_that_came_before_the_record_was_read_is_not_missed() -> None:
    scene = pip17()
    driver = Failing(in_memory_tier(scene.objects), gone="-index")

    @contextmanager
    def completed() -> Iterator[FileRecords]:
        driver.gone = "nothing"
        with opened_records(scene.records or {})() as records:
            yield records

    assert list(Verification(Tier(driver), records=completed)) == []


def test_an_object_that_was_written_after_the_listing_is_not_lost() -> None:
    scene = pip17(gone=True)

    class ListsNothing(MemoryDriver):
        @hookimpl
        def list_objects(self) -> Iterator[ListedObject]:
            return iter([])

    tier = Tier(ListsNothing(in_memory_tier(scene.objects), Capabilities()))
    assert list(scene.verification(deep=False, tier=tier)) == []


def test_what_vanishes_after_the_records_were_read_is_no_orphan() -> None:
    scene = pip17()
    scene.add(one_ledger(), 5)
    driver = Failing(in_memory_tier(scene.objects))

    @contextmanager
    def read_and_trimmed() -> Iterator[FileRecords]:
        with opened_records(scene.records or {})() as records:
            yield records
        driver.gone = str(uuid_of(5))

    assert list(Verification(Tier(driver), records=read_and_trimmed)) == []


def test_a_copy_that_cannot_be_looked_up_is_not_called_lost() -> None:
    scene = pip17(gone=True)
    tier = failing(Scene(), broken=f"-ledger-{LEDGER}")
    verification = scene.verification(deep=False, tier=tier)
    assert (list(verification), verification.summary.failed) == ([], 1)


def test_what_is_left_of_an_object_is_verified() -> None:
    scene = pip17(records=False)
    scene.cut(scene.key(), -10)
    scene.flip(scene.key(), scene.frame(1) + 40)
    verification = scene.verification(deep=True)
    assert [each.code for each in verification] == [Code.WRONG_LENGTH, Code.MESSAGE_CHECKSUM]
    assert verification.summary.failed == 0
    assert 0 < verification.summary.entries < len(PAYLOADS)


def test_nothing_is_said_of_counts_of_what_is_cut_off() -> None:
    scene = streaming(records=False)
    scene.cut(scene.key(), -10)
    assert {each.code for each in scene.findings(deep=True)} == {Code.WRONG_LENGTH, Code.GAP}


# --- what records and objects do not tell ----------------------------------------------------------


def test_an_object_of_another_cluster_is_no_orphan() -> None:
    scene = pip17()
    scene.add(one_ledger(), 5, cluster="west")
    verification = scene.verification(deep=False)
    assert list(verification) == []
    assert verification.summary.unknown == 1


def test_an_object_of_a_topic_without_a_record_is_unknown() -> None:
    scene = pip17()
    scene.add(pip17_object(PAYLOADS, ledger_id=9), 5)
    for key in (scene.key(1), scene.index_key(1)):
        scene.objects[key].metadata["managedledgername"] = "acme/cold/persistent/others"
    verification = scene.verification(deep=False)
    assert list(verification) == []
    assert verification.summary.unknown == 1


def test_copies_of_ledgers_that_neither_topic_nor_cluster_tells_apart_are_not_compared() -> None:
    scene = Scene()
    for number in range(2):
        scene.add(streaming_object([LedgerPart(ledger_id=LEDGER, blocks=[PAYLOADS[: 3 + number]])]), number)
    for stored in scene.objects.values():
        del stored.metadata["managedledgername"], stored.metadata["pulsarclustername"]
    assert scene.findings() == []


@pytest.mark.parametrize("filtered", [0, 1])
def test_a_gap_beside_a_filtered_segment_is_none(filtered: int) -> None:
    scene = filtered_segments(records=False)
    for key in (scene.key(1 - filtered), scene.index_key(1 - filtered)):
        del scene.objects[key].metadata["pulsaroffloadfiltered"]
    assert scene.findings() == []


def test_an_attempt_with_a_lease_is_under_way() -> None:
    scene = pip17()
    holder = AttemptHolder(machine=1, process=1, started=1)
    for until_ms, found in ((NOW_MS + 1000, []), (NOW_MS - 1000, [Code.UNFINISHED])):
        record = scene.records[TOPIC].ledger(LEDGER)  # type: ignore[index, union-attr]
        lease = AttemptLease(holder=holder, until_ms=until_ms)
        change_context(scene, complete=False, driver=with_lease(record.context.driver, lease))  # type: ignore[union-attr]
        assert [each.code for each in scene.findings(deep=False)] == found


def test_a_brokers_attempt_whose_objects_are_new_may_be_under_way() -> None:
    scene = pip17()
    change_context(scene, complete=False)
    for ago, found in ((timedelta(minutes=9), []), (timedelta(minutes=11), [Code.UNFINISHED])):
        for stored in scene.objects.values():
            stored.modified_at = datetime.fromtimestamp(NOW_MS / 1000, UTC) - ago
        assert [each.code for each in scene.findings(deep=False)] == found


def test_an_attempt_that_left_nothing_is_not_mentioned() -> None:
    scene = pip17()
    scene.objects.clear()
    change_context(scene, complete=False)
    assert scene.findings() == []


@pytest.mark.parametrize(
    ("recorded", "found"),
    [
        (DriverMetadata(name="aws-s3", properties=(("bucket", "golden"),)), Code.ELSEWHERE),
        (DriverMetadata(name="filesystem", properties=(("storageBasePath", "hdfs://x"),)), Code.ELSEWHERE),
        (DriverMetadata(name="local", properties=(("location", "memory:other"),)), Code.ELSEWHERE),
        (DriverMetadata(name="aws-s3", properties=(("bucket", "silver"),)), Code.LOST),
        (DriverMetadata(name="local", properties=(("location", "memory:"),)), Code.LOST),
        (None, Code.LOST),
    ],
)
def test_a_copy_in_another_tier_is_not_called_lost(recorded: DriverMetadata | None, found: Code) -> None:
    scene = pip17(gone=True)
    change_context(scene, driver=recorded)

    class InABucket(MemoryDriver):
        @hookimpl
        def describe(self) -> DriverDescription:
            return replace(super().describe(), driver_metadata={"bucket": "silver"})

    (finding,) = scene.verification(deep=False, tier=Tier(InABucket(MemoryTier(), Capabilities())))
    assert (finding.code, finding.ledger_id) == (found, LEDGER)


def test_uploads_are_stale_after_a_day() -> None:
    driver = MemoryDriver()
    tier = Tier(driver)
    tier.begin_data(f"{uuid_of(1)}-ledger-{LEDGER}")
    (opened,) = driver.tier.uploads.values()
    started_ms = int(opened.started_at.timestamp() * 1000)
    hour = int(timedelta(hours=1).total_seconds() * 1000)
    assert list(Verification(tier, now_ms=lambda: started_ms + 23 * hour)) == []
    (finding,) = Verification(tier, now_ms=lambda: started_ms + 25 * hour)
    assert (finding.code, finding.key) == (Code.STALE_UPLOAD, f"{uuid_of(1)}-ledger-{LEDGER}")


def test_a_prefix_is_the_folder_that_records_objects_lie_in() -> None:
    scene = pip17(gone=True)
    scene.objects = {f"moved/here/{key}": stored for key, stored in scene.objects.items()}
    scene.objects["elsewhere/" + scene.key()] = Stored(b"", {})
    assert list(scene.verification(deep=True, prefix="moved/here/")) == []


def test_each_file_of_checksums_that_is_alone_is_said() -> None:
    scene = sealed(mapfiles(records=False))
    for key in (scene.key(), scene.index_key()):
        del scene.objects[key]
    found = list(Verification(Tier(MemoryDriver(in_memory_tier(scene.objects)))))
    assert {each.code for each in found} == {Code.CHECKSUMS_ORPHAN}
    assert {each.key for each in found} == set(scene.objects)
    assert len(found) == 3
