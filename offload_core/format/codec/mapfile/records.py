"""The records of a file that is not block-compressed, in plain Python: the oracle of `kernels.mapfile`.

A record is `i32 record length, i32 key length, i64 key, value`; a sync mark, `i32 −1` and the header's 16 bytes, may
precede it. Keys ascend. Source: docs/formats/mapfile.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from offload_core.format.codec.mapfile.fields import Buffer, FieldReader, Note
from offload_core.format.codec.mapfile.header import SYNC_BYTES
from offload_hooks.errors import BadLengthError, BadMagicError, EntryOrderError

KEY_BYTES = 8
RECORD_HEAD_BYTES = 16
SYNC_ESCAPE = -1
SYNC_MARK_BYTES = 4 + SYNC_BYTES
LENGTH_BYTES = 4
"""Of what stands before a `BytesWritable`'s bytes."""


class Record(NamedTuple):
    """One record: its key, where its value begins in the window, the value's length in bytes."""

    key: int
    offset: int
    length: int


def walk_records(
    window: Buffer,
    start: int,
    end: int,
    sync: bytes,
    previous_key: int,
    *,
    offset: int = 0,
    note: Note | None = None,
) -> Iterator[Record]:
    """The records in `window[start:end]`, whose keys ascend from above `previous_key`.

    `offset` is the window's place in its file, for the errors' offsets.

    Raises:
        CutOffError: a record goes on behind the window, but not behind `end`.
        FormatError: a subclass: the first fault there is.
    """
    reader = FieldReader(window, start, end, offset, note)
    while reader.remaining:
        place = reader.place
        length = reader.i32("a record's length")
        if length == SYNC_ESCAPE:
            check_sync(reader, sync)
            if not reader.remaining:
                return
            place = reader.place
            length = reader.i32("a record's length")
        if not KEY_BYTES <= length <= reader.remaining - 4:
            raise BadLengthError(
                "a record's length is not possible",
                offset=place,
                expected=f"{KEY_BYTES} to {reader.remaining - 4}, or a sync mark",
                found=length,
            )
        place = reader.place
        key_length = reader.i32("a record's key length")
        if key_length != KEY_BYTES:
            raise BadLengthError(
                "a key has another length", offset=place, expected=KEY_BYTES, found=key_length
            )
        place = reader.place
        key = reader.i64("a record's key")
        check_order(key, previous_key, place)
        at = reader.position
        reader.take(length - KEY_BYTES, "a record's value")
        yield Record(key, at, length - KEY_BYTES)
        previous_key = key


def check_sync(reader: FieldReader, sync: bytes) -> None:
    """Take a sync mark's 16 bytes: those of the header."""
    place = reader.place
    found = bytes(reader.take(SYNC_BYTES, "a sync mark"))
    if found != sync:
        raise BadMagicError(
            "a sync mark is not that of the file", offset=place, expected=sync.hex(), found=found.hex()
        )


def check_order(key: int, previous_key: int, place: int) -> None:
    """Refuse a key that does not come after the one before it."""
    if key <= previous_key:
        raise EntryOrderError(
            "a key is not above the one before it",
            entry_id=key,
            offset=place,
            expected=f"above {previous_key}",
            found=key,
        )


def open_value(value: Buffer, key: int) -> memoryview:
    """The bytes in a `BytesWritable` as it is stored: `i32 n`, n bytes.

    Raises:
        BadLengthError: it does not hold what it declares.
    """
    view = memoryview(value)
    length = int.from_bytes(view[:LENGTH_BYTES], "big", signed=True)
    if len(view) < LENGTH_BYTES or length != len(view) - LENGTH_BYTES:
        raise BadLengthError(
            "a value does not have the length that its record says",
            entry_id=key,
            expected=f"{len(view) - LENGTH_BYTES} bytes",
            found=f"{length} declared",
        )
    return view[LENGTH_BYTES:]
