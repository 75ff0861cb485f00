"""Flipped bits, zeroed and cut ranges anywhere: what is untouched and can be told apart is found, and nothing else."""

from random import Random

import pytest
from damage import Scene
from damage.scenes import FileCompression, mapfiles, pip17, streaming
from entries import entry, pip17_object
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


def found_in(scene, number):
    """The entries that are found in an object."""
    key = scene.written[number].key
    data = ObjectBytes(scene.tier(), key.data_key, len(scene.objects[key.data_key].data))
    if key.is_mapfile:
        contents = read_mapfile_contents(data, key, Expected()).contents
    else:
        index = parse_index(scene.objects[key.index_key].data, key)
        expected = {of: Expected(stop=i + 1) for of, i in sorted(truth_of(scene, number))}
        contents = read_contents(data, key, index=index, expected=expected, gaps=False)
    return {
        (ledger.ledger_id, found.entry_id): contents.payload(found)
        for ledger in contents.ledgers
        for found in ledger.entries
    }


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
        value = len(payload).to_bytes(4, "big") + payload
        for stored in (value, deflate(value)):
            if stored in data:
                found[place] = range(data.index(stored) - 16, data.index(stored) + len(stored))
                break
    return found


def check(name, seed):
    random, scene = Random(seed), MAKE[name]()
    number = random.randrange(len(scene.written))
    truth = truth_of(scene, number)
    where = places(scene, number, truth)
    key = scene.key(number)
    scene.objects[key].data, touched = damaged(scene.objects[key].data, random)
    found = found_in(scene, number)
    assert all(truth.get(place) == payload for place, payload in found.items()), seed
    if len(touched) == 1:  # what surrounds an entry tells which it is, so one byte costs one entry at most
        intact = {place for place, at in where.items() if not touched & set(at)}
        assert intact <= set(found) or name.startswith("mapfile"), (seed, intact - set(found))


@pytest.mark.long
@pytest.mark.parametrize(
    "seeds",
    [range(SAMPLES), pytest.param(range(SAMPLES, 50 * SAMPLES), marks=pytest.mark.nightly)],
    ids=["some", "many more"],
)
@pytest.mark.parametrize("name", MAKE)
def test_nothing_is_invented_and_what_is_untouched_is_found(name, seeds):
    for seed in seeds:
        check(name, seed)


def test_entries_inside_a_message_are_not_taken_for_others():
    """A message that is a piece of an offloaded object, whose own frame is damaged."""
    inner = pip17_object([entry(b"inner %d" % i * 9) for i in range(12)], ledger_id=9).data
    payloads = [entry(b"a" * 50), entry(b"b" * 50), entry(inner), *(entry(b"c%d" % i * 30) for i in range(6))]
    scene = Scene()
    scene.add(pip17_object(payloads, ledger_id=7, max_block_bytes=1 << 16), 0)
    at = scene.frame(2)
    scene.set(scene.key(), "i", at, -5)
    truth = truth_of(scene)
    assert all(truth[place] == payload for place, payload in found_in(scene, 0).items())
    scene.flip(scene.key(), at + 12 + 200)  # its bytes as well: now it is lost
    assert found_in(scene, 0) == {place: payload for place, payload in truth.items() if place != (7, 2)}
