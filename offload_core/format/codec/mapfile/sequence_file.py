"""A SequenceFile, version 6: its header, and the small fields it is made of.

The header has classes, compression, metadata and sync bytes. Refused: other versions, other classes than those of
Pulsar's filesystem offloader, other codecs than `DefaultCodec` (zlib). Fields are big-endian integers, Hadoop's
variable-length integers, texts and byte strings. A field that goes on after the window, but not after the stretch that
is read, is a `CutOffError`, which has the number of bytes needed; after the stretch it is a `TruncatedError`.
Source: docs/formats/mapfile.md.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from dataclasses import dataclass

from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    DecompressionError,
    MetadataError,
    TruncatedError,
    UnsupportedVersionError,
)

Buffer = bytes | bytearray | memoryview
Note = Callable[[int, int, str], None]

_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")


class CutOffError(Exception):
    """A unit goes on after the window; its next field ends at byte `needed` of the window."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


class FieldReader:
    """Takes one field after another out of `window`, from byte `position` on.

    Args:
        window: bytes of the file; they begin at the file's byte `offset`.
        end: end of the stretch, counted from the window's begin; it may lie after the window.
        note: called with each field that is taken: its place, its length, its name.
    """

    def __init__(
        self, window: Buffer, position: int, end: int, offset: int, note: Note | None = None
    ) -> None:
        self._window = memoryview(window)
        self.position = position
        self._end = end
        self._offset = offset
        self._note = note

    @property
    def place(self) -> int:
        """The begin of the next field in the file."""
        return self._offset + self.position

    @property
    def remaining(self) -> int:
        """Bytes up to the end of the stretch."""
        return self._end - self.position

    def take(self, length: int, what: str) -> memoryview:
        """The next `length` bytes. `what` names the field, for errors."""
        self._check(length, what)
        stop = self.position + length
        if stop > len(self._window):
            raise CutOffError(stop)
        if self._note is not None:
            self._note(self.place, length, what)
        taken = self._window[self.position : stop]
        self.position = stop
        return taken

    def peek(self, length: int, what: str) -> memoryview:
        """Of the next `length` bytes those that the window has; the reader stays where it is."""
        self._check(length, what)
        return self._window[self.position : self.position + length]

    def i32(self, what: str) -> int:
        """An `i32`."""
        return int(_I32.unpack(self.take(4, what))[0])

    def i64(self, what: str) -> int:
        """An `i64`."""
        return int(_I64.unpack(self.take(8, what))[0])

    def vint(self, what: str) -> int:
        """One of Hadoop's variable-length integers."""
        first = self.take(1, what)[0]
        follow = vint_bytes(first) - 1
        return unpack_vint(first, self.take(follow, what))

    def counted(self, what: str) -> memoryview:
        """Bytes after their number as a variable-length integer."""
        length = self.vint(f"the length of {what}")
        return self.take(length, what)

    def _check(self, length: int, what: str) -> None:
        if length < 0:
            raise BadLengthError(
                f"{what} has a negative length", offset=self.place, expected="0 or more", found=length
            )
        if length > self.remaining:
            raise TruncatedError(
                f"{what} is cut off",
                offset=self.place,
                expected=f"{length} bytes",
                found=f"{self.remaining} bytes",
            )


def vint_bytes(first: int) -> int:
    """Number of bytes that the variable-length integer has that begins with the byte `first` (0 … 255)."""
    signed = first - 256 if first > 127 else first
    if signed >= -112:
        return 1
    return -111 - signed if signed >= -120 else -119 - signed


def unpack_vint(first: int, follow: bytes | memoryview) -> int:
    """The value of a variable-length integer: its first byte and those that follow."""
    signed = first - 256 if first > 127 else first
    if signed >= -112:
        return signed
    value = int.from_bytes(follow, "big")
    return value if signed >= -120 else ~value


def pack_vint(value: int) -> bytes:
    """An integer of at most 64 bits as Hadoop's variable-length integer."""
    if -112 <= value <= 127:
        return (value & 0xFF).to_bytes(1, "big")
    magnitude = ~value if value < 0 else value
    follow = (magnitude.bit_length() + 7) // 8
    mark = (-120 if value < 0 else -112) - follow
    return (mark & 0xFF).to_bytes(1, "big") + magnitude.to_bytes(follow, "big")


def pack_counted(data: bytes) -> bytes:
    """Bytes after their number as a variable-length integer."""
    return pack_vint(len(data)) + data


MAGIC = b"SEQ"
VERSION = 6
SYNC_BYTES = 16
LONG_WRITABLE = "org.apache.hadoop.io.LongWritable"
BYTES_WRITABLE = "org.apache.hadoop.io.BytesWritable"
DEFAULT_CODEC = "org.apache.hadoop.io.compress.DefaultCodec"

MAX_HEADER_BYTES = 1 << 16
"""A longer header of a data file is refused: Hadoop writes about 140 bytes."""

_FLAGS = 2


class FileCompression(enum.Enum):
    """The compression of a SequenceFile: none, each value by itself, or many records at once."""

    NONE = "none"
    RECORD = "record"
    BLOCK = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceHeader:
    """The header of a SequenceFile whose keys are `LongWritable`.

    Attributes:
        value_class: `BytesWritable` of a data file, `LongWritable` of an index file.
        sync: the 16 bytes of its sync marks.
        metadata: pairs of texts; Pulsar writes none, we those of a ledger that are complete only at the end.
    """

    compression: FileCompression
    value_class: str
    sync: bytes
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def length(self) -> int:
        """Length of the header: the place of the first record."""
        return len(pack_header(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceFile:
    """The facts of a data file for its readers: its header, its length in bytes."""

    header: SequenceHeader
    length: int


def parse_header(
    data: Buffer,
    value_class: str,
    *,
    end: int | None = None,
    most: int = MAX_HEADER_BYTES,
    note: Note | None = None,
) -> SequenceHeader:
    """The header at the start of `data`, which is the beginning of a file of `end` bytes (None: all of it).

    Args:
        most: the most bytes that it may have.

    Raises:
        CutOffError: it goes on after `data`, but not after `end`.
        FormatError: a subclass that names the byte.
    """
    length = len(data) if end is None else end
    reader = FieldReader(data, 0, min(length, most), 0, note)
    magic = bytes(reader.take(3, "the magic of a SequenceFile"))
    if magic != MAGIC:
        raise BadMagicError("this is not a SequenceFile", offset=0, expected=MAGIC.hex(), found=magic.hex())
    version = reader.take(1, "the version of a SequenceFile")[0]
    if version != VERSION:
        raise UnsupportedVersionError(
            "this version of SequenceFiles is not known", offset=3, expected=VERSION, found=version
        )
    _expect_class(reader, "key", LONG_WRITABLE)
    _expect_class(reader, "value", value_class)
    compression = _parse_flags(reader)
    if compression is not FileCompression.NONE:
        place = reader.place
        codec = _text(reader, "the compression codec's class")
        if codec != DEFAULT_CODEC:
            raise DecompressionError(
                "a SequenceFile's compression codec is not known",
                offset=place,
                expected=DEFAULT_CODEC,
                found=codec,
            )
    place = reader.place
    count = reader.i32("the number of metadata pairs")
    if not 0 <= count <= MAX_HEADER_BYTES:
        raise BadLengthError("a header has no such number of metadata pairs", offset=place, found=count)
    metadata = tuple(
        (_text(reader, "a metadata name"), _text(reader, "a metadata value")) for _ in range(count)
    )
    sync = bytes(reader.take(SYNC_BYTES, "the sync bytes"))
    return SequenceHeader(compression=compression, value_class=value_class, sync=sync, metadata=metadata)


def parse_whole_header(data: Buffer, value_class: str) -> SequenceHeader:
    """The header at the start of the whole file `data`; errors as `parse_header`, but `CutOffError`."""
    try:
        return parse_header(data, value_class, most=len(data))
    except CutOffError as cut:  # only after `end`, which is the end of data
        raise TruncatedError("a header is cut off", offset=len(data), expected=cut.needed) from None


def pack_header(header: SequenceHeader) -> bytes:
    """The header's bytes."""
    compressed = header.compression is not FileCompression.NONE
    parts = [
        MAGIC + bytes([VERSION]),
        pack_counted(LONG_WRITABLE.encode()),
        pack_counted(header.value_class.encode()),
        bytes([compressed, header.compression is FileCompression.BLOCK]),
    ]
    if compressed:
        parts.append(pack_counted(DEFAULT_CODEC.encode()))
    parts.append(len(header.metadata).to_bytes(4, "big"))
    parts.extend(pack_counted(text.encode()) for pair in header.metadata for text in pair)
    parts.append(header.sync)
    return b"".join(parts)


def _parse_flags(reader: FieldReader) -> FileCompression:
    place = reader.place
    flags = bytes(reader.take(_FLAGS, "the compression flags"))
    known = {b"\0\0": FileCompression.NONE, b"\1\0": FileCompression.RECORD, b"\1\1": FileCompression.BLOCK}
    if flags not in known:
        raise BadMagicError(
            "a header's compression flags contradict each other",
            offset=place,
            expected="00 00, 01 00 or 01 01",
            found=flags.hex(" "),
        )
    return known[flags]


def _expect_class(reader: FieldReader, what: str, expected: str) -> None:
    place = reader.place
    found = _text(reader, f"the {what} class")
    if found != expected:
        raise BadMagicError(
            f"a SequenceFile has another {what} class", offset=place, expected=expected, found=found
        )


def _text(reader: FieldReader, what: str) -> str:
    place = reader.place
    try:
        return bytes(reader.counted(what)).decode()
    except UnicodeDecodeError as error:
        raise MetadataError(f"{what} is not UTF-8 text", offset=place) from error
