"""Flipped bits, zeroed and cut ranges anywhere: what is untouched and can be told apart is found, and nothing else."""

from random import Random

import pytest
from damage import Scene
from damage.scenes import FileCompression, mapfiles, pip17, streaming
from scenes.repairs import truth_of

from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.mapfile.record_batches import deflate
from offload_core.maintenance.repair.damaged_contents import (
    Expected,
    ObjectBytes,
    read_contents,
    read_mapfile_contents,
)

MAKE = {
    "pip17": lambda: pip17(records=False),
    "streaming": lambda: streaming(records=False),
    "mapfile-plain": lambda: mapfiles(FileCompression.NONE, checksums=False, records=False),
    "mapfile-record": lambda: mapfiles(checksums=False, records=False),
    "mapfile-block": lambda: mapfiles(FileCompression.BLOCK, checksums=False, records=False),
}
SAMPLES = 150


def damaged(data, random):
    """Bytes, damaged somehow, and which of them are not what they were, or not there."""
    changed, touched = bytearray(data), set[int]()
    kind = random.choice(["flip", "flip", "zero", "cut", "noise"])
    begin, length = random.randrange(len(data)), random.choice([1, 8, 40, 300, 1500])
    if kind == "flip":
        for _ in range(random.choice([1, 1, 2, 3])):
            at = random.randrange(len(data))
            changed[at] ^= 1 << random.randrange(8)
            touched.add(at)
    elif kind == "cut":
        touched = set(range(begin, len(data)))
        del changed[begin:]
    else:
        end = min(begin + length, len(data))
        changed[begin:end] = bytes(end - begin) if kind == "zero" else random.randbytes(end - begin)
        touched = set(range(begin, end))
    return bytes(changed), touched


def contents_of(scene, number):
    key = scene.written[number].key
    data = ObjectBytes(scene.tier(), key.data_key, len(scene.objects[key.data_key].data))
    if key.is_mapfile:
        return read_mapfile_contents(data, key, Expected()).contents, key
    index = parse_index(scene.objects[key.index_key].data, key)
    stops = {
        of: 1 + max(i for each, i in truth_of(scene, number) if each == of)
        for of, _ in truth_of(scene, number)
    }
    expected = {of: Expected(stop=stop) for of, stop in stops.items()}
    return read_contents(data, key, index=index, expected=expected, gaps=False), key


def places(scene, number, truth):
    """The bytes of each entry with its frame; of MapFiles with its record, and none in blocks."""
    key = scene.written[number].key
    if not key.is_mapfile:
        return {
            (of, i): range(scene.frame(i, number, of), scene.frame(i, number, of) + 12 + len(payload))
            for (of, i), payload in truth.items()
        }
    data, found = scene.objects[key.data_key].data, {}
    for place, payload in truth.items():
        for value in (len(payload).to_bytes(4, "big") + payload,):
            stored = next((each for each in (value, deflate(value)) if each in data), None)
            if stored is not None:
                at = data.index(stored)
                found[place] = range(at - 16, at + len(stored))
    return found


def check(name, seed):
    random, scene = Random(seed), MAKE[name]()
    number = random.randrange(len(scene.written))
    truth = truth_of(scene, number)
    where = places(scene, number, truth)
    key = scene.key(number)
    scene.objects[key].data, touched = damaged(scene.objects[key].data, random)
    contents, _ = contents_of(scene, number)
    found = {
        (ledger.ledger_id, entry.entry_id): contents.payload(entry)
        for ledger in contents.ledgers
        for entry in ledger.entries
    }
    assert all(truth.get(place) == payload for place, payload in found.items()), seed
    if len(touched) == 1:  # what surrounds an entry tells which it is, so one byte costs one entry at most
        intact = {place for place, at in where.items() if not touched & set(at)}
        assert intact <= set(found) or name.startswith("mapfile"), (seed, intact - set(found))


@pytest.mark.parametrize("name", MAKE)
def test_nothing_is_invented_and_what_is_untouched_is_found(name):
    for seed in range(SAMPLES):
        check(name, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("name", MAKE)
def test_the_same_of_many_more(name):
    for seed in range(SAMPLES, 50 * SAMPLES):
        check(name, seed)


def test_entries_inside_a_message_are_not_taken_for_others():
    """A message that is a piece of an offloaded object, whose own frame is damaged."""
    from entries import entry, pip17_object

    inner = pip17_object([entry(b"inner %d" % i * 9) for i in range(12)], ledger_id=9).data
    payloads = [entry(b"a" * 50), entry(b"b" * 50), entry(inner), *(entry(b"c%d" % i * 30) for i in range(6))]
    scene = Scene()
    scene.add(pip17_object(payloads, ledger_id=7, max_block_bytes=1 << 16), 0)
    at = scene.frame(2)
    scene.set(scene.key(), "i", at, -5)
    contents, _ = contents_of(scene, 0)
    truth = truth_of(scene)
    found = {(7, entry.entry_id): contents.payload(entry) for entry in contents.ledgers[0].entries}
    assert all(truth[place] == payload for place, payload in found.items())
    scene.flip(scene.key(), at + 12 + 200)  # its bytes as well: now it is lost
    contents, _ = contents_of(scene, 0)
    found = {(7, entry.entry_id): contents.payload(entry) for entry in contents.ledgers[0].entries}
    assert found == {place: payload for place, payload in truth.items() if place != (7, 2)}
