"""Damage in the bytes of data objects: block headers, padding, frames, and payloads."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

from entries import entry, frame_entry, pip17_object

from damage.corpus import Place, add, damage
from damage.in_indexes import alone, of_index, repacked, segments
from damage.scenes import LEDGER, PAYLOADS, Scene, filtered
from offload_core.format.codec.block_layout import padding
from offload_core.format.codec.index import IndexedBlock
from offload_core.maintenance.verify import Code
from offload_proto.messages_pb2 import LZ4, MessageMetadata


def block_of(scene: Scene, block: int, number: int = 0, ledger_id: int = LEDGER) -> IndexedBlock:
    """A block by its place in the ledger, from 0."""
    ledger = next(each for each in scene.index(number).ledgers if each.ledger_id == ledger_id)
    return ledger.blocks[block]


def in_header(scene: Scene, offset: int, number: int = 0, ledger_id: int = LEDGER, block: int = -1) -> Place:
    """The place of a byte of a block's header."""
    found = block_of(scene, block, number, ledger_id)
    at = {"block": found.part_number, "offset": found.offset + offset}
    return {"key": scene.key(number), "ledger_id": ledger_id, **at}


# --- headers ---------------------------------------------------------------------------------------


@damage(alone, Code.BLOCK_BAD_MAGIC, deep=True)
def block_magic_has_a_flipped_bit(scene: Scene) -> Place:
    scene.flip(scene.key(), block_of(scene, 1).offset + 3, 7)
    return in_header(scene, 0, block=1)


def set_in_header(scene: Scene, block: int, offset: int, value: int) -> Place:
    scene.set(scene.key(), "q", block_of(scene, block).offset + offset, value)
    return in_header(scene, offset, block=block)


for _name, _code, _field in (
    ("block_declares_another_header", Code.BLOCK_HEADER_LENGTH, (-1, 4, 64)),
    ("block_declares_another_length", Code.BLOCK_WRONG_LENGTH, (0, 12, 999)),
    ("block_declares_another_first_entry", Code.BLOCK_WRONG_FIRST_ENTRY, (1, 20, 0)),
):
    add(_name, alone, _code, lambda scene, field=_field: set_in_header(scene, *field), deep=True)


@damage(alone, Code.BLOCK_HEADER_REST, deep=True)
def rest_of_a_header_has_a_flipped_bit(scene: Scene) -> Place:
    scene.flip(scene.key(), block_of(scene, 1).offset + 127)
    return in_header(scene, 127, block=1)


@damage(segments, Code.BLOCK_WRONG_LEDGER, deep=True)
def streaming_block_is_of_another_ledger(scene: Scene) -> Place:
    scene.set(scene.key(1), "q", block_of(scene, 0, 1, 8).offset + 28, LEDGER)
    return in_header(scene, 28, 1, 8, 0)


@damage(alone, Code.BLOCK_BAD_MAGIC, Code.ENTRY_WRONG_ID, deep=True)
def a_block_is_zeros(scene: Scene) -> Place:
    block = block_of(scene, 1)
    scene.write(scene.key(), block.offset, bytes(block.length))
    return in_header(scene, 0, block=1)


@damage(alone, Code.BLOCK_WRONG_FIRST_ENTRY, Code.ENTRY_WRONG_ID, deep=True)
def two_blocks_are_swapped(scene: Scene) -> Place:
    one, two, data = block_of(scene, 0), block_of(scene, 1), scene.objects[scene.key()].data
    assert one.length == two.length
    scene.write(scene.key(), 0, data[two.offset : two.offset + two.length] + data[: one.length])
    return in_header(scene, 20, block=1)


# --- frames ----------------------------------------------------------------------------------------


def in_frame(scene: Scene, entry_id: int, offset: int = 0) -> Place:
    """The place of a byte of an entry's frame."""
    at = scene.frame(entry_id) + offset
    return {"key": scene.key(), "ledger_id": LEDGER, "entry_id": entry_id, "offset": at}


@damage(alone, Code.ENTRY_WRONG_ID, deep=True)
def entry_has_another_id(scene: Scene) -> Place:
    scene.flip(scene.key(), scene.frame(2) + 11, 6)
    return in_frame(scene, 2, 4)


def say_length(scene: Scene, entry_id: int, length: int) -> Place:
    scene.set(scene.key(), "i", scene.frame(entry_id), length)
    return in_frame(scene, entry_id)


for _name, _said in (
    ("entry_has_a_negative_length", (5, -2)),
    ("entry_reaches_past_its_block", (3, 1 << 20)),
):
    add(_name, alone, Code.ENTRY_BAD_LENGTH, lambda scene, said=_said: say_length(scene, *said), deep=True)


@damage(alone, Code.ENTRY_WRONG_ID, deep=True)
def two_entries_are_swapped(scene: Scene) -> Place:
    begin, middle, end = scene.frame(0), scene.frame(1), scene.frame(2)
    data = scene.objects[scene.key()].data
    scene.write(scene.key(), begin, data[middle:end] + data[begin:middle])
    return in_frame(scene, 0, 4)


@damage(alone, Code.ENTRY_WRONG_ID, deep=True)
def an_entry_is_left_out(scene: Scene) -> Place:
    taken_out(scene, 1)
    return in_frame(scene, 1, 4)


@damage(alone, Code.BLOCK_WRONG_END, deep=True)
def the_last_entry_of_a_block_is_left_out(scene: Scene) -> Place:
    last = (block_of(scene, 0).end_entry_id or 0) - 1
    taken_out(scene, last)
    return in_frame(scene, last)


@damage(alone, Code.ENTRY_CUT_OFF, deep=True)
def the_last_entry_is_cut_off_and_its_block_too(scene: Scene) -> Place:
    """Data and index go together, and the object ends inside a frame's head."""
    last = len(PAYLOADS) - 1
    at = scene.frame(last)
    scene.cut(scene.key(), at + 7)
    scene.set(scene.index_key(), "q", 8, at + 7)
    scene.set(scene.key(), "q", block_of(scene, -1).offset + 12, at + 7 - block_of(scene, -1).offset)
    return in_frame(scene, last)


def taken_out(scene: Scene, entry_id: int):
    """The block without an entry, as long as before."""
    data, begin = scene.objects[scene.key()].data, scene.frame(entry_id)
    block = next(b for b in reversed(scene.index().ledgers[0].blocks) if b.first_entry_id <= entry_id)
    lengths = {i: len(payload) for of, i, payload in scene.written[0].entries if of == LEDGER}
    last = max(i for i in lengths if block.end_entry_id is None or i < block.end_entry_id)
    rest = data[begin + 12 + lengths[entry_id] : scene.frame(last) + 12 + lengths[last]]
    scene.write(scene.key(), begin, rest + padding(block.offset + block.length - begin - len(rest)))


# --- padding ---------------------------------------------------------------------------------------


@damage(alone, Code.BLOCK_BAD_PADDING, deep=True)
def padding_has_a_flipped_bit(scene: Scene) -> Place:
    at = block_of(scene, 0).length - 1
    scene.flip(scene.key(), at)
    return {"key": scene.key(), "offset": at, "block": 1}


@damage(segments, Code.BLOCK_BAD_PADDING, deep=True)
def padding_of_a_segment_has_a_flipped_bit(scene: Scene) -> Place:
    at = block_of(scene, 1).offset + block_of(scene, 1).length - 1
    scene.flip(scene.key(0), at, 3)
    return {"key": scene.key(0), "offset": at, "block": 2}


@damage(segments, Code.ENTRY_WRONG_ID, deep=True)
def an_entry_of_a_segment_is_left_out(scene: Scene) -> Place:
    taken_out(scene, 2)
    return in_frame(scene, 2, 4)


@damage(segments, Code.WRONG_ENTRIES, Code.GAP, deep=True)
def the_last_entry_of_a_segment_is_left_out(scene: Scene) -> Place:
    taken_out(scene, 8)
    return of_index(scene, 0, ledger_id=LEDGER)


@damage(filtered, Code.ENTRY_WRONG_ID, deep=True)
def ids_go_back_in_a_filtered_object(scene: Scene) -> Place:
    assert [i for _, i, _ in scene.written[0].entries][:2] == [0, 2]
    at = 128 + 12 + len(PAYLOADS[0])
    scene.set(scene.key(), "q", at + 4, 0)
    return {"key": scene.key(), "ledger_id": LEDGER, "entry_id": 1, "offset": at + 4}


@damage(filtered, Code.BLOCK_WRONG_END, deep=True)
def a_filtered_block_goes_on_into_the_next(scene: Scene) -> Place:
    end = block_of(scene, 0).end_entry_id or 0
    last = max(i for _, i, _ in scene.written[0].entries if i < end)
    at = scene.objects[scene.key()].data.index(PAYLOADS[last])
    scene.set(scene.key(), "q", at - 8, end)
    return {"key": scene.key(), "ledger_id": LEDGER, "block": 1, "entry_id": end + 1}


@damage(filtered, Code.MESSAGE_CHECKSUM, deep=True)
def an_entry_behind_a_gap_has_a_flipped_bit(scene: Scene) -> Place:
    at = scene.objects[scene.key()].data.index(PAYLOADS[5])
    scene.flip(scene.key(), at + 50)
    return {"key": scene.key(), "ledger_id": LEDGER, "entry_id": 5}


# --- messages --------------------------------------------------------------------------------------


@damage(alone, Code.MESSAGE_CHECKSUM, deep=True)
def payload_has_a_flipped_bit(scene: Scene) -> Place:
    scene.flip(scene.key(), scene.frame(7) + 12 + 60)
    return in_entry(scene, 7)


@damage(segments, Code.MESSAGE_CHECKSUM, deep=True)
def checksum_has_a_flipped_bit(scene: Scene) -> Place:
    scene.flip(scene.key(0), scene.frame(4, 0) + 12 + 3)
    return {"key": scene.key(0), "ledger_id": LEDGER, "entry_id": 4}


def with_entry(make: Callable[[], bytes]) -> Scene:
    """A ledger that has an entry in its middle that is not right, whose checksum is."""
    scene = Scene()
    payloads = [*PAYLOADS[:4], make(), *PAYLOADS[4:8]]
    scene.add(pip17_object(payloads, ledger_id=LEDGER, max_block_bytes=1 << 16), 0)
    return scene


def in_entry(scene: Scene, entry_id: int = 4) -> Place:
    return {"key": scene.key(), "ledger_id": LEDGER, "entry_id": entry_id}


def metadata(**changes: object) -> bytes:
    """The metadata of a message."""
    fields = {"producer_name": "p", "sequence_id": 1, "publish_time": 1} | changes
    return MessageMetadata(**fields).SerializeToString()


ENTRIES = {
    "message_metadata_is_garbage": (lambda: frame_entry(b"\x07\xff", b"x"), Code.MESSAGE_BAD_METADATA),
    "message_metadata_lacks_what_is_required": (
        lambda: frame_entry(b"\x0a\x01p", b"x"), Code.MESSAGE_BAD_METADATA
    ),
    "an_entry_is_shorter_than_its_checksum_covers": (
        lambda: frame_entry(b"", struct.pack(">i", 99))[:-4], Code.MESSAGE_CHECKSUM
    ),
    "metadata_is_longer_than_its_entry": (lambda: b"\0\0\1\0" + metadata(), Code.MESSAGE_BAD_LENGTH),
    "payload_does_not_decompress": (
        lambda: frame_entry(metadata(compression=LZ4, uncompressed_size=100), b"no lz4 block"),
        Code.MESSAGE_DECOMPRESSION,
    ),
    "payload_decompresses_to_another_size": (
        lambda: entry(b"x" * 100, compression=LZ4, uncompressed_size=99), Code.MESSAGE_DECOMPRESSION
    ),
    "compression_is_not_known": (
        lambda: frame_entry(metadata(compression=9, uncompressed_size=1), b"x"), Code.MESSAGE_DECOMPRESSION
    ),
    "batch_has_fewer_messages_than_it_declares": (
        lambda: frame_entry(metadata(num_messages_in_batch=3), b"\0\0\0\2\x18\0"), Code.MESSAGE_BAD_BATCH
    ),
    "batch_goes_on_behind_its_last_message": (
        lambda: frame_entry(metadata(num_messages_in_batch=1), b"\0\0\0\2\x18\0more"), Code.MESSAGE_BAD_BATCH
    ),
}  # fmt: skip
for _name, (_entry, _code) in ENTRIES.items():
    add(_name, partial(with_entry, _entry), _code, in_entry, deep=True)


@damage(alone, Code.WRONG_SIZE, deep=True)
def index_says_another_size(scene: Scene) -> Place:
    scene.with_index(repacked(scene, length=1))
    return of_index(scene, ledger_id=LEDGER)


@damage(lambda: filtered(without=5), Code.KEPT, deep=True)
def an_entry_that_a_filter_kept_is_left_out(scene: Scene) -> Place:
    return {"key": scene.key(), "ledger_id": LEDGER}


@damage(filtered, Code.INDEX_BAD_METADATA, Code.RECORD_FILTER, deep=True)
def what_a_filter_did_is_damaged(scene: Scene) -> Place:
    index = scene.objects[scene.index_key()].data
    scene.write(scene.index_key(), index.index(b'{"version"'), b"[")
    return {"key": scene.index_key(), "ledger_id": LEDGER}
