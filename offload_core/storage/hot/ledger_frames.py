"""Frames of entries in a ledger file, in plain Python: the oracle of `kernels.frames`, and the one that names faults.

A frame is `u32 checksum, u32 length, i64 entry id, payload`, big-endian. The checksum is CRC-32C over all that follows
it, begun with the ledger's seed, so that the frame of another ledger is none. Source: docs/formats/ledger-file.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import google_crc32c

from offload_core.format.messages.checksum import crc32c
from offload_hooks.errors import BadLengthError, ChecksumError, EntryOrderError, TruncatedError

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
    checksum = google_crc32c.extend(google_crc32c.extend(ledger_seed, rest), payload)
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
    while position < len(window):
        here = {"entry_id": entry_id, "offset": file_offset + position}
        if len(window) - position < FRAME_HEAD_BYTES:
            raise TruncatedError(
                "an entry's frame is cut off",
                expected=f"{FRAME_HEAD_BYTES} bytes",
                found=len(window) - position,
                **here,  # type: ignore[arg-type]
            )
        (checksum,) = _CHECKSUM.unpack_from(window, position)
        length, found_id = _REST.unpack_from(window, position + 4)
        if length > MAX_ENTRY_BYTES:
            raise BadLengthError(
                "an entry's length is too large",
                expected=f"at most {MAX_ENTRY_BYTES}",
                found=length,
                **here,  # type: ignore[arg-type]
            )
        if found_id != entry_id:
            raise EntryOrderError(
                "an entry is not the one that must come next",
                expected=f"entry id {entry_id}",
                found=f"entry id {found_id}",
                **here,  # type: ignore[arg-type]
            )
        end = position + FRAME_HEAD_BYTES + length
        if end > len(window):
            raise TruncatedError(
                "an entry is cut off",
                expected=f"{length} bytes",
                found=len(window) - position - FRAME_HEAD_BYTES,
                **here,  # type: ignore[arg-type]
            )
        found = google_crc32c.extend(ledger_seed, bytes(window[position + 4 : end]))
        if found != checksum:
            raise ChecksumError(
                "an entry does not match its checksum",
                expected=f"{checksum:08x}",
                found=f"{found:08x}",
                **here,  # type: ignore[arg-type]
            )
        yield LedgerFrame(entry_id, position + FRAME_HEAD_BYTES, length)
        position, entry_id = end, entry_id + 1
