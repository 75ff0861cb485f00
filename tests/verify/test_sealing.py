"""`--seal`: who gets checksums, which, and what is left when it is broken off."""

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta

import pytest
from crash_points import Killed, Points, watched
from damage import SCENES, Scene
from damage.in_checksums import place_of
from damage.scenes import LEDGER, PAYLOADS, in_memory_tier, mapfiles, pip17, streaming
from damage.sealed import sealed
from entries import pip17_object
from tiers import CLUSTER, MANAGED_LEDGER, MODIFIED_AT

from offload_core.format.codec.streaming import pack_streaming_index
from offload_core.maintenance.verify import Code, Sealing, Verification, VerifiedObjects
from offload_core.maintenance.verify.verified_objects import VERSION
from offload_core.storage.tier import Tier
from offload_core.writing.audit import Change, ChangeAction
from offload_hooks import Capabilities, ObjectStat, hookimpl
from offload_hooks.errors import FormatError, StoreError, StoreUnavailableError, UnsupportedVersionError
from offload_hooks.testing import MemoryDriver
from offload_hooks.testing.memory import MemoryObject

LOCATION = "memory:"


class Recorded:
    """An audit log, with what the tier had when a change was recorded."""

    def __init__(self, stored):
        self.changes: list[Change] = []
        self.then: Callable[[], None] = lambda: None
        self._stored = stored

    def record(self, change):
        assert change.key not in self._stored.objects or change.before is not None
        self.changes.append(change)
        self.then()


class Sealed:
    """A scene whose objects may be sealed, again and again."""

    def __init__(self, scene):
        self.stored = in_memory_tier(scene.objects)
        self.audit = Recorded(self.stored)

    def run(self, *, dry=False, driver=MemoryDriver, state=None, points=None, **options):
        layers = [] if points is None else [watched(points)]
        tier = Tier(driver(self.stored, Capabilities(create_only=True)), layers)
        sealing = Sealing(tier, None if dry else self.audit)
        verification = Verification(tier, deep=True, sealing=sealing, state=state, **options)
        return [each.code for each in verification], verification.summary

    def data(self, key):
        return self.stored.objects[key].data


@pytest.mark.parametrize(
    "name",
    [
        *("pip17", "directory", "streaming", "mapfile-record"),
        *("mapfile-block", "filtered", "filtered-segments"),
    ],
)
def test_what_is_sound_gets_checksums_that_hold(name):
    scene = SCENES[name]()
    world, count = Sealed(scene), len(scene.written)
    found, summary = world.run()
    assert (found, summary.with_checksums, summary.sealed) == ([], 0, count)
    found, summary = world.run()
    assert (found, summary.with_checksums, summary.sealed) == ([], count, 0)
    assert len(world.audit.changes) == count


@pytest.mark.parametrize("make", [pip17, streaming])
def test_they_are_as_the_format_says(make):
    world, expected = Sealed(make()), sealed(make())
    world.run()
    assert set(world.stored.objects) == set(expected.objects)
    for number in range(len(expected.written)):
        key = place_of(expected, number)
        assert world.data(key) == expected.objects[key].data


def test_a_dry_run_counts_and_writes_nothing():
    world = Sealed(streaming())
    before = set(world.stored.objects)
    _, summary = world.run(dry=True)
    assert (summary.sealed, set(world.stored.objects)) == (2, before)


def test_each_is_recorded_before_it_is_written():
    scene = pip17()
    world = Sealed(scene)
    world.run()
    (change,) = world.audit.changes
    assert change == Change(
        action=ChangeAction.WRITE,
        why="every byte of the object is right, and it has no checksums that can be read",
        managed_ledger="acme/cold/persistent/orders",
        ledger_id=7,
        uuid=scene.written[0].key.uuid,
        key=place_of(scene),
        after=f"CRC-32C of the index and {len(scene.index().ledgers[0].blocks)} blocks",
    )


@pytest.mark.parametrize("part", ["data", "index", "length"])
def test_what_is_damaged_gets_none(part):
    scene = pip17(records=False)
    scene.add(pip17_object(PAYLOADS, ledger_id=9), 5)
    if part == "data":
        scene.flip(scene.key(), scene.frame(3) + 40)
    elif part == "index":
        scene.flip(scene.index_key(), 0)
    else:
        scene.objects[scene.key()].data += b"more"
    world = Sealed(scene)
    found, summary = world.run()
    assert (len(found), summary.sealed) == (1, 1)
    assert place_of(scene) not in world.stored.objects
    assert place_of(scene, 1) in world.stored.objects


def contradicted(scene):
    other = pip17_object(PAYLOADS, ledger_id=7, max_block_bytes=1500)
    scene.objects[scene.key()].data, scene.objects[scene.index_key()].data = other.data, other.index


def of_a_newer_version(scene):
    scene.set(place_of(scene), "I", 4, 2)


@pytest.mark.parametrize(
    ("change", "code"), [(contradicted, Code.CHECKSUMS_OTHER), (of_a_newer_version, Code.CHECKSUMS_VERSION)]
)
def test_checksums_that_contradict_their_objects_or_are_newer_stay_as_they_are(change, code):
    scene = sealed(pip17(records=False))
    change(scene)
    world = Sealed(scene)
    assert world.run()[0] == world.run()[0] == [code]
    assert world.audit.changes == []


def test_damaged_checksums_are_made_anew():
    scene = sealed(mapfiles(checksums=False, records=False))
    scene.flip(place_of(scene), 50)
    world = Sealed(scene)
    assert world.run()[0] == [Code.CHECKSUMS_DAMAGED]
    assert world.audit.changes[0].before == "damaged checksums"
    assert world.run()[0] == []


def test_they_say_whose_they_are_where_their_key_does_not():
    for make, expected in (
        (pip17, {"role": "checksums", "managedledgername": MANAGED_LEDGER, "pulsarclustername": CLUSTER}),
        (mapfiles, {}),
    ):
        scene = make()
        world = Sealed(scene)
        world.run()
        assert world.stored.objects[place_of(scene)].stat.user_metadata == expected


def test_the_index_of_a_segment_may_have_its_ledgers_in_any_order():
    scene = streaming(records=False)
    index = scene.index(1)
    ledgers = [(ledger.metadata, ledger.blocks) for ledger in reversed(index.ledgers)]
    scene.with_index(pack_streaming_index(ledgers, index.data_length), 1)
    world = Sealed(scene)
    assert (world.run()[1].sealed, world.run()[0]) == (2, [])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "verified.db"


# --- what fails, and what comes between --------------------------------------------------------------


def meddling(happens):
    """A driver with which something happens just before checksums are written, under their key."""

    class Meddling(MemoryDriver):
        @hookimpl
        def write_index(self, key, data, create_only):
            happens(self.tier, key)
            return super().write_index(
                key=key, data=data, content_type="a/b", user_metadata={}, create_only=create_only
            )

    return Meddling


def fail(_, key):
    raise StoreUnavailableError("the store is tired", key=key)


def delete_all(tier, _):
    tier.objects.clear()


def written_later(objects, key):
    """One of these objects was written a minute later."""
    stat = objects[key].stat
    later = replace(stat, modified_at=stat.modified_at + timedelta(minutes=1))
    objects[key] = replace(objects[key], stat=later)


def written_anew(end):
    """An object of the pair is written anew, as long as it was."""

    def write(tier, _):
        for name in list(tier.objects):
            if name.endswith(end):
                written_later(tier.objects, name)

    return write


def write_theirs(tier, key):
    """The writer of the pair has written its checksums meanwhile."""
    stat = ObjectStat(key=key, size_bytes=6, modified_at=MODIFIED_AT)
    tier.objects[key] = MemoryObject(blocks=(b"theirs",), stat=stat)


def test_what_could_not_be_written_is_said_and_the_next_time_written():
    world = Sealed(streaming())
    _, summary = world.run(driver=meddling(fail))
    assert (summary.sealed, summary.failed) == (0, 2)
    assert str(summary.failures[0]).startswith("the store is tired")
    _, summary = world.run()
    assert (summary.sealed, summary.failed) == (2, 0)


def test_checksums_of_what_vanished_meanwhile_do_not_stay():
    world = Sealed(pip17(records=False))
    _, summary = world.run(driver=meddling(delete_all))
    assert (summary.sealed, summary.failed, dict(world.stored.objects)) == (0, 0, {})


@pytest.mark.parametrize("end", ["-ledger-7", "-index"])
def test_what_was_written_anew_meanwhile_is_not_sealed_by_what_it_was(end, path):
    scene = pip17(records=False)
    world = Sealed(scene)
    with VerifiedObjects(path, LOCATION) as state:
        assert world.run(driver=meddling(written_anew(end)), state=state)[1].sealed == 0
    assert place_of(scene) not in world.stored.objects
    with VerifiedObjects(path, LOCATION) as state:
        _, summary = world.run(state=state)
    assert (summary.sealed, summary.skipped) == (1, 0)


@pytest.mark.parametrize("fault", ["kill before", "kill after"])
@pytest.mark.parametrize("is_gone", [False, True])
def test_who_is_killed_leaves_no_checksums_of_what_was_there_before(fault, is_gone):
    """The pair is written anew, or deleted, after it was verified and before its checksums are written."""
    for at in itertools.count(1):
        scene, other = pip17(records=False), Scene()
        other.add(pip17_object(PAYLOADS, ledger_id=7, max_block_bytes=1500), 0)
        world, points = Sealed(scene), Points(at, fault)

        def change(world=world, other=other):
            world.stored.objects.clear()
            world.stored.objects.update(in_memory_tier({} if is_gone else other.objects).objects)
            for key in list(world.stored.objects):
                written_later(world.stored.objects, key)

        world.audit.then = change
        with suppress(Killed):
            world.run(points=points)
        assert world.run(dry=True)[0] == []
        if len(points.calls) < at:
            assert len(world.audit.changes) == 1
            assert set(world.stored.objects) == (set() if is_gone else set(scene.objects))
            assert world.run()[1].sealed == (not is_gone)
            return


def test_whoever_wrote_checksums_meanwhile_keeps_theirs():
    scene = pip17(records=False)
    world = Sealed(scene)
    world.run(driver=meddling(write_theirs))
    assert world.data(place_of(scene)) == b"theirs"


def test_many_are_written_some_at_a_time():
    scene = Scene()
    for number in range(300):
        scene.add(pip17_object([b"x"], ledger_id=number), number)
    assert Sealed(scene).run()[1].sealed == 300


# --- with a state ------------------------------------------------------------------------------------


def test_what_was_verified_before_is_read_again_to_be_sealed_and_not_after_that(path):
    world = Sealed(streaming())
    skipped = []
    for dry in (True, False, False):
        with VerifiedObjects(path, LOCATION) as state:
            _, summary = world.run(dry=dry, state=state)
            skipped.append((summary.deep_objects, summary.skipped, summary.sealed))
    assert skipped == [(2, 0, 2), (2, 0, 2), (0, 2, 0)]


def test_what_is_beside_a_pair_is_noticed_when_it_changes(path):
    world = Sealed(mapfiles())
    with VerifiedObjects(path, LOCATION) as state:
        world.run(state=state)
    beside = [key for key in world.stored.objects if key.endswith((".crc", "_checksums"))]
    assert len(beside) == 3
    for key in beside:
        written_later(world.stored.objects, key)
        for expected in (0, 1):
            with VerifiedObjects(path, LOCATION) as state:
                assert world.run(state=state)[1].skipped == expected


# --- by checksums alone ------------------------------------------------------------------------------


def test_only_what_has_checksums_is_compared_with_them_and_no_state_takes_it_for_verified(path):
    scene = sealed(pip17(records=False))
    scene.add(pip17_object(PAYLOADS, ledger_id=9), 5)
    world, looked_at = Sealed(scene), []
    for by_checksums in (True, True, False):
        with VerifiedObjects(path, LOCATION) as state:
            found, summary = world.run(dry=True, state=state, by_checksums=by_checksums)
            assert found == []
            looked_at.append((summary.deep_objects, summary.compared_objects, summary.entries))
    assert looked_at == [(2, 1, 16), (2, 1, 16), (2, 0, 32)]


# --- What was verified is passed over the next time: if it was sound, and has not changed since.


def verify(scene, path):
    """The summary of a verification that has run."""
    with VerifiedObjects(path, LOCATION) as state:
        verification = scene.verification(deep=True, state=state)
        list(verification)
    return verification.summary


def read_and_skipped(scene, path):
    summary = verify(scene, path)
    return summary.deep_objects, summary.skipped


def test_what_is_sound_is_read_once(path):
    scene = streaming()
    assert read_and_skipped(scene, path) == (2, 0)
    assert read_and_skipped(scene, path) == (0, 2)
    scene.add(pip17_object(PAYLOADS, ledger_id=9), 5)
    assert read_and_skipped(scene, path) == (1, 2)


@pytest.mark.parametrize("part", ["data", "index"])
@pytest.mark.parametrize("change", ["size", "time"])
def test_what_has_changed_is_read_again(path, part, change):
    scene = pip17()
    verify(scene, path)
    stored = scene.objects[scene.key() if part == "data" else scene.index_key()]
    if change == "time":
        stored.modified_at += timedelta(microseconds=1)
        assert read_and_skipped(scene, path) == (1, 0)
    else:
        stored.data += b"more"
        assert verify(scene, path).skipped == 0


@pytest.mark.parametrize("code", [Code.MESSAGE_CHECKSUM, Code.WRONG_LENGTH])
def test_what_is_wrong_is_read_and_said_each_time(path, code):
    scene = pip17(records=False)
    if code is Code.MESSAGE_CHECKSUM:
        scene.flip(scene.key(), scene.frame(3) + 40)
    else:  # which its bytes do not show
        scene.objects[scene.key()].data += b"more"
    for _ in range(2):
        summary = verify(scene, path)
        assert (summary.findings, summary.deep_objects, summary.skipped) == ({code: 1}, 1, 0)


def test_what_was_counted_is_known_without_reading(path):
    """The end of a segment is known by its bytes only, and its record says another one."""
    scene = streaming()
    verify(scene, path)
    scene.change_share(0, lambda old: replace(old, end_entry_id=9), 8)
    scene.change_record(lambda old: replace(old, info=replace(old.info, entries=None, timestamp_ms=0)), 8)
    summary = verify(scene, path)
    assert (summary.skipped, summary.findings) == (2, {Code.SEGMENT_END: 1})


def test_a_verification_that_is_broken_off_keeps_what_it_has(path):
    scene = Scene()
    for number in range(5):
        scene.add(pip17_object(PAYLOADS, ledger_id=LEDGER + number), number)
    scene.flip(scene.key(4), scene.frame(0, 4, LEDGER + 4) + 40)

    def broken_off():
        with VerifiedObjects(path, LOCATION) as state:
            for _ in scene.verification(deep=True, state=state):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert verify(scene, path).skipped == 4


# --- files that are none ---------------------------------------------------------------------------


def opened(path, location=LOCATION):
    with VerifiedObjects(path, location):
        pass


@pytest.fixture
def made(path):
    verify(pip17(), path)
    return path


def test_a_file_of_another_tier_is_refused(made):
    with pytest.raises(FormatError, match="of another tier") as caught:
        opened(made, "s3://other")
    assert (caught.value.expected, caught.value.found) == ("s3://other", LOCATION)


def test_a_newer_version_is_refused(made):
    with closing(sqlite3.connect(made)) as file:
        file.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(UnsupportedVersionError) as caught:
        opened(made)
    assert (caught.value.expected, caught.value.found) == (VERSION, VERSION + 1)


def test_another_programs_database_is_refused(path):
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE cats (name TEXT)")
    with pytest.raises(FormatError, match="another program"):
        opened(path)


def test_what_is_no_database_is_refused(path):
    path.write_bytes(b"a picture of a cat" * 100)
    with pytest.raises(
        FormatError, match=r"this is no file of verified objects, or it is damaged.*Remove it"
    ):
        opened(path)
    assert path.read_bytes().startswith(b"a picture")


def test_a_damaged_file_is_refused(made):
    data = bytearray(made.read_bytes())
    for offset in range(4096, len(data), 7):
        data[offset] ^= 0xFF
    made.write_bytes(data)
    with pytest.raises(FormatError, match="damaged"):
        opened(made)


def test_a_row_that_cannot_be_read_is_an_error(made):
    with closing(sqlite3.connect(made)) as file:
        file.execute("UPDATE verified SET counts = '[{}]'")
        file.commit()
    with pytest.raises(FormatError, match="a row cannot be read"):
        verify(pip17(), made)


def test_a_file_that_cannot_be_made_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="cannot be used"):
        opened(tmp_path / "no" / "such" / "folder")
