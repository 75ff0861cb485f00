"""The frames of a bookie's protocol of version 2, which Pulsar's broker speaks too; numbers are big-endian.

A frame is its length (int32, without itself) and a body, which begins with a header: version, operation, flags. No
function here sets a flag or sends a master key: that is what would fence a ledger. Source: docs/formats/bookkeeper.md.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.protobuf_records import parse_protobuf
from offload_hooks.errors import BadLengthError, FormatError, TruncatedError, UnsupportedVersionError
from offload_proto.bookie_pb2 import AuthMessage

VERSION = 2
READ_ENTRY, AUTH, BATCH_READ = 2, 3, 7
LAST_ENTRY = -1
"""In place of an entry: the last that a bookie has of the ledger."""

MAX_FRAME_BYTES = 64 << 20
"""A longer frame is no answer of a bookie's: by default none has more than 5 MiB."""

_LENGTH = struct.Struct(">i")
_HEADER = struct.Struct(">i")
_READ = struct.Struct(">iiqq")
_READ_FRAME = np.dtype([("length", ">i4"), ("header", ">i4"), ("ledger_id", ">i8"), ("entry_id", ">i8")])
_BATCH_READ = struct.Struct(">iiqqqiq")
_ANSWER = struct.Struct(">iiqq")
_BATCH_ANSWER = struct.Struct(">iiqqq")
BATCH_HEAD_BYTES = 4 + _BATCH_ANSWER.size


class BookieCode(enum.IntEnum):
    """A bookie's answer to a request of version 2."""

    OK = 0
    NO_LEDGER = 1
    NO_ENTRY = 2
    BAD_REQUEST = 100
    IO_ERROR = 101
    UNAUTHORIZED = 102
    BAD_VERSION = 103
    FENCED = 104
    READ_ONLY = 105
    TOO_MANY_REQUESTS = 106
    UNKNOWN_LEDGER_STATE = 107

    @classmethod
    def of(cls, code: int) -> BookieCode:
        """The code of an answer; one that is not known is an error of the bookie's."""
        return cls(code) if code in cls._value2member_map_ else cls.IO_ERROR


def _header(operation: int) -> int:
    return VERSION << 24 | operation << 16


def pack_read(ledger_id: int, entry_id: int) -> bytes:
    """The frame that asks for one entry, or for the last (`LAST_ENTRY`)."""
    return _READ.pack(_READ.size - 4, _header(READ_ENTRY), ledger_id, entry_id)


def pack_reads(ledger_id: int, entry_ids: npt.NDArray[np.int64]) -> bytes:
    """The frames that ask for entries, one by one; the same as `pack_read` of each."""
    frames = np.empty(len(entry_ids), _READ_FRAME)
    frames["length"], frames["header"] = _READ.size - 4, _header(READ_ENTRY)
    frames["ledger_id"], frames["entry_id"] = ledger_id, entry_ids
    return frames.tobytes()


def pack_batch_read(
    ledger_id: int, first_entry_id: int, *, request_id: int, max_count: int, max_bytes: int
) -> bytes:
    """The frame that asks for entries that follow one another: at least one, and no more than both limits allow."""
    return _BATCH_READ.pack(
        _BATCH_READ.size - 4, _header(BATCH_READ), ledger_id, first_entry_id, request_id, max_count, max_bytes
    )


def pack_auth(plugin: str, payload: bytes) -> bytes:
    """The frame of a step of a login."""
    message = AuthMessage(authPluginName=plugin, payload=payload).SerializeToString()
    return _LENGTH.pack(len(message) + _HEADER.size) + _HEADER.pack(_header(AUTH)) + message


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswer:
    """An answer to `pack_read`; `stored` is a stored entry if the code is OK, and else empty."""

    code: int
    ledger_id: int
    entry_id: int
    stored: memoryview


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHead:
    """The begin of an answer to `pack_batch_read`."""

    code: int
    ledger_id: int
    first_entry_id: int
    request_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchAnswer:
    """An answer to `pack_batch_read`, with entries as they are stored, in order."""

    head: BatchHead
    stored: tuple[memoryview, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthAnswer:
    """A bookie's step of a login."""

    plugin: str
    payload: bytes


def parse_frame(frame: memoryview) -> ReadAnswer | BatchAnswer | AuthAnswer:
    """Decode a frame, with its length; the reference implementation of the kernels.

    Raises:
        TruncatedError, BadLengthError: it is shorter or longer than it says.
        UnsupportedVersionError: it is of another version.
        FormatError: it is the answer to nothing that was asked.
    """
    operation = _operation(frame)
    if operation == READ_ENTRY:
        return _parse_read(frame)
    if operation == BATCH_READ:
        return _parse_batch(frame)
    if operation == AUTH:
        return _parse_auth(frame)
    raise _another(operation)


def _operation(frame: memoryview) -> int:
    _need(frame, 8)
    length, header = _LENGTH.unpack_from(frame)[0], _HEADER.unpack_from(frame, 4)[0]
    if length != len(frame) - 4:
        raise BadLengthError("a bookie's frame has another length", expected=length, found=len(frame) - 4)
    if header >> 24 != VERSION:
        raise UnsupportedVersionError(
            "a bookie answers in another version", expected=VERSION, found=header >> 24
        )
    operation: int = header >> 16 & 0xFF
    return operation


def _another(operation: int) -> FormatError:
    return FormatError(
        "a bookie answers something else", expected="what was asked", found=f"operation {operation}"
    )


def _parse_read(frame: memoryview) -> ReadAnswer:
    at = 4 + _ANSWER.size
    _need(frame, at)
    _, code, ledger_id, entry_id = _ANSWER.unpack_from(frame, 4)
    return ReadAnswer(code=code, ledger_id=ledger_id, entry_id=entry_id, stored=frame[at:])


def parse_batch_head(frame: memoryview) -> BatchHead:
    """Decode the begin of a batch answer: its first `BATCH_HEAD_BYTES`. Errors as `parse_frame`."""
    if (operation := _operation(frame)) != BATCH_READ:
        raise _another(operation)
    _need(frame, BATCH_HEAD_BYTES)
    _, code, ledger_id, first_entry_id, request_id = _BATCH_ANSWER.unpack_from(frame, 4)
    return BatchHead(code=code, ledger_id=ledger_id, first_entry_id=first_entry_id, request_id=request_id)


def _parse_batch(frame: memoryview) -> BatchAnswer:
    head, at = parse_batch_head(frame), BATCH_HEAD_BYTES
    stored: list[memoryview] = []
    while at < len(frame):
        _need(frame, at + 4)
        (length,) = _LENGTH.unpack_from(frame, at)
        at += 4
        if length < 0:
            raise BadLengthError("an entry in a bookie's answer has a length that is none", found=length)
        _need(frame, at + length)
        stored.append(frame[at : at + length])
        at += length
    return BatchAnswer(head=head, stored=tuple(stored))


def _parse_auth(frame: memoryview) -> AuthAnswer:
    message = parse_protobuf(AuthMessage, frame[8:], "a bookie's login")
    return AuthAnswer(plugin=message.authPluginName, payload=message.payload)


def _need(frame: memoryview, size: int) -> None:
    if len(frame) < size:
        raise TruncatedError(
            "a bookie's frame is cut off", expected=f"at least {size} bytes", found=len(frame)
        )
