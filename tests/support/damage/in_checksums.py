"""Damage that only checksums beside the objects show, and damage of these."""

from __future__ import annotations

from entries import pip17_object

from damage.corpus import Place, damage
from damage.in_indexes import repacked
from damage.scenes import LEDGER, PAYLOADS, Scene, mapfiles, pip17, plain_entries, streaming
from damage.sealed import blocks_of, checksums, checksums_key, sealed
from offload_core.maintenance.verify import Code


def plain() -> Scene:
    return sealed(plain_entries())


def one() -> Scene:
    return sealed(pip17(records=False))


def two() -> Scene:
    return sealed(streaming(records=False))


def place_of(scene: Scene, number: int = 0) -> str:
    """The key of an object's checksums."""
    return checksums_key(scene.written[number].key)


@damage(plain, Code.CHECKSUMS_BLOCK, deep=True)
def an_entry_without_a_checksum_was_changed(scene: Scene) -> Place:
    scene.flip(scene.key(), scene.objects[scene.key()].data.index(b"plain"))
    return {"key": scene.key(), "ledger_id": LEDGER, "block": 1, "offset": 0}


@damage(two, Code.CHECKSUMS_BLOCK, Code.BLOCK_HEADER_REST, deep=True)
def the_header_of_a_later_ledgers_block_was_changed(scene: Scene) -> Place:
    block = scene.index(1).ledgers[1].blocks[0]
    scene.flip(scene.key(1), block.offset + 100)
    return {"key": scene.key(1), "ledger_id": 8, "block": block.part_number, "offset": block.offset}


@damage(
    lambda: sealed(mapfiles(checksums=False, records=False)),
    Code.CHECKSUMS_BLOCK,
    Code.MAPFILE_DAMAGED,
    deep=True,
)
def a_sealed_mapfile_has_a_flipped_bit(scene: Scene) -> Place:
    scene.flip(scene.key(), len(scene.objects[scene.key()].data) // 2)
    return {"key": scene.key(), "offset": len(scene.objects[scene.key()].data) // 2 // 1000 * 1000}


@damage(one, Code.CHECKSUMS_INDEX)
def a_sealed_index_says_something_else(scene: Scene) -> Place:
    """Change the ledger's creation time, which readers do not need."""
    old, new = scene.objects[scene.index_key()].data, repacked(scene, ctime_ms=1)
    scene.with_index(new + bytes(len(old) - len(new)))
    return {"key": scene.index_key(), "ledger_id": LEDGER}


@damage(one, Code.CHECKSUMS_OTHER)
def sealed_objects_were_replaced_by_sound_ones(scene: Scene) -> Place:
    other = pip17_object(PAYLOADS, ledger_id=LEDGER, max_block_bytes=1500)
    scene.objects[scene.key()].data, scene.objects[scene.index_key()].data = other.data, other.index
    return {"key": place_of(scene)}


@damage(one, Code.CHECKSUMS_OTHER)
def checksums_are_of_other_blocks(scene: Scene) -> Place:
    blocks = blocks_of(scene.objects[scene.key()].data, scene.written[0].key)
    index = scene.objects[scene.index_key()].data
    scene.put(place_of(scene), checksums(index, [blocks[0] + blocks[1], *blocks[2:]]))
    return {"key": place_of(scene)}


@damage(one, Code.CHECKSUMS_DAMAGED)
def checksums_have_a_flipped_bit(scene: Scene) -> Place:
    scene.flip(place_of(scene), 50)
    return {"key": place_of(scene)}


@damage(one, Code.CHECKSUMS_DAMAGED)
def checksums_are_cut_off(scene: Scene) -> Place:
    scene.cut(place_of(scene), -1)
    return {"key": place_of(scene), "offset": 28}


@damage(one, Code.CHECKSUMS_DAMAGED)
def checksums_are_empty(scene: Scene) -> Place:
    scene.cut(place_of(scene), 0)
    return {"key": place_of(scene)}


@damage(one, Code.CHECKSUMS_VERSION)
def checksums_are_of_a_newer_version(scene: Scene) -> Place:
    blocks = blocks_of(scene.objects[scene.key()].data, scene.written[0].key)
    scene.put(place_of(scene), checksums(scene.objects[scene.index_key()].data, blocks, version=2))
    return {"key": place_of(scene), "offset": 4}


@damage(one, Code.CHECKSUMS_ORPHAN)
def a_broker_deleted_a_sealed_ledger(scene: Scene) -> Place:
    del scene.objects[scene.key()], scene.objects[scene.index_key()]
    return {"key": place_of(scene)}
