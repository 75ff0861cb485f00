"""The parts of a ledger file around its entries: header, state, footer; bytes to values and back, no I/O.

    0        header: whose file this is; written once
    4096     state, first slot      what is acknowledged and durable, who may write; written in turn, so that
    8192     state, second slot     one of them is always whole
    12288    frames of entries
    …        footer of a sealed ledger: counts, digest, index; ends the file

All integers are big-endian. Source: docs/formats/ledger-file.md.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.crc32c import crc32c
from offload_core.storage.hot.ledger_frames import FRAME_HEAD_BYTES
from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    ChecksumError,
    MetadataError,
    OptionError,
    TruncatedError,
    UnsupportedVersionError,
)

PAGE_BYTES = 4096
SLOT_OFFSETS = (PAGE_BYTES, 2 * PAGE_BYTES)
FRAMES_OFFSET = 3 * PAGE_BYTES
"""Offset of the first entry's frame."""

HEADER_MAGIC = 0x50754C48
FOOTER_MAGIC = 0x50754C46
VERSION = 1

_HEADER = struct.Struct(">IIIIqq")
_STATE = struct.Struct(">QIIqQqQQ")
_FOOTER = struct.Struct(">IIqqQq16sQ")
_CHECKSUM = struct.Struct(">I")
STATE_BYTES = _STATE.size + _CHECKSUM.size
_SEALED = 1
_POINT_BYTES = 16
MAX_POINTS = 1 << 15
MAX_FOOTER_BYTES = _FOOTER.size + _POINT_BYTES * MAX_POINTS

Points = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The identity of a ledger file."""

    ledger_id: int
    created_at_ms: int
    custom_metadata: Mapping[str, bytes]


class Mark(NamedTuple):
    """A place in a ledger, between two entries: how many there are before it, and the byte where it is."""

    entry_count: int = 0
    offset: int = FRAMES_OFFSET

    @property
    def size_bytes(self) -> int:
        """Payload bytes before it."""
        return self.offset - FRAMES_OFFSET - FRAME_HEAD_BYTES * self.entry_count


class State(NamedTuple):
    """The state that a ledger's writer, or its successor, records. (A tuple, for each append makes one.)

    Attributes:
        sequence: grows with each write; the slot is that of its parity.
        epoch: 1 while the ledger's writer may write; higher: only its recovery may.
        sealed: there is a footer at `acknowledged`.
        acknowledged: up to where entries are acknowledged.
        durable: up to where they are known to be on the disk.
        boot: which run of which machine wrote this; 0: not known.
    """

    sequence: int
    epoch: int
    sealed: bool
    acknowledged: Mark
    durable: Mark
    boot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The summary of a sealed ledger.

    Attributes:
        end: where its entries end, which is where the footer begins.
        digest: XXH3-128 of all frames.
        points: the index, int64, a row of entry id and offset each, ascending.
    """

    ledger_id: int
    end: Mark
    sealed_at_ms: int
    digest: bytes
    points: Points


def pack_header(header: Header) -> bytes:
    """Pack one page. `OptionError` if the custom metadata does not fit."""
    parts = []
    for key, value in header.custom_metadata.items():
        name = key.encode()
        parts.append(struct.pack(">HI", len(name), len(value)) + name + value)
    custom = b"".join(parts)
    room = PAGE_BYTES - _HEADER.size
    if len(custom) > room:
        raise OptionError(
            "a ledger's custom metadata is too large", expected=f"at most {room} bytes", found=len(custom)
        )
    head = _HEADER.pack(HEADER_MAGIC, VERSION, 0, len(custom), header.ledger_id, header.created_at_ms)
    page = (head + custom).ljust(PAGE_BYTES, b"\0")
    return page[:8] + _CHECKSUM.pack(crc32c(page[12:])) + page[12:]


def parse_header(page: bytes, ledger_id: int) -> Header:
    """The header in `page`, which must be that of this ledger."""
    if len(page) < PAGE_BYTES:
        raise TruncatedError(
            "a ledger file's header is cut off", offset=0, expected=PAGE_BYTES, found=len(page)
        )
    magic, version, checksum, custom_bytes, found_id, created_at_ms = _HEADER.unpack_from(page)
    if magic != HEADER_MAGIC:
        raise BadMagicError(
            "this is no ledger file", offset=0, expected=f"{HEADER_MAGIC:08X}", found=f"{magic:08X}"
        )
    if version != VERSION:
        raise UnsupportedVersionError(
            "a ledger file has a version that this program does not know",
            offset=4,
            expected=VERSION,
            found=version,
            hint="Upgrade pulsar-offload.",
        )
    _check(page[12:PAGE_BYTES], checksum, "a ledger file's header", 8)
    if found_id != ledger_id:
        raise MetadataError(
            "a ledger file is that of another ledger", offset=16, expected=ledger_id, found=found_id
        )
    custom = memoryview(page)[_HEADER.size : _HEADER.size + custom_bytes]
    return Header(ledger_id=found_id, created_at_ms=created_at_ms, custom_metadata=_custom(custom))


def _custom(data: memoryview) -> dict[str, bytes]:
    custom: dict[str, bytes] = {}
    position = 0
    try:
        while position < len(data):
            name_bytes, value_bytes = struct.unpack_from(">HI", data, position)
            name_end = position + 6 + name_bytes
            end = name_end + value_bytes
            if end > len(data):
                raise ValueError(end)
            custom[str(data[position + 6 : name_end], "utf-8")] = bytes(data[name_end:end])
            position = end
    except (ValueError, struct.error) as error:
        raise MetadataError(
            "a ledger's custom metadata is damaged", offset=_HEADER.size + position
        ) from error
    return custom


def pack_state(state: State, seed: int) -> bytes:
    """A slot's bytes; `seed` is the ledger's (`frames.ledger_seed`)."""
    sequence, epoch, sealed, acknowledged, durable, boot = state
    body = _STATE.pack(sequence, epoch, _SEALED if sealed else 0, *acknowledged, *durable, boot)
    return body + _CHECKSUM.pack(crc32c(body, seed))


def parse_state(slot: bytes, seed: int) -> State | None:
    """The state in a slot; None if it is damaged, or was just being written."""
    body = slot[: _STATE.size]
    if len(slot) < STATE_BYTES or _CHECKSUM.unpack_from(slot, _STATE.size)[0] != crc32c(body, seed):
        return None
    sequence, epoch, flags, count, offset, durable_count, durable_offset, boot = _STATE.unpack(body)
    return State(
        sequence=sequence,
        epoch=epoch,
        sealed=bool(flags & _SEALED),
        acknowledged=Mark(entry_count=count, offset=offset),
        durable=Mark(entry_count=durable_count, offset=durable_offset),
        boot=boot,
    )


def newest_state(pages: bytes, seed: int) -> State:
    """The newest of both slots; `pages` is the file's beginning, up to the frames.

    Raises:
        ChecksumError: neither is whole.
    """
    states = [parse_state(pages[offset : offset + STATE_BYTES], seed) for offset in SLOT_OFFSETS]
    whole = [state for state in states if state is not None]
    if not whole:
        raise ChecksumError("both slots of a ledger's state are damaged", offset=SLOT_OFFSETS[0])
    return max(whole, key=lambda state: state.sequence)


def pack_footer(footer: Footer) -> bytes:
    """All bytes after the entries."""
    packed = _FOOTER.pack(
        FOOTER_MAGIC,
        0,
        footer.ledger_id,
        footer.end.entry_count,
        footer.end.offset,
        footer.sealed_at_ms,
        footer.digest,
        len(footer.points),
    )
    rest = packed[8:] + footer.points.astype(">i8").tobytes()
    return packed[:4] + _CHECKSUM.pack(crc32c(rest)) + rest


def parse_footer(data: bytes, offset: int, state: State) -> Footer:
    """The footer in `data`, the file's rest from `offset` on; it must match the ledger's state."""
    if len(data) < _FOOTER.size:
        raise TruncatedError(
            "a sealed ledger's footer is cut off", offset=offset, expected=_FOOTER.size, found=len(data)
        )
    magic, rows = _FOOTER.unpack_from(data)[0], _FOOTER.unpack_from(data)[-1]
    if magic != FOOTER_MAGIC:
        raise BadMagicError(
            "a sealed ledger has no footer at its end",
            offset=offset,
            expected=f"{FOOTER_MAGIC:08X}",
            found=f"{magic:08X}",
        )
    if len(data) != _FOOTER.size + _POINT_BYTES * rows:
        raise BadLengthError(
            "a sealed ledger's file is not as long as its footer says",
            offset=offset,
            expected=f"an index of {rows} points",
            found=f"{len(data)} bytes of footer",
        )
    _, checksum, ledger_id, count, frames_end, sealed_at_ms, digest, rows = _FOOTER.unpack_from(data)
    _check(data[8:], checksum, "a sealed ledger's footer", offset + 4)
    end = Mark(entry_count=count, offset=frames_end)
    if end != state.acknowledged or frames_end != offset:
        raise MetadataError(
            "a ledger's footer is not what its state says",
            offset=offset,
            expected=f"{state.acknowledged.entry_count} entries that end at {offset}",
            found=f"{count} that end at {frames_end}",
        )
    points = np.frombuffer(data, ">i8", 2 * rows, _FOOTER.size).astype(np.int64).reshape(-1, 2)
    return Footer(ledger_id=ledger_id, end=end, sealed_at_ms=sealed_at_ms, digest=digest, points=points)


def _check(data: bytes, checksum: int, what: str, offset: int) -> None:
    found = crc32c(data)
    if found != checksum:
        raise ChecksumError(
            f"{what} does not match its checksum",
            offset=offset,
            expected=f"{checksum:08x}",
            found=f"{found:08x}",
        )
