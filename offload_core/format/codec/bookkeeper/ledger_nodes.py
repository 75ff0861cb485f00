"""What ZooKeeper has of BookKeeper: where a ledger's node is, what it says, and at which address a bookie is.

Values of the versions 1 to 3 are read; fields that are not known are passed over. Nothing is ever written.
Source: docs/formats/bookkeeper.md.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from google.protobuf import text_format

from offload_core.format.codec.ledger_metadata import (
    Ensemble,
    LedgerMetadata,
    LedgerState,
    from_metadata_record,
    parse_ledger_metadata,
)
from offload_core.format.codec.protobuf_records import MOST_BYTES_IN_OBJECTS, parse_protobuf
from offload_hooks.errors import BadLengthError, MetadataError, UnsupportedVersionError
from offload_proto.bookie_pb2 import BookieServiceInfoFormat
from offload_proto.bookkeeper_pb2 import LedgerMetadataFormat

_LAST_SHORT_ID = 2**31 - 2
_SHORT = (2, 4)
_LONG = (3, 4, 4, 4)
"""Digits of the nodes above a ledger's own one, which has four."""

LEDGER_NODE = re.compile(r"L[0-9]{4}")


def ledger_node(ledger_id: int) -> str:
    """The path of a ledger's node below the root of all ledgers, such as `/00/0000/L0001`."""
    return _node(f"{ledger_id:010d}", _SHORT) if ledger_id <= _LAST_SHORT_ID else long_ledger_node(ledger_id)


def long_ledger_node(ledger_id: int) -> str:
    """The path where clusters have it that were set up for long ids, also that of a short one."""
    return _node(f"{ledger_id:019d}", _LONG)


def _node(digits: str, widths: tuple[int, ...]) -> str:
    parts: list[str] = []
    for width in widths:
        parts.append(digits[:width])
        digits = digits[width:]
    return "/" + "/".join([*parts, f"L{digits}"])


def is_above_ledgers(names: tuple[str, ...]) -> bool:
    """True if a path below the root of all ledgers can lead to ledgers, or is empty."""
    return any(
        len(names) <= len(widths)
        and all(
            len(name) == width and name.isascii() and name.isdigit()
            for name, width in zip(names, widths, strict=False)
        )
        for widths in (_SHORT, _LONG)
    )


def ledger_id_of(names: tuple[str, ...]) -> int | None:
    """The ledger of a node, by the names that lead to it; None if it is no ledger's."""
    if not names or not LEDGER_NODE.fullmatch(names[-1]):
        return None
    above = names[:-1]
    if tuple(map(len, above)) not in (_SHORT, _LONG) or not is_above_ledgers(above):
        return None
    return int("".join(above) + names[-1][1:])


_HEADER = re.compile(rb"BookieMetadataFormatVersion\t([0-9]{1,9})\n")
_WHAT = "a ledger's description"
_IN_RECOVERY = -102
"""In place of the last entry, in version 1."""


def parse_ledger_node(value: bytes) -> LedgerMetadata:
    """Decode the value of a ledger's node.

    Raises:
        MetadataError, BadLengthError: it is damaged, or none.
        UnsupportedVersionError: it was written by a newer BookKeeper.
    """
    if len(value) > MOST_BYTES_IN_OBJECTS:
        raise BadLengthError(
            f"{_WHAT} is too long", expected=f"at most {MOST_BYTES_IN_OBJECTS} bytes", found=len(value)
        )
    header = _HEADER.match(value)
    if header is None:
        raise MetadataError(f"{_WHAT} does not begin with its version", found=value[:40])
    rest = value[header.end() :]
    version = int(header[1])
    if version == 1:
        metadata = _parse_lines(rest)
    elif version == 2:
        metadata = _parse_text(rest)
    elif version == 3:
        metadata = parse_ledger_metadata(_delimited(rest))
    else:
        raise UnsupportedVersionError(
            f"{_WHAT} has a version that is not known here",
            expected="1 to 3",
            found=version,
            hint="Upgrade pulsar-offload: pip install --upgrade pulsar-offload.",
        )
    return _checked(metadata)


def _delimited(data: bytes) -> bytes:
    length, shift, at = 0, 0, 0
    while True:
        if at == len(data) or shift > 28:
            raise MetadataError(f"{_WHAT} is cut off")
        length |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            break
    if length != len(data) - at:
        raise BadLengthError(f"{_WHAT} has another length", expected=length, found=len(data) - at)
    return data[at:]


def _parse_text(data: bytes) -> LedgerMetadata:
    record = LedgerMetadataFormat()
    try:
        text_format.Parse(data.decode(), record, allow_unknown_field=True)
    except (text_format.ParseError, UnicodeDecodeError, RecursionError) as error:
        raise MetadataError(f"{_WHAT} cannot be parsed", found=type(error).__name__) from error
    return from_metadata_record(record)


def _parse_lines(data: bytes) -> LedgerMetadata:
    """Version 1: sizes of quorum and ensemble, length; a line for each ensemble; at last the end, if there is one."""
    try:
        lines = data.decode().split("\n")
        write_quorum_size, ensemble_size, length = map(int, lines[:3])
        metadata = LedgerMetadata(
            write_quorum_size=write_quorum_size,
            ensemble_size=ensemble_size,
            length=length,
            state=LedgerState.OPEN,
        )
        ensembles = list[Ensemble]()
        for line in filter(None, lines[3:]):
            first, *others = line.split("\t")
            if others == ["CLOSED"]:
                last = int(first)
                closed = last != _IN_RECOVERY
                metadata = replace(
                    metadata,
                    state=LedgerState.CLOSED if closed else LedgerState.IN_RECOVERY,
                    last_entry_id=last if closed and last >= 0 else None,
                )
                break
            ensembles.append(Ensemble(first_entry_id=int(first), members=tuple(others)))
    except ValueError as error:
        raise MetadataError(f"{_WHAT} cannot be parsed", found=str(error)) from error
    return replace(metadata, ensembles=tuple(ensembles))


def _checked(metadata: LedgerMetadata) -> LedgerMetadata:
    """The description, whose entries can be found by it."""
    firsts = [each.first_entry_id for each in metadata.ensembles]
    if not 1 <= metadata.write_quorum_size <= metadata.ensemble_size:
        raise MetadataError(
            f"{_WHAT} has sizes that make no sense",
            expected="1 ≤ write quorum ≤ ensemble",
            found=f"{metadata.write_quorum_size}, {metadata.ensemble_size}",
        )
    if not firsts or firsts[0] != 0 or firsts != sorted(set(firsts)):
        raise MetadataError(f"{_WHAT} has ensembles that are not in order from entry 0 on", found=firsts[:20])
    for each in metadata.ensembles:
        if len(each.members) != metadata.ensemble_size:
            raise MetadataError(
                f"{_WHAT} has an ensemble of another size",
                expected=metadata.ensemble_size,
                found=len(each.members),
            )
    return metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class BookieAddress:
    """Where a bookie answers."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


_BOOKIE_ID = re.compile(r"(?P<host>[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


def parse_bookie_node(bookie_id: str, value: bytes) -> BookieAddress:
    """The address in the value of a bookie's node; of an empty one, what the bookie's id says.

    Raises:
        MetadataError: it names no endpoint of BookKeeper's protocol.
    """
    if not value:
        return address_of_id(bookie_id)
    info = parse_protobuf(
        BookieServiceInfoFormat, value, "a bookie's registration", most_bytes=MOST_BYTES_IN_OBJECTS
    )
    for endpoint in info.endpoints:
        if (endpoint.id, endpoint.protocol) == ("bookie", "bookie-rpc") and endpoint.host:
            return BookieAddress(host=endpoint.host, port=_port(endpoint.port, bookie_id))
    raise MetadataError(
        "a bookie's registration has no endpoint of the protocol bookie-rpc", found=ascii(bookie_id)
    )


def address_of_id(bookie_id: str) -> BookieAddress:
    """The address that a bookie's id is; `MetadataError` if it is none."""
    found = _BOOKIE_ID.fullmatch(bookie_id)
    if found is None:
        raise MetadataError("a bookie's id is no address", expected="host:port", found=ascii(bookie_id))
    return BookieAddress(host=found["host"], port=_port(int(found["port"]), bookie_id))


def _port(port: int, bookie_id: str) -> int:
    if not 0 < port < 1 << 16:
        raise MetadataError("a bookie has a port that is none", found=f"{bookie_id!a}: {port}")
    return port
