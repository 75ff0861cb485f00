"""Frames of entries in a ledger file, in plain Python: the oracle of `kernels.frames`, and the one that names faults.

A frame is `u32 checksum, u32 length, i64 entry id, payload`, big-endian. The checksum is CRC-32C over all that follows
it, begun with the ledger's seed, so that the frame of another ledger is none. Source: docs/formats/ledger-file.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from offload_core.format.codec.crc32c import crc32c
from offload_hooks.errors import BadLengthError, ChecksumError, EntryOrderError, FormatError, TruncatedError

FRAME_HEAD_BYTES = 16
MAX_ENTRY_BYTES = 64 << 20

_REST = struct.Struct(">Iq")
_CHECKSUM = struct.Struct(">I")


class LedgerFrame(NamedTuple):
    """An entry in a window: its id, the byte offset of its payload there, the payload's length."""

    entry_id: int
    offset: int
    length: int


def ledger_seed(ledger_id: int) -> int:
    """The seed of the checksums of a ledger's frames."""
    return crc32c(ledger_id.to_bytes(8, "big", signed=True))


def frame_head(ledger_seed: int, entry_id: int, payload: bytes) -> bytes:
    """The 16 bytes before an entry's payload."""
    rest = _REST.pack(len(payload), entry_id)
    checksum = crc32c(payload, crc32c(rest, ledger_seed))
    return _CHECKSUM.pack(checksum) + rest


def pack_frames(ledger_seed: int, first_entry_id: int, payloads: Sequence[bytes]) -> bytes:
    """Frames of `payloads`, with ids from `first_entry_id` on."""
    return b"".join(
        frame_head(ledger_seed, first_entry_id + i, payload) + payload for i, payload in enumerate(payloads)
    )


def walk_frames(
    window: bytes | memoryview, start: int, entry_id: int, ledger_seed: int, *, file_offset: int = 0
) -> Iterator[LedgerFrame]:
    """The frames in `window[start:]`, whose ids are consecutive from `entry_id`.

    `file_offset` is the window's place in its file, for the errors' offsets.

    Raises:
        TruncatedError, BadLengthError, EntryOrderError, ChecksumError: the first fault there is.
    """
    position = start

    def fault(kind: type[FormatError], what: str, expected: str, found: object) -> FormatError:
        return kind(what, expected=expected, found=found, entry_id=entry_id, offset=file_offset + position)

    while position < len(window):
        room = len(window) - position - FRAME_HEAD_BYTES
        if room < 0:
            raise fault(
                TruncatedError,
                "an entry's frame is cut off",
                f"{FRAME_HEAD_BYTES} bytes",
                len(window) - position,
            )
        (checksum,) = _CHECKSUM.unpack_from(window, position)
        length, found_id = _REST.unpack_from(window, position + 4)
        if length > MAX_ENTRY_BYTES:
            raise fault(
                BadLengthError, "an entry's length is too large", f"at most {MAX_ENTRY_BYTES}", length
            )
        if found_id != entry_id:
            what = "an entry is not the one that must come next"
            raise fault(EntryOrderError, what, f"entry id {entry_id}", f"entry id {found_id}")
        if length > room:
            raise fault(TruncatedError, "an entry is cut off", f"{length} bytes", room)
        end = position + FRAME_HEAD_BYTES + length
        found = crc32c(window[position + 4 : end], ledger_seed)
        if found != checksum:
            what = "an entry does not match its checksum"
            raise fault(ChecksumError, what, f"{checksum:08x}", f"{found:08x}")
        yield LedgerFrame(entry_id, position + FRAME_HEAD_BYTES, length)
        position, entry_id = end, entry_id + 1
