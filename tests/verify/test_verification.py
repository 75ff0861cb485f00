"""The course of a verification: what is not said, what fails, and what vanishes."""

import re
import struct
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate

import pytest
from damage import DAMAGES, SCENES, Scene
from damage.in_records import change_context
from damage.scenes import (
    LEDGER,
    NOW_MS,
    PAYLOADS,
    Stored,
    closed_ledger,
    filtered_segments,
    in_memory_tier,
    mapfiles,
    one_ledger,
    opened_records,
    pip17,
    streaming,
)
from damage.sealed import sealed
from entries import LedgerPart, batch_entry, entry, pip17_object, streaming_object
from records import copied, managed_ledger
from scenes.moves import moved_by_mapping
from scenes.repairs import repaired
from tiers import MANAGED_LEDGER, TOPIC, lay_out, uuid_of

from offload_core.format.codec.object_marks import MAPPED_KEY, REPAIRED_FROM_KEY
from offload_core.maintenance.verify import Code, Severity, Verification
from offload_core.metadata.catalogue import open_records
from offload_core.metadata.records import DriverMetadata
from offload_core.metadata.records.attempts import AttemptHolder, AttemptLease, with_lease
from offload_core.storage.executors import ProcessExecutor, ThreadExecutor
from offload_core.storage.tier import Tier, open_store
from offload_hooks import hookimpl
from offload_hooks.errors import ObjectNotFoundError, StoreUnavailableError
from offload_hooks.testing import MemoryDriver, MemoryTier
from offload_hooks.values import Capabilities
from offload_proto.messages_pb2 import BrokerEntryMetadata


class Failing(MemoryDriver):
    """Objects that cannot be read, or that vanish when they are looked at: whose keys match a pattern."""

    def __init__(self, tier, *, broken="nothing", gone="nothing", hook="stat"):
        super().__init__(tier, Capabilities())
        self._broken, self.gone, self._hook = broken, gone, hook

    def _check(self, key, hook):
        if hook == self._hook and re.search(self._broken, key):
            raise StoreUnavailableError("the store is tired", key=key)
        if hook == self._hook and re.search(self.gone, key):
            raise ObjectNotFoundError("no such object", key=key)

    @hookimpl
    def stat(self, key):
        self._check(key, "stat")
        return super().stat(key)

    @hookimpl
    def read_range(self, key, offset, length):
        self._check(key, "read_range")
        return super().read_range(key, offset, length)


def failing(scene, **how):
    return Tier(Failing(in_memory_tier(scene.objects), **how))


def two_ledgers():
    scene = pip17(records=False)
    scene.add(pip17_object(PAYLOADS, ledger_id=LEDGER + 1), 1)
    return scene


# --- what fails, and what vanishes -----------------------------------------------------------------


@pytest.mark.parametrize("hook", ["stat", "read_range"])
def test_an_object_that_cannot_be_read_is_named_and_the_others_are_verified(hook):
    scene = two_ledgers()
    scene.flip(scene.key(1), 200)
    verification = Verification(failing(scene, broken=f"-ledger-{LEDGER}", hook=hook), deep=True)
    assert [(each.code, each.key) for each in verification] == [(Code.MESSAGE_CHECKSUM, scene.key(1))]
    (error,) = verification.summary.failures
    assert (verification.summary.failed, error.key in (scene.key(), scene.index_key())) == (1, True)


@pytest.mark.parametrize(("hook", "end"), [("stat", ""), ("read_range", ""), ("read_range", "$")])
def test_an_object_that_vanishes_meanwhile_was_never_there(hook, end):
    """Both of a pair, or only data whose index was read."""
    verification = Verification(failing(two_ledgers(), gone=f"-ledger-{LEDGER}{end}", hook=hook), deep=True)
    assert list(verification) == []
    assert (verification.summary.failed, verification.summary.deep_objects) == (0, 1)


def test_an_index_that_comes_later_is_not_missed():
    """Listed between the two commits of an offload."""
    scene = pip17(records=False)

    class ListsDataOnly(MemoryDriver):
        @hookimpl
        def list_objects(self, prefix, start_after):
            found = super().list_objects(prefix, start_after)
            return iter([each for each in found if not each.key.endswith("-index")])

    assert list(Verification(Tier(ListsDataOnly(in_memory_tier(scene.objects), Capabilities())))) == []


def test_an_index_that_came_before_the_record_was_read_is_not_missed():
    scene = pip17()
    driver = Failing(in_memory_tier(scene.objects), gone="-index")

    @contextmanager
    def completed():
        driver.gone = "nothing"
        with opened_records(scene.records or {})() as records:
            yield records

    assert list(Verification(Tier(driver), records=completed)) == []


def test_an_object_that_was_written_after_the_listing_is_not_lost():
    scene = pip17(gone=True)

    class ListsNothing(MemoryDriver):
        @hookimpl
        def list_objects(self):
            return iter([])

    tier = Tier(ListsNothing(in_memory_tier(scene.objects), Capabilities()))
    assert list(scene.verification(deep=False, tier=tier)) == []


def test_what_vanishes_after_the_records_were_read_is_no_orphan():
    scene = pip17()
    scene.add(one_ledger(), 5)
    driver = Failing(in_memory_tier(scene.objects))

    @contextmanager
    def read_and_trimmed():
        with opened_records(scene.records or {})() as records:
            yield records
        driver.gone = str(uuid_of(5))

    assert list(Verification(Tier(driver), records=read_and_trimmed)) == []


def test_a_copy_that_cannot_be_looked_up_is_not_called_lost():
    scene = pip17(gone=True)
    tier = failing(Scene(), broken=f"-ledger-{LEDGER}")
    verification = scene.verification(deep=False, tier=tier)
    assert (list(verification), verification.summary.failed) == ([], 1)


def test_what_is_left_of_an_object_is_verified():
    scene = pip17(records=False)
    scene.cut(scene.key(), -10)
    scene.flip(scene.key(), scene.frame(1) + 40)
    verification = scene.verification(deep=True)
    assert [each.code for each in verification] == [Code.WRONG_LENGTH, Code.MESSAGE_CHECKSUM]
    assert verification.summary.failed == 0
    assert 0 < verification.summary.entries < len(PAYLOADS)


def test_nothing_is_said_of_counts_of_what_is_cut_off():
    scene = streaming(records=False)
    scene.cut(scene.key(), -10)
    assert {each.code for each in scene.findings(deep=True)} == {Code.WRONG_LENGTH, Code.GAP}


# --- what records and objects do not tell ----------------------------------------------------------


def test_an_object_of_another_cluster_is_no_orphan():
    scene = pip17()
    scene.add(one_ledger(), 5, cluster="west")
    verification = scene.verification(deep=False)
    assert list(verification) == []
    assert verification.summary.unknown == 1


def test_an_object_of_a_topic_without_a_record_is_unknown():
    scene = pip17()
    scene.add(pip17_object(PAYLOADS, ledger_id=9), 5)
    for key in (scene.key(1), scene.index_key(1)):
        scene.objects[key].metadata["managedledgername"] = "acme/cold/persistent/others"
    verification = scene.verification(deep=False)
    assert list(verification) == []
    assert verification.summary.unknown == 1


def test_copies_of_ledgers_that_neither_topic_nor_cluster_tells_apart_are_not_compared():
    scene = Scene()
    for number in range(2):
        scene.add(streaming_object([LedgerPart(ledger_id=LEDGER, blocks=[PAYLOADS[: 3 + number]])]), number)
    for stored in scene.objects.values():
        del stored.metadata["managedledgername"], stored.metadata["pulsarclustername"]
    assert scene.findings() == []


@pytest.mark.parametrize("filtered", [0, 1])
def test_a_gap_beside_a_filtered_segment_is_none(filtered):
    scene = filtered_segments(records=False)
    for key in (scene.key(1 - filtered), scene.index_key(1 - filtered)):
        del scene.objects[key].metadata["pulsaroffloadfiltered"]
    assert scene.findings() == []


def test_an_attempt_with_a_lease_is_under_way():
    scene = pip17()
    holder = AttemptHolder(machine=1, process=1, started=1)
    for until_ms, found in ((NOW_MS + 1000, []), (NOW_MS - 1000, [Code.UNFINISHED])):
        record = scene.records[TOPIC].ledger(LEDGER)
        lease = AttemptLease(holder=holder, until_ms=until_ms)
        change_context(scene, complete=False, driver=with_lease(record.context.driver, lease))
        assert [each.code for each in scene.findings(deep=False)] == found


def test_a_brokers_attempt_whose_objects_are_new_may_be_under_way():
    scene = pip17()
    change_context(scene, complete=False)
    for ago, found in ((timedelta(minutes=9), []), (timedelta(minutes=11), [Code.UNFINISHED])):
        for stored in scene.objects.values():
            stored.modified_at = datetime.fromtimestamp(NOW_MS / 1000, UTC) - ago
        assert [each.code for each in scene.findings(deep=False)] == found


def test_an_attempt_that_left_nothing_is_not_mentioned():
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
def test_a_copy_in_another_tier_is_not_called_lost(recorded, found):
    scene = pip17(gone=True)
    change_context(scene, driver=recorded)

    class InABucket(MemoryDriver):
        @hookimpl
        def describe(self):
            return replace(super().describe(), driver_metadata={"bucket": "silver"})

    (finding,) = scene.verification(deep=False, tier=Tier(InABucket(MemoryTier(), Capabilities())))
    assert (finding.code, finding.ledger_id) == (found, LEDGER)


def test_uploads_are_stale_after_a_day():
    driver = MemoryDriver()
    tier = Tier(driver)
    tier.begin_data(f"{uuid_of(1)}-ledger-{LEDGER}")
    (opened,) = driver.tier.uploads.values()
    started_ms = int(opened.started_at.timestamp() * 1000)
    assert list(Verification(tier, now_ms=lambda: started_ms + 23 * 3_600_000)) == []
    (finding,) = Verification(tier, now_ms=lambda: started_ms + 25 * 3_600_000)
    assert (finding.code, finding.key) == (Code.STALE_UPLOAD, f"{uuid_of(1)}-ledger-{LEDGER}")


def test_a_prefix_is_the_folder_that_records_objects_lie_in():
    scene = pip17(gone=True)
    scene.objects = {f"moved/here/{key}": stored for key, stored in scene.objects.items()}
    scene.objects["elsewhere/" + scene.key()] = Stored(b"", {})
    assert list(scene.verification(deep=True, prefix="moved/here/")) == []


def test_each_file_of_checksums_that_is_alone_is_said():
    scene = sealed(mapfiles(records=False))
    for key in (scene.key(), scene.index_key()):
        del scene.objects[key]
    found = list(Verification(Tier(MemoryDriver(in_memory_tier(scene.objects)))))
    assert [each.code for each in found] == [Code.CHECKSUMS_ORPHAN] * 3
    assert {each.key for each in found} == set(scene.objects)


# --- Who does the work of a verification, what is counted, and when it gives up an object.


def test_an_object_of_which_very_much_is_wrong_is_given_up():
    scene = Scene()
    scene.add(pip17_object([entry(b"%04d" % i) for i in range(300)], ledger_id=LEDGER), 0)
    for i in range(300):
        scene.flip(scene.key(), scene.frame(i) + 20)
    found = scene.findings()
    assert [each.code for each in found] == [Code.MESSAGE_CHECKSUM] * 100 + [Code.MORE]
    assert [each.entry_id for each in found[:100]] == list(range(100))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("entry_id", [2**63 - 2, 2**63 - 1])
def test_an_id_that_no_entry_can_have_ends_its_block(entry_id):
    """Where ids may be missing, any id that is greater is one."""
    scene = SCENES["filtered"]()
    scene.set(scene.key(), "q", 128 + 4, entry_id)
    assert {each.code for each in scene.findings()} == {Code.ENTRY_WRONG_ID}


@pytest.mark.timeout(60)
def test_a_block_that_by_its_index_begins_with_such_an_id_ends_there():
    scene = streaming(records=False)
    index = scene.objects[scene.index_key(1)].data
    at = index.rindex(struct.pack(">qi", 3, 3))  # ledger 8's last block
    scene.set(scene.index_key(1), "q", at, 2**63 - 1)
    assert {Code.BLOCK_WRONG_FIRST_ENTRY, Code.ENTRY_WRONG_ID} <= {each.code for each in scene.findings()}


def test_what_was_looked_at_is_counted():
    scene = SCENES["no-checksums"]()
    scene.add(one_ledger(), 3)
    verification = scene.verification(deep=True)
    assert [each.code for each in verification] == [Code.COPIES_DIFFER]
    summary = verification.summary
    assert (summary.objects, summary.deep_objects, summary.entries) == (2, 2, 2 + len(PAYLOADS))
    assert summary.unchecked_entries == 2
    assert summary.object_bytes == sum(len(stored.data) for stored in scene.objects.values())
    assert (summary.count(Severity.ERROR), summary.count(Severity.WARNING)) == (1, 0)


def test_entries_with_a_brokers_metadata_have_their_checksum_behind_it():
    broker = BrokerEntryMetadata(broker_timestamp=1, index=5)
    scene = Scene()
    payloads = [entry(b"x", broker=broker), entry(b"y", broker=broker, checksum=False), batch_entry([b"z"])]
    scene.add(pip17_object(payloads, ledger_id=LEDGER), 0)
    verification = scene.verification(deep=True)
    assert list(verification) == []
    assert verification.summary.unchecked_entries == 1


def test_an_entry_that_its_windows_cut_in_its_length_is_verified():
    window = 2 << 20
    payloads = [
        entry(b"x" * (window - 5 - 128 - 12 - len(entry(b"")))),
        entry(b"y" * (window - 500_000)),
        entry(b"z"),
    ]
    assert 128 + 12 + len(payloads[0]) == window - 5
    scene = Scene()
    scene.add(pip17_object(payloads, ledger_id=LEDGER, max_block_bytes=1 << 23), 0)

    class ReadsCopies(MemoryDriver):
        """What stands in memory before a window is nothing of the object."""

        @hookimpl
        def read_range(self, key, offset, length):
            return bytes(bytearray(super().read_range(key, offset, length)))

    def findings(ranges_ahead):
        capabilities = Capabilities(range_bytes=window, ranges_ahead=ranges_ahead)
        return list(Verification(Tier(ReadsCopies(in_memory_tier(scene.objects), capabilities)), deep=True))

    assert findings(0) == findings(4) == []
    scene.flip(scene.key(), scene.frame(2) + 20)
    (finding,) = findings(4)
    assert (finding.code, finding.entry_id) == (Code.MESSAGE_CHECKSUM, 2)


@pytest.mark.parametrize(
    "executor", [ThreadExecutor(3), pytest.param(ProcessExecutor(1), marks=pytest.mark.nightly)]
)
def test_threads_and_processes_find_the_same(tmp_path, executor):
    for attempt in range(3):
        written = pip17_object(PAYLOADS, ledger_id=LEDGER + attempt)
        damaged = written.data[:-3] + b"!" + written.data[-2:]
        lay_out(tmp_path, replace(written, data=damaged) if attempt == 1 else written, attempt=attempt)
    with open_store(tmp_path) as tier:
        found = list(Verification(tier, deep=True, executor=executor))
    assert [(each.code, each.ledger_id, each.entry_id) for each in found] == [
        (Code.MESSAGE_CHECKSUM, LEDGER + 1, len(PAYLOADS) - 1)
    ]


def test_many_objects_are_listed_some_at_a_time(monkeypatch):
    monkeypatch.setattr("offload_core.maintenance.verify.verification.AT_ONCE", 100)
    scene = Scene()
    written = pip17_object([b"x"], ledger_id=LEDGER)
    for number in range(250):
        scene.add(written, number)
        for name in (scene.key(number), scene.index_key(number)):
            scene.objects[name].metadata["managedledgername"] = f"{MANAGED_LEDGER}-{number}"
    verification = scene.verification(deep=False)
    assert (list(verification), verification.summary.objects) == ([], 250)


def test_findings_are_given_as_objects_are_looked_at():
    """Also of objects whose indexes cannot be read: there may be any number of them."""
    scene = Scene()
    for number in range(3):
        scene.add(one_ledger(), number)
        scene.cut(scene.index_key(number), 10)
    verification = scene.verification(deep=False)
    found = next(iter(verification))
    assert (found.code, verification.summary.objects) == (Code.INDEX_TRUNCATED, 1)


class Noting(MemoryDriver):
    """It notes the keys that are read, in their order."""

    def __init__(self, tier):
        super().__init__(tier, Capabilities())
        self.read: list[str] = []

    @hookimpl
    def read_range(self, key, offset, length):
        self.read.append(key)
        return bytes(super().read_range(key, offset, length))

    @hookimpl
    def read_object(self, key, most_bytes):
        self.read.append(key)
        return super().read_object(key, most_bytes)


def test_indexes_wait_for_their_data_up_to_so_many_bytes(monkeypatch):
    scene = Scene()
    for number in range(30):
        scene.add(pip17_object([b"x"], ledger_id=number), number)
    index_bytes = len(scene.objects[scene.index_key()].data)
    monkeypatch.setattr("offload_core.maintenance.verify.verification.INDEX_BYTES_AT_ONCE", 5 * index_bytes)
    driver = Noting(in_memory_tier(scene.objects))
    assert list(Verification(Tier(driver), deep=True, executor=ThreadExecutor(1))) == []
    waiting = list(accumulate(1 if key.endswith("-index") else -1 for key in driver.read))
    assert (waiting[-1], 5 <= max(waiting) <= 8) == (0, True)


# --- Copies that stand in for those that records name are told apart from those that nothing needs.


def verified(scene, *, with_records=True):
    tier = Tier(MemoryDriver(in_memory_tier(scene.objects)))
    records = opened_records(scene.records) if with_records and scene.records else None
    verification = Verification(tier, records=records, now_ms=lambda: NOW_MS)
    return [each.code for each in verification], verification.summary


def standing_in(key):
    """A ledger's copy that its record names, and a newer one that says that it was made of it."""
    scene = pip17()
    scene.add(one_ledger(), 5, later=10)
    for name in (scene.key(1), scene.index_key(1)):
        scene.objects[name].metadata[key] = scene.key(0)
    return scene


@pytest.mark.parametrize("key", [MAPPED_KEY, REPAIRED_FROM_KEY])
def test_what_stands_in_is_counted_and_no_finding(key):
    found, summary = verified(standing_in(key))
    assert (found, summary.stand_ins, summary.unknown) == ([], 1, 0)


@pytest.mark.parametrize("later", [-10, 10])
def test_without_records_neither_copy_supersedes_the_other(later):
    assert verified(standing_in(MAPPED_KEY), with_records=False)[0] == []
    scene = pip17()
    scene.add(one_ledger(), 5, later=later)
    assert verified(scene, with_records=False)[0] == [Code.SUPERSEDED]


def test_copies_of_unlike_length_are_said_whether_one_stands_in_or_not():
    scene = standing_in(MAPPED_KEY)
    scene.add(pip17_object(PAYLOADS[:-3], ledger_id=LEDGER), 6, later=20)
    assert Code.COPIES_DIFFER in verified(scene, with_records=False)[0]


DELETED = copied(uuid_of(0), complete=False, bookkeeper_deleted=True)


@pytest.mark.parametrize(("ledger_id", "context"), [(LEDGER + 1, copied(uuid_of(0))), (LEDGER, DELETED)])
def test_what_stands_in_for_a_ledger_that_is_trimmed_or_being_deleted_is_an_orphan(ledger_id, context):
    scene = standing_in(MAPPED_KEY)
    scene.records = {TOPIC: managed_ledger(closed_ledger(ledger_id, PAYLOADS, context))}
    found, summary = verified(scene)
    assert (Code.ORPHAN in found, summary.stand_ins) == (True, 0)


@pytest.mark.parametrize(("half", "code"), [("index", Code.NO_INDEX), ("data", Code.NO_DATA)])
def test_half_of_one_is_said_as_such_unless_it_is_being_made(half, code):
    scene = standing_in(MAPPED_KEY)
    del scene.objects[scene.index_key(1) if half == "index" else scene.key(1)]
    assert verified(scene)[0] == [code]
    for name in (scene.key(1), scene.index_key(1)):
        if name in scene.objects:
            scene.objects[name].modified_at = datetime.fromtimestamp(NOW_MS / 1000 - 60, UTC)
    found, summary = verified(scene)
    assert (found, summary.stand_ins) == ([], 1)


def test_another_clusters_are_none_of_ours():
    scene = standing_in(MAPPED_KEY)
    for name in (scene.key(1), scene.index_key(1)):
        scene.objects[name].metadata["pulsarclustername"] = "west"
    found, summary = verified(scene)
    assert (found, summary.stand_ins, summary.unknown) == ([], 0, 1)


def test_what_a_repair_saved_by_a_live_pulsars_records_is_no_finding():
    scene = pip17()
    DAMAGES["a-block-is-zeros"].do(scene)
    tier = Tier(MemoryDriver(in_memory_tier(scene.objects)))
    repaired(scene, tier, quarantine=True)
    verification = Verification(tier, records=opened_records(scene.records), now_ms=lambda: NOW_MS)
    assert not {Code.ORPHAN, Code.SUPERSEDED} & {each.code for each in verification}
    assert verification.summary.stand_ins == 1


def test_what_a_mapping_names_is_no_finding(tmp_path):
    world = moved_by_mapping(tmp_path)
    url = f"sqlite:{tmp_path}/records.db"
    assert list(Verification(world.source)) == []
    verification = Verification(world.source, records=lambda: open_records(url, world.source, {}, {}))
    assert list(verification) == []
    assert verification.summary.stand_ins == 2
