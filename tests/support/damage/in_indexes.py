"""Damage that shows without the bytes of data objects: halves, lengths, user metadata, indexes."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import partial

from entries import pip17_object

from damage.corpus import Place, add, damage
from damage.scenes import (
    LEDGER,
    PAYLOADS,
    VERSION_NAME,
    Scene,
    first_segment,
    pip17,
    streaming,
    with_directory,
)
from offload_core.format.codec.index import BlockEntry
from offload_core.format.codec.ledger_metadata import LedgerInfo, LedgerMetadata
from offload_core.format.codec.pip17 import pack_pip17_index
from offload_core.format.codec.streaming import pack_streaming_index
from offload_core.maintenance.verify import Code

alone = partial(pip17, records=False)
segments = partial(streaming, records=False)

_METADATA_AT = 32


def of_index(scene: Scene, number: int = 0, **place: object) -> Place:
    """A place in an index object."""
    return {"key": scene.index_key(number), **place}


def blocks_at(scene: Scene) -> int:
    """The offset of the list of blocks in the index of a PIP-17 object."""
    return _METADATA_AT + int.from_bytes(scene.objects[scene.index_key()].data[28:32], "big")


# --- halves and lengths ----------------------------------------------------------------------------


@damage(alone, Code.NO_INDEX)
def index_is_gone(scene: Scene):
    del scene.objects[scene.index_key()]


@damage(alone, Code.NO_DATA)
def data_is_gone(scene: Scene):
    del scene.objects[scene.key()]


@damage(alone, Code.WRONG_LENGTH)
def data_is_cut_off_behind_a_block(scene: Scene) -> Place:
    scene.cut(scene.key(), scene.index().ledgers[0].blocks[-1].offset)
    return {"key": scene.key(), "offset": len(scene.objects[scene.key()].data)}


@damage(alone, Code.WRONG_LENGTH)
def data_goes_on(scene: Scene) -> Place:
    length = len(scene.objects[scene.key()].data)
    scene.objects[scene.key()].data += b"more"
    return {"key": scene.key(), "offset": length}


# --- user metadata ---------------------------------------------------------------------------------


@damage(alone, Code.NO_VERSION)
def data_has_no_version(scene: Scene) -> Place:
    del scene.objects[scene.key()].metadata[VERSION_NAME]
    return {"key": scene.key()}


@damage(alone, Code.NO_VERSION)
def index_has_no_user_metadata_but_names(scene: Scene) -> Place:
    del scene.objects[scene.index_key()].metadata[VERSION_NAME]
    return of_index(scene)


def say_in_index(scene: Scene, name: str, value: str) -> Place:
    scene.objects[scene.index_key()].metadata[name] = value
    return of_index(scene)


for _name, _code, _said in (
    ("version_is_two", Code.UNKNOWN_VERSION, (VERSION_NAME, "2")),
    ("index_says_it_is_data", Code.WRONG_ROLE, ("role", "data")),
    ("index_names_another_topic", Code.CONTRADICTION, ("managedledgername", "acme/cold/persistent/others")),
    ("index_names_another_cluster", Code.CONTRADICTION, ("pulsarclustername", "west")),
):
    add(_name, alone, _code, lambda scene, said=_said: say_in_index(scene, *said))


# --- PIP-17 indexes --------------------------------------------------------------------------------


@damage(alone, Code.INDEX_BAD_MAGIC)
def index_magic_has_a_flipped_bit(scene: Scene) -> Place:
    scene.flip(scene.index_key(), 2)
    return of_index(scene, offset=0, ledger_id=LEDGER)


@damage(alone, Code.INDEX_OTHER_FORMAT)
def index_is_a_streaming_one(scene: Scene) -> Place:
    scene.with_index(first_segment().index)
    return of_index(scene, offset=0)


def cut_index(scene: Scene, number: int, length: int, offset: int) -> Place:
    scene.cut(scene.index_key(number), length)
    return of_index(scene, number, offset=offset)


for _name, _scene, _cut in (
    ("index_is_cut_off", alone, (0, -1, 4)),
    ("index_is_empty", alone, (0, 0, 0)),
    ("streaming_index_is_cut_off", segments, (1, -5, 4)),
):
    add(_name, _scene, Code.INDEX_TRUNCATED, lambda scene, cut=_cut: cut_index(scene, *cut))


def set_in_index(scene: Scene, number: int, form: str, at: int, value: int, **place: object) -> Place:
    scene.set(scene.index_key(number), form, at, value)
    return of_index(scene, number, **{"offset": at} | place)


for _name, _field in {
    "index_is_shorter_than_its_blocks": ("i", 4, 60),
    "index_declares_other_headers": ("q", 16, 127),
    "index_declares_a_negative_data_length": ("q", 8, -1),
    "index_has_no_block": ("i", 24, 0),
}.items():
    add(_name, alone, Code.INDEX_BAD_LENGTH, lambda scene, field=_field: set_in_index(scene, 0, *field))


@damage(alone, Code.INDEX_BAD_LENGTH)
def index_has_too_many_blocks(scene: Scene) -> Place:
    return set_in_index(scene, 0, "i", 24, 1 << 30, offset=4)


@damage(alone, Code.WRONG_LENGTH)
def index_declares_a_longer_data_object(scene: Scene) -> Place:
    length = len(scene.objects[scene.key()].data)
    scene.set(scene.index_key(), "q", 8, length + 20)
    return {"key": scene.key(), "offset": length}


@damage(alone, Code.INDEX_BAD_LENGTH)
def index_has_a_block_behind_the_data(scene: Scene) -> Place:
    at = blocks_at(scene)
    return set_in_index(scene, 0, "q", at + 20 + 12, 1 << 40, offset=at, ledger_id=LEDGER)


@damage(alone, Code.INDEX_BAD_LENGTH)
def index_has_two_blocks_in_one_place(scene: Scene) -> Place:
    return set_in_index(scene, 0, "q", blocks_at(scene) + 20 + 12, 0, offset=blocks_at(scene))


@damage(alone, Code.INDEX_BAD_LENGTH)
def index_does_not_begin_with_entry_0(scene: Scene) -> Place:
    return set_in_index(scene, 0, "q", blocks_at(scene), 1)


@damage(alone, Code.INDEX_BLOCK_ORDER)
def index_has_two_blocks_of_one_first_entry(scene: Scene) -> Place:
    scene.set(scene.index_key(), "q", blocks_at(scene) + 20, 0)
    return of_index(scene, ledger_id=LEDGER, block=1)


@damage(alone, Code.INDEX_BLOCK_ORDER)
def index_has_blocks_in_reverse(scene: Scene) -> Place:
    at, data = blocks_at(scene), scene.objects[scene.index_key()].data
    scene.write(scene.index_key(), at + 20, data[at + 40 : at + 60] + data[at + 20 : at + 40])
    return of_index(scene, ledger_id=LEDGER)


@damage(alone, Code.INDEX_BLOCK_ORDER)
def index_ends_before_its_last_block(scene: Scene) -> Place:
    scene.with_index(repacked(scene, last_entry_id=4))
    return of_index(scene, ledger_id=LEDGER)


@damage(alone, Code.INDEX_BAD_METADATA)
def ledger_metadata_is_garbage(scene: Scene) -> Place:
    scene.write(scene.index_key(), _METADATA_AT, b"\xff" * 8)
    return of_index(scene, offset=_METADATA_AT, ledger_id=LEDGER)


@damage(alone, Code.INDEX_BAD_METADATA)
def ledger_metadata_has_no_last_entry(scene: Scene) -> Place:
    scene.with_index(repacked(scene, last_entry_id=None))
    return of_index(scene, offset=_METADATA_AT, ledger_id=LEDGER)


@damage(alone, Code.INDEX_OTHER_TOPIC)
def index_is_of_another_topic(scene: Scene) -> Place:
    custom = (("pulsar/managed-ledger", b"acme/cold/persistent/others"),)
    scene.with_index(repacked(scene, custom=custom))
    return of_index(scene, ledger_id=LEDGER)


@damage(with_directory, Code.INDEX_DIRECTORY)
def directory_has_a_flipped_bit(scene: Scene) -> Place:
    scene.flip(scene.index_key(), len(scene.objects[scene.index_key()].data) - 9)
    place = scene.index().ledgers  # the one without a directory: it stands where that ends
    assert place
    return of_index(scene, offset=len(scene.written[0].index))


def repacked(scene: Scene, **changes: object) -> bytes:
    """The index with other ledger metadata."""
    (ledger,) = scene.index().ledgers
    assert isinstance(ledger.metadata, LedgerMetadata)
    return pack_pip17_index(replace(ledger.metadata, **changes), ledger.blocks, scene.index().data_length)


# --- streaming indexes -----------------------------------------------------------------------------


@damage(segments, Code.INDEX_BAD_MAGIC)
def streaming_index_has_another_magic(scene: Scene) -> Place:
    return set_in_index(scene, 1, "I", 0, 0xCAFEBABE)


@damage(segments, Code.INDEX_OTHER_FORMAT)
def streaming_index_is_a_pip17_one(scene: Scene) -> Place:
    scene.with_index(pip17_object(PAYLOADS).index, 1)
    return of_index(scene, 1, offset=0)


@damage(segments, Code.INDEX_MISMATCH)
def streaming_index_has_a_ledger_twice(scene: Scene) -> Place:
    data = scene.objects[scene.index_key(1)].data
    scene.with_index(data[:4] + struct.pack(">i", 2 * len(data) - 24) + data[8:] + data[24:], 1)
    return of_index(scene, 1, offset=len(data), ledger_id=LEDGER)


@damage(segments, Code.INDEX_MISMATCH)
def streaming_index_has_another_ledgers_metadata(scene: Scene) -> Place:
    return set_in_index(scene, 1, "q", 24, 9, ledger_id=9)


@damage(segments, Code.INDEX_BAD_LENGTH)
def streaming_index_has_a_ledger_without_blocks(scene: Scene) -> Place:
    return set_in_index(scene, 1, "i", 32, 0, offset=24, ledger_id=LEDGER)


@damage(segments, Code.INDEX_BLOCK_ORDER, Code.GAP)
def streaming_index_has_a_negative_entry(scene: Scene) -> Place:
    index = scene.index(0)
    (ledger,) = index.ledgers
    blocks = [
        BlockEntry(first_entry_id=n, part_number=n + 2, offset=b.offset)
        for n, b in enumerate(ledger.blocks, -1)
    ]
    info = LedgerInfo(ledger_id=LEDGER, entries=9, timestamp_ms=0)
    scene.with_index(pack_streaming_index([(info, blocks)], index.data_length), 0)
    return of_index(scene, 0, ledger_id=LEDGER, block=1)
