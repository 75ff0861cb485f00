"""What a ledger's entries in one data object have to do with transactions: a value, and its bytes.

The bytes are versioned, checked, and bound to the key and length of the data object. Source:
docs/formats/summary.md.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    ChecksumError,
    EntryOrderError,
    MetadataError,
    TruncatedError,
    UnsupportedVersionError,
)
from offload_hooks.json_text import JsonObject

MAGIC = 0x5075_4C53
VERSION = 1
_HEAD = struct.Struct(">IIII")
_COLUMNS = {"ranges": 4, "markers": 4, "tombstones": 2, "blocks": 4}

Table = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LedgerSummary:
    """The entries of one ledger in one data object. All tables are int64, in ascending order, a row for each thing.

    Attributes:
        data_key, data_bytes: the data object and its length.
        ranges: entries of one transaction that follow one another: first, stop, most and least bits of its id.
        markers: markers of transactions: entry, type (20, 21, 22), most and least bits.
        tombstones: markers without a transaction, which stand for entries that a filter left out: first, stop.
        blocks: offset in the object, number of entries, least and greatest publish time (ms).
    """

    data_key: str
    data_bytes: int
    ledger_id: int
    ranges: Table
    markers: Table
    tombstones: Table
    blocks: Table


def pack_summary(summary: LedgerSummary) -> bytes:
    """The bytes of a summary."""
    tables = [getattr(summary, name) for name in _COLUMNS]
    facts = {
        "data_key": summary.data_key,
        "data_bytes": summary.data_bytes,
        "ledger_id": summary.ledger_id,
        **{name: len(table) for name, table in zip(_COLUMNS, tables, strict=True)},
    }
    described = json.dumps(facts).encode()
    body = described + b"".join(table.astype(">i8").tobytes() for table in tables)
    return _HEAD.pack(MAGIC, VERSION, zlib.crc32(body), len(described)) + body


def parse_summary(data: bytes | memoryview) -> LedgerSummary:
    """The summary in `data`.

    Raises:
        FormatError: bytes that are none; `UnsupportedVersionError` of a newer version.
    """
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise TruncatedError("a ledger's summary is cut off", expected=f"{_HEAD.size} bytes", found=len(view))
    magic, version, checksum, described_bytes = _HEAD.unpack_from(view)
    if magic != MAGIC:
        raise BadMagicError(
            "this is no ledger's summary", offset=0, expected=f"{MAGIC:08X}", found=f"{magic:08X}"
        )
    if version != VERSION:
        raise UnsupportedVersionError(
            "a ledger's summary has a version that this program does not know",
            offset=4,
            expected=VERSION,
            found=version,
            hint="Upgrade pulsar-offload, or name another folder for summaries.",
        )
    body = view[_HEAD.size :]
    found = zlib.crc32(body)
    if found != checksum:
        raise ChecksumError(
            "a ledger's summary does not match its checksum",
            offset=8,
            expected=f"CRC-32 {checksum:08x}",
            found=f"{found:08x}",
        )
    if described_bytes > len(body):
        raise BadLengthError(
            "a summary's description is longer than the summary",
            offset=12,
            expected=f"at most {len(body)}",
            found=described_bytes,
        )
    facts = JsonObject.read(
        bytes(body[:described_bytes]), "a summary's description", error=MetadataError, offset=_HEAD.size
    )
    return _parse_body(facts, body[described_bytes:])


def _parse_body(facts: JsonObject, body: memoryview) -> LedgerSummary:
    rows = {name: facts.integer(name) for name in _COLUMNS}
    expected = sum(8 * columns * rows[name] for name, columns in _COLUMNS.items())
    if expected != len(body):
        raise BadLengthError(
            "a summary's tables are not as long as it says", expected=f"{expected} bytes", found=len(body)
        )
    tables = {}
    position = 0
    for name, columns in _COLUMNS.items():
        size = 8 * columns * rows[name]
        table = np.frombuffer(body[position : position + size], dtype=">i8").astype(np.int64)
        tables[name] = table.reshape(-1, columns)
        tables[name].flags.writeable = False
        position += size
    summary = LedgerSummary(
        data_key=facts.text("data_key"),
        data_bytes=facts.integer("data_bytes"),
        ledger_id=facts.integer("ledger_id"),
        **tables,
    )
    _check(summary)
    return summary


def _check(summary: LedgerSummary) -> None:
    for name, table in (("ranges", summary.ranges), ("tombstones", summary.tombstones)):
        right = (table[:, 0] >= 0).all() and (table[:, 0] < table[:, 1]).all()
        if not right or (table[1:, 0] < table[:-1, 1]).any():
            raise EntryOrderError(f"a summary's {name} are not in order")
    for name, table in (("markers", summary.markers), ("blocks", summary.blocks)):
        if (table[:, 0] < 0).any() or (np.diff(table[:, 0]) <= 0).any():
            raise EntryOrderError(f"a summary's {name} are not in order")
