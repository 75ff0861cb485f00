"""Every kind of damage is found, with its code and at its place; of what is sound nothing is said."""

from collections.abc import Callable
from functools import partial

import pytest
from damage import DAMAGES, SCENES, Scene
from damage.scenes import LEDGER, mapfiles, pip17, streaming
from entries import entry, pip17_object
from golden import PIP17_CASES, STREAMING_CASES
from mapfiles import lay_out_golden
from records import MANAGED_LEDGERS
from tiers import lay_out_broker_objects, lay_out_case

from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_core.maintenance.verify import Code, Verification
from offload_core.metadata.catalogue import open_records
from offload_core.storage.tier import open_store


def at(finding, place):
    return all(getattr(finding, name) == value for name, value in place.items())


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=lambda damage: damage.name)
def test_damage_is_found_with_its_code_at_its_place(damage):
    scene, place = damage.make()
    found = scene.findings(deep=damage.deep)
    right = [finding for finding in found if finding.code is damage.code and at(finding, dict(place))]
    assert len(right) == 1, found
    assert {finding.code for finding in found} == {damage.code, *damage.also}, found
    if damage.deep:
        for ranges_ahead in (0, 3):
            assert scene.findings(range_bytes=512, ranges_ahead=ranges_ahead) == found, "in small windows"
        assert damage.code not in {finding.code for finding in scene.findings(deep=False)}
    else:
        deep = scene.findings(deep=True)
        assert [each for each in deep if each.code is damage.code and at(each, dict(place))], deep


SEALED = [each for each in DAMAGES.values() if each.deep and each.scene().has_block_checksums]


@pytest.mark.parametrize("ranges_ahead", [0, 3])
@pytest.mark.parametrize("damage", SEALED, ids=lambda damage: damage.name)
def test_checksums_alone_show_what_was_changed_since(damage, ranges_ahead):
    scene, place = damage.make()
    tier = scene.tier(range_bytes=512, ranges_ahead=ranges_ahead)
    verification = scene.verification(deep=True, tier=tier, by_checksums=True)
    (finding,) = verification
    assert (finding.code, at(finding, dict(place))) == (Code.CHECKSUMS_BLOCK, True)
    assert (verification.summary.compared_objects, verification.summary.entries) == (len(scene.written), 0)


@pytest.mark.parametrize("deep", [False, True], ids=["metadata", "deep"])
@pytest.mark.parametrize("make", SCENES.values(), ids=SCENES)
def test_of_what_is_sound_nothing_is_said(make, deep):
    assert make().findings(deep=deep) == []


def test_every_code_has_its_damage():
    assert len(DAMAGES) >= 40
    elsewhere = {Code.STALE_UPLOAD, Code.ELSEWHERE, Code.MORE, Code.UNREADABLE_METADATA}
    shown = {code for damage in DAMAGES.values() for code in (damage.code, *damage.also)}
    assert set(Code) - shown == elsewhere


# --- golden objects --------------------------------------------------------------------------------


def findings(root, *, records=None):
    with open_store(root) as tier:
        opened = None if records is None else (lambda: open_records(records, tier, {}))
        return list(Verification(tier, deep=True, records=opened))


@pytest.mark.parametrize("records", [None, str(MANAGED_LEDGERS)], ids=["listing", "records"])
def test_what_a_broker_wrote_is_sound(tmp_path, records):
    lay_out_broker_objects(tmp_path)
    assert findings(tmp_path, records=records) == []


def test_what_a_broker_wrote_to_a_filesystem_is_sound(tmp_path):
    lay_out_golden(tmp_path)
    assert findings(tmp_path) == []


@pytest.mark.parametrize(("folder", "cases"), [("pip17", PIP17_CASES), ("streaming", STREAMING_CASES)])
def test_what_pulsars_offloaders_wrote_is_sound(tmp_path, folder, cases):
    for case in cases:
        lay_out_case(tmp_path, folder, case)
    assert findings(tmp_path) == []


def test_what_pulsars_offloaders_damaged_is_found(tmp_path):
    lay_out_case(tmp_path, "java-damaged", "st-drift")
    lay_out_case(tmp_path, "java-damaged", "v1-oversized-entry")
    found = {(each.code, each.key, each.offset) for each in findings(tmp_path)}
    drift = "00000000-1111-4222-8333-00000000006b"
    assert (Code.WRONG_LENGTH, drift, 10524076) in found
    assert (Code.ENTRY_BAD_LENGTH, drift, 5281184) in found  # the entry that reaches past its block
    assert (Code.BLOCK_BAD_MAGIC, drift, 5281196) in found  # where the next block should begin
    dropped = "00000000-1111-4222-8333-00000000000c-ledger-1012-index"
    assert {(code, offset) for code, key, offset in found if key == dropped} == {(Code.INDEX_BAD_LENGTH, 203)}


# --- One flipped bit anywhere in a data object is found, wherever it lies: headers, frames, payloads, padding.


SOUND: dict[str, Callable[[], Scene]] = {
    "pip17": partial(pip17, records=False),
    "streaming": partial(streaming, records=False),
    "mapfile-record": partial(mapfiles, records=False),
    "mapfile-block": partial(mapfiles, FileCompression.BLOCK, records=False),
}


def undetected(make, offsets):
    """The bytes and bits whose flip is not found."""
    missed = []
    for offset, bit in offsets:
        scene = make()
        scene.flip(scene.key(), offset, bit)
        if not scene.findings(deep=True):
            missed.append((offset, bit))
    return missed


@pytest.mark.parametrize("name", SOUND)
def test_any_flipped_bit_is_found(name, sample):
    scene = SOUND[name]()
    length = len(scene.objects[scene.key()].data)
    offsets = [(offset, (offset + add) % 8) for offset in range(length) for add in (0, 5)]
    assert undetected(SOUND[name], sample(offsets, 102)) == []


def one_entry():
    """An object whose only entry tells nothing but what it is itself."""
    scene = Scene()
    scene.add(pip17_object([entry(b"a payload" * 20)], ledger_id=LEDGER), 0)
    return scene


@pytest.mark.long
def test_every_flipped_bit_behind_the_magic_of_a_single_entry_is_found():
    length = len(one_entry().objects[one_entry().key()].data)
    magic = range(140, 142)  # without it and with bytes that are no entry, it may be no entry of Pulsar's
    offsets = [(offset, offset % 8) for offset in range(length) if offset not in magic]
    assert undetected(one_entry, offsets) == []
