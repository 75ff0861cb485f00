"""Damage in MapFiles, with their files of checksums and without."""

from __future__ import annotations

from functools import partial

from mapfiles import index_file, mapfile

from damage.corpus import Place, damage
from damage.scenes import LEDGER, PAYLOADS, Scene, mapfiles
from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_core.maintenance.verify import Code

bare = partial(mapfiles, checksums=False, records=False)
plain = partial(mapfiles, FileCompression.NONE, checksums=False, records=False)
blocked = partial(mapfiles, FileCompression.BLOCK, checksums=False, records=False)
checked = partial(mapfiles, records=False)


def middle(scene: Scene) -> int:
    """A byte in the middle of the data file."""
    return len(scene.objects[scene.key()].data) // 2


@damage(checked, Code.INDEX_CHECKSUM)
def mapfile_index_has_a_flipped_bit(scene: Scene) -> Place:
    scene.flip(scene.index_key(), len(scene.objects[scene.index_key()].data) - 1)
    return {"key": scene.index_key(), "offset": 0}


@damage(bare, Code.INDEX_BAD_MAGIC)
def mapfile_index_has_another_magic(scene: Scene) -> Place:
    scene.flip(scene.index_key(), 0)
    return {"key": scene.index_key(), "offset": 0, "ledger_id": LEDGER}


@damage(bare, Code.INDEX_TRUNCATED)
def mapfile_index_is_empty(scene: Scene) -> Place:
    scene.cut(scene.index_key(), 0)
    return {"key": scene.index_key()}


@damage(bare, Code.INDEX_TRUNCATED)
def mapfile_index_is_cut_off(scene: Scene) -> Place:
    scene.cut(scene.index_key(), -3)
    return {"key": scene.index_key()}


@damage(bare, Code.INDEX_BLOCK_ORDER)
def mapfile_index_positions_do_not_ascend(scene: Scene) -> Place:
    scene.with_index(index_file((-1, 100), (3, 90)))
    return {"key": scene.index_key(), "entry_id": 3}


@damage(bare, Code.INDEX_MISMATCH)
def mapfile_index_is_of_another_file(scene: Scene) -> Place:
    scene.with_index(index_file((-1, 100), (3, 200)))
    return {"key": scene.index_key()}


@damage(bare, Code.MAPFILE_DAMAGED)
def mapfile_data_has_another_magic(scene: Scene) -> Place:
    scene.flip(scene.key(), 1)
    return {"key": scene.key(), "offset": 0}


@damage(bare, Code.MAPFILE_DAMAGED)
def mapfile_metadata_does_not_inflate(scene: Scene) -> Place:
    data = scene.objects[scene.key()].data
    scene.flip(scene.key(), data.index(b"\x78\x9c") + 9, 4)
    return {"key": scene.key()}


@damage(checked, Code.MAPFILE_CHECKSUM, Code.MAPFILE_DAMAGED, deep=True)
def mapfile_data_has_a_flipped_bit(scene: Scene) -> Place:
    scene.flip(scene.key(), middle(scene))
    return {"key": scene.key(), "offset": middle(scene) // 512 * 512}


@damage(bare, Code.MAPFILE_DAMAGED, deep=True)
def mapfile_record_does_not_inflate(scene: Scene) -> Place:
    scene.flip(scene.key(), middle(scene))
    return {"key": scene.key(), "ledger_id": LEDGER, "block": 1}


@damage(blocked, Code.MAPFILE_DAMAGED, deep=True)
def mapfile_block_has_a_flipped_bit(scene: Scene) -> Place:
    scene.flip(scene.key(), len(scene.objects[scene.key()].data) - 60)
    return {"key": scene.key(), "ledger_id": LEDGER, "block": 1}


@damage(bare, Code.MAPFILE_DAMAGED, deep=True)
def mapfile_is_cut_off(scene: Scene):
    scene.cut(scene.key(), -40)


@damage(checked, Code.MAPFILE_CHECKSUM, deep=True)
def mapfile_checksums_are_cut_off(scene: Scene) -> Place:
    crc = scene.written[0].key.checksum_keys
    scene.cut(crc[0], 8)
    return {"key": crc[0]}


@damage(Scene, Code.ENTRY_WRONG_ID, deep=True)
def mapfile_lacks_an_entry(scene: Scene) -> Place:
    entries = {i: payload for i, payload in enumerate(PAYLOADS) if i != 6}
    scene.add(mapfile(entries, ledger_id=LEDGER, index_interval=4), 0)
    return {"key": scene.key(), "ledger_id": LEDGER, "entry_id": 6}


@damage(plain, Code.MESSAGE_CHECKSUM, deep=True)
def mapfile_message_has_a_flipped_bit(scene: Scene) -> Place:
    at = scene.objects[scene.key()].data.index(PAYLOADS[9]) + 40
    scene.flip(scene.key(), at)
    return {"key": scene.key(), "ledger_id": LEDGER, "entry_id": 9}
