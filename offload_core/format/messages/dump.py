"""A block or an index as annotated spans of bytes, each with its field and its value; damaged ones, too.

The fields are those that the codec packs and parses with. Where it refuses bytes, that is reported, and the rest is
one span of unexplained bytes. Source: docs/formats/index.md.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from google.protobuf.message import DecodeError, Message

from offload_core.format.codec.block_layout import (
    BLOCK_HEADER_BYTES,
    FRAME_FIELDS,
    FRAME_HEADER_BYTES,
    HEADER_FIELDS,
    Span,
    parse_block_header,
    walk_frames,
)
from offload_core.format.codec.crc32c import crc32c
from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.index import BLOCK_FIELDS
from offload_core.format.codec.mapfile.record_batches import read_sync_block, walk_records
from offload_core.format.codec.mapfile.sequence_file import (
    BYTES_WRITABLE,
    LONG_WRITABLE,
    CutOffError,
    FieldReader,
    FileCompression,
    SequenceHeader,
    parse_header,
)
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.format.codec.pip17 import HEAD_FIELDS as PIP17_HEAD
from offload_core.format.codec.streaming import HEAD_FIELDS as STREAMING_HEAD
from offload_core.format.codec.streaming import LEDGER_FIELDS
from offload_core.format.messages.entry import locate_parts
from offload_hooks.errors import FormatError
from offload_proto.bookkeeper_pb2 import LedgerMetadataFormat
from offload_proto.managed_ledger_pb2 import ManagedLedgerInfo
from offload_proto.messages_pb2 import BrokerEntryMetadata, MessageMetadata

UNEXPLAINED = "not explained"
_MOST_TEXT = 400
_LEAST_KEY = -(1 << 63)


# --- PIP-17 and streaming blocks ---------------------------------------------------------------


def dump_block(
    data: memoryview, object_format: ObjectFormat, base: int, *, gaps: bool = False
) -> Iterator[Span]:
    """The spans of a block, whose bytes are `data`, from the object's byte `base` on.

    Args:
        gaps: ids may be missing: a filter ran.
    """
    head = list(HEADER_FIELDS.spans(data, 0, base=base))
    if object_format is ObjectFormat.PIP17:
        head = head[:-1]  # there the ledger is in the key
    yield from head
    try:
        header = parse_block_header(data[:BLOCK_HEADER_BYTES], object_format, offset=base)
    except FormatError as error:
        yield _wrong(error, base)
        first = None
    else:
        first = header.first_entry_id
        if header.block_length != len(data):
            note = f"it has {len(data)} bytes by the index or the object's end, {header.block_length} by its header"
            yield Span(base + 12, 0, "wrong", note, is_wrong=True)
    at = head[-1].end if head else base
    rest = data[at - base : BLOCK_HEADER_BYTES]
    if rest:
        yield Span(at, len(rest), "zero" if not any(rest) else "should be zero")
    if len(data) <= BLOCK_HEADER_BYTES:
        return
    if first is None:  # the frames may be right
        first = int.from_bytes(data[BLOCK_HEADER_BYTES + 4 : BLOCK_HEADER_BYTES + 12], "big", signed=True)
    yield from _frames(data, base, first, gaps)


def _frames(data: memoryview, base: int, first: int, gaps: bool) -> Iterator[Span]:
    end = BLOCK_HEADER_BYTES
    try:
        for frame in walk_frames(data, end, len(data), first, block_offset=base, gaps=gaps):
            yield from FRAME_FIELDS.spans(data, frame.offset - FRAME_HEADER_BYTES, base=base)
            end = frame.offset + frame.length
            yield from dump_entry(bytes(data[frame.offset : end]), base + frame.offset)
    except FormatError as error:
        yield _wrong(error, base + end)
        yield from FRAME_FIELDS.spans(data, end, base=base)
        at = min(end + FRAME_HEADER_BYTES, len(data))
        if at < len(data):
            yield Span(base + at, len(data) - at, UNEXPLAINED)
        return
    if end < len(data):
        yield Span(base + end, len(data) - end, "padding")


def dump_entry(entry: bytes, base: int) -> Iterator[Span]:
    """The spans of an entry's payload: Pulsar's, or bytes of anything else."""
    if not entry:
        return
    try:
        parts = locate_parts(entry)
    except FormatError:
        yield Span(base, len(entry), "payload", "no Pulsar entry")
        return
    at = 0
    if parts.broker is not None:
        yield Span(base, 2, "magic of broker entry metadata", entry[:2].hex().upper())
        yield Span(base + 2, 4, "length of broker entry metadata", str(int.from_bytes(entry[2:6], "big")))
        start, at = parts.broker
        yield _record(entry, start, at, base, "broker entry metadata", BrokerEntryMetadata())
    if parts.checksum is not None:
        start, stop = parts.checksum
        stored, found = int.from_bytes(entry[start:stop], "big"), crc32c(entry[stop:])
        yield Span(base + at, 2, "magic of the checksum", entry[at:start].hex().upper())
        value = f"{stored:08X}" + (", right" if found == stored else f", but the bytes have {found:08X}")
        yield Span(base + start, 4, "CRC-32C of what follows", value, is_wrong=found != stored)
        at = stop
    start, stop = parts.metadata
    yield Span(base + at, 4, "length of message metadata", str(stop - start))
    yield _record(entry, start, stop, base, "message metadata", MessageMetadata())
    if stop < len(entry):
        yield Span(base + stop, len(entry) - stop, "payload")


# --- indexes -----------------------------------------------------------------------------------


def dump_index(data: memoryview, key: ObjectKey) -> Iterator[Span]:
    """The spans of an index object; an error of its decoder comes first."""
    if key.is_mapfile:
        yield from dump_sequence_file(data, is_index=True)
        return
    try:
        parse_index(data, key)
    except FormatError as error:
        yield _wrong(error, 0)
    streaming = key.object_format is ObjectFormat.STREAMING
    yield from _streaming_index(data) if streaming else _pip17_index(data)


def _pip17_index(data: memoryview) -> Iterator[Span]:
    yield from PIP17_HEAD.spans(data, 0)
    at = PIP17_HEAD.struct.size
    if len(data) < at:
        return
    count, length = PIP17_HEAD.struct.unpack_from(data)[-2:]
    if at + length > len(data):
        yield from _unexplained(data, at)
        return
    yield _record(data, at, at + length, 0, "BookKeeper's ledger metadata", LedgerMetadataFormat())
    at = yield from _lines(data, at + length, count)
    if at < len(data):
        yield Span(at, len(data) - at, "entry directory, or other bytes behind the last block")


def _streaming_index(data: memoryview) -> Iterator[Span]:
    yield from STREAMING_HEAD.spans(data, 0)
    at = STREAMING_HEAD.struct.size
    while at + LEDGER_FIELDS.struct.size <= len(data):
        yield from LEDGER_FIELDS.spans(data, at)
        _, count, length = LEDGER_FIELDS.struct.unpack_from(data, at)
        at += LEDGER_FIELDS.struct.size
        if length < 0 or count < 1 or at + length > len(data):
            break
        yield _record(data, at, at + length, 0, "ledger info", ManagedLedgerInfo.LedgerInfo())
        at = yield from _lines(data, at + length, count)
    yield from _unexplained(data, at)


def _lines(data: memoryview, at: int, count: int) -> Generator[Span, None, int]:
    """An index's list of blocks, as far as it can be read; returns its end."""
    size = BLOCK_FIELDS.struct.size
    for _ in range(max(count, 0)):
        if at + size > len(data):
            break
        yield from BLOCK_FIELDS.spans(data, at)
        at += size
    return at


# --- MapFiles ----------------------------------------------------------------------------------


def dump_sequence_file(
    data: memoryview, *, is_index: bool = False, base: int = 0, header: SequenceHeader | None = None
) -> Iterator[Span]:
    """The spans of a SequenceFile, compressed as it is; from its byte `base` on, of records after its `header`.

    `data` may end anywhere.
    """
    noted: list[Span] = []

    def note(place: int, length: int, what: str) -> None:
        if length:
            at = place - base
            shown = (
                str(int.from_bytes(data[at : at + length], "big", signed=True)) if length in (4, 8) else ""
            )
            noted.append(Span(place, length, what, shown))

    end = base
    try:
        if header is None:
            header = parse_header(data, LONG_WRITABLE if is_index else BYTES_WRITABLE, note=note)
            yield from noted
            end = noted[-1].end
            noted.clear()
        if header.compression is FileCompression.BLOCK:
            reader = FieldReader(data, end - base, len(data), base, note)
            while reader.remaining:
                read_sync_block(reader, header.sync, _LEAST_KEY)
                yield from noted
                end = reader.place
                noted.clear()
        else:
            records = walk_records(
                data, end - base, len(data), header.sync, _LEAST_KEY, offset=base, note=note
            )
            for _ in records:
                yield from noted
                end = noted[-1].end
                noted.clear()
    except (FormatError, CutOffError) as error:
        yield from noted
        end = noted[-1].end if noted else end
        if isinstance(error, FormatError):
            yield _wrong(error, end)
    if end - base < len(data):
        yield Span(end, len(data) - (end - base), UNEXPLAINED)


# --- parts -------------------------------------------------------------------------------------


def _record(data: bytes | memoryview, start: int, stop: int, base: int, name: str, record: Message) -> Span:
    try:
        record.ParseFromString(bytes(data[start:stop]))
    except DecodeError as error:
        return Span(base + start, stop - start, name, f"cannot be parsed: {error}", is_wrong=True)
    text = " ".join(str(record).split())
    short = text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"
    return Span(base + start, stop - start, name, short)


def _wrong(error: FormatError, at: int) -> Span:
    return Span(at if error.offset is None else error.offset, 0, "wrong", str(error), is_wrong=True)


def _unexplained(data: memoryview, at: int) -> Iterator[Span]:
    if at < len(data):
        yield Span(at, len(data) - at, UNEXPLAINED)
