"""What was verified is passed over the next time: if it was sound, and has not changed since."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from damage import Scene
from damage.in_records import change_share
from damage.scenes import LEDGER, PAYLOADS, pip17, streaming
from entries import pip17_object

from offload_core.maintenance.verify import Code, Verification, VerifiedObjects
from offload_core.maintenance.verify.verified_objects import VERSION
from offload_hooks.errors import FormatError, StoreError, UnsupportedVersionError

LOCATION = "memory:"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "verified.db"


def verify(scene: Scene, path: Path) -> Verification:
    """A verification that has run; its findings are counted."""
    with VerifiedObjects(path, LOCATION) as state:
        verification = scene.verification(deep=True, state=state)
        for _ in verification:
            pass
    return verification


def read_and_skipped(scene: Scene, path: Path) -> tuple[int, int]:
    summary = verify(scene, path).summary
    return summary.deep_objects, summary.skipped


def test_what_is_sound_is_read_once(path: Path) -> None:
    scene = streaming()
    assert read_and_skipped(scene, path) == (2, 0)
    assert read_and_skipped(scene, path) == (0, 2)
    scene.add(pip17_object(PAYLOADS, ledger_id=9), 5)
    assert read_and_skipped(scene, path) == (1, 2)


@pytest.mark.parametrize("part", ["data", "index"])
@pytest.mark.parametrize("change", ["size", "time"])
def test_what_has_changed_is_read_again(path: Path, part: str, change: str) -> None:
    scene = pip17()
    verify(scene, path)
    stored = scene.objects[scene.key() if part == "data" else scene.index_key()]
    if change == "time":
        stored.modified_at += timedelta(microseconds=1)
        assert read_and_skipped(scene, path) == (1, 0)
    else:
        stored.data += b"more"
        assert verify(scene, path).summary.skipped == 0


def test_what_is_wrong_is_said_each_time(path: Path) -> None:
    scene = pip17()
    scene.flip(scene.key(), scene.frame(3) + 40)
    for _ in range(2):
        verification = verify(scene, path)
        assert verification.summary.findings == {Code.MESSAGE_CHECKSUM: 1}
        assert verification.summary.skipped == 0


def test_what_is_wrong_without_its_bytes_is_read_each_time(path: Path) -> None:
    scene = pip17(records=False)
    scene.objects[scene.key()].data += b"more"
    for _ in range(2):
        summary = verify(scene, path).summary
        assert (summary.findings, summary.deep_objects, summary.skipped) == ({Code.WRONG_LENGTH: 1}, 1, 0)


def test_what_was_counted_is_known_without_reading(path: Path) -> None:
    """The end of a segment is known by its bytes only, and its record says another one."""
    scene = streaming()
    verify(scene, path)
    change_share(scene, 0, lambda old: replace(old, end_entry_id=9), 8)
    scene.change_record(lambda old: replace(old, info=replace(old.info, entries=None, timestamp_ms=0)), 8)
    verification = verify(scene, path)
    assert (verification.summary.skipped, verification.summary.findings) == (2, {Code.SEGMENT_END: 1})


def test_a_verification_that_is_broken_off_keeps_what_it_has(path: Path) -> None:
    scene = Scene()
    for number in range(5):
        scene.add(pip17_object(PAYLOADS, ledger_id=LEDGER + number), number)
    scene.flip(scene.key(4), scene.frame(0, 4, LEDGER + 4) + 40)

    def broken_off() -> None:
        with VerifiedObjects(path, LOCATION) as state:
            for _ in scene.verification(deep=True, state=state):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    assert verify(scene, path).summary.skipped == 4


# --- files that are none ---------------------------------------------------------------------------


def opened(path: Path, location: str = LOCATION) -> None:
    with VerifiedObjects(path, location):
        pass


@pytest.fixture
def made(path: Path) -> Path:
    verify(pip17(), path)
    return path


def test_a_file_of_another_tier_is_refused(made: Path) -> None:
    with pytest.raises(FormatError, match="of another tier") as caught:
        opened(made, "s3://other")
    assert (caught.value.expected, caught.value.found) == ("s3://other", LOCATION)


def test_a_newer_version_is_refused(made: Path) -> None:
    with closing(sqlite3.connect(made)) as file:
        file.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(UnsupportedVersionError) as caught:
        opened(made)
    assert (caught.value.expected, caught.value.found) == (VERSION, VERSION + 1)


def test_another_programs_database_is_refused(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE cats (name TEXT)")
    with pytest.raises(FormatError, match="another program"):
        opened(path)


def test_what_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"a picture of a cat" * 100)
    with pytest.raises(
        FormatError, match=r"this is no file of verified objects, or it is damaged.*Remove it"
    ):
        opened(path)
    assert path.read_bytes().startswith(b"a picture")


def test_a_damaged_file_is_refused(made: Path) -> None:
    data = bytearray(made.read_bytes())
    for offset in range(4096, len(data), 7):
        data[offset] ^= 0xFF
    made.write_bytes(data)
    with pytest.raises(FormatError, match="damaged"):
        opened(made)


def test_a_row_that_cannot_be_read_is_an_error(made: Path) -> None:
    with closing(sqlite3.connect(made)) as file:
        file.execute("UPDATE verified SET counts = '[{}]'")
        file.commit()
    with pytest.raises(FormatError, match="a row cannot be read"):
        verify(pip17(), made)


def test_a_file_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be used"):
        opened(tmp_path / "no" / "such" / "folder")
