"""The frames of a bookie's protocol of version 3: those for TLS, a login, and the long poll of an open ledger.

A frame is its length (int32, without itself) and a protobuf. No request here has a master key or the flag that fences.
Source: docs/formats/bookkeeper.md.
"""

from __future__ import annotations

import struct

from offload_core.format.codec.protobuf_records import parse_protobuf
from offload_hooks.errors import UnsupportedVersionError
from offload_proto.bookie_pb2 import AuthMessage, Header, ReadRequest, Request, Response, StartTlsRequest

VERSION = 3
READ_ENTRY, AUTH, START_TLS = 1, 5, 9
_PIGGYBACK = 2
"""The flag of a read that waits until the last add confirmed moves."""

OK = 0

_LENGTH = struct.Struct(">i")


def pack_start_tls(number: int) -> bytes:
    """The frame that asks to go on by TLS."""
    return _pack(Request(header=_header(START_TLS, number), startTlsRequest=StartTlsRequest()))


def pack_login(plugin: str, payload: bytes, number: int) -> bytes:
    """The frame of a step of a login, on a connection that is to speak this version."""
    message = AuthMessage(authPluginName=plugin, payload=payload)
    return _pack(Request(header=_header(AUTH, number), authRequest=message))


def pack_long_poll(ledger_id: int, last_add_confirmed: int, timeout_ms: int, number: int) -> bytes:
    """The frame that asks for the entry after `last_add_confirmed`, as soon as that one has been confirmed itself."""
    return _pack(
        Request(
            header=_header(READ_ENTRY, number),
            readRequest=ReadRequest(
                ledgerId=ledger_id,
                entryId=-1,
                previousLAC=last_add_confirmed,
                timeOut=timeout_ms,
                flag=_PIGGYBACK,
            ),
        )
    )


def parse_response(body: bytes | memoryview) -> Response:
    """Decode a frame's body.

    Raises:
        MetadataError: it is no response.
        UnsupportedVersionError: it is of another version.
    """
    response = parse_protobuf(Response, body, "a bookie's response")
    if response.header.version != VERSION:
        raise UnsupportedVersionError(
            "a bookie answers in another version", expected=VERSION, found=response.header.version
        )
    return response


def _header(operation: int, number: int) -> Header:
    return Header(version=VERSION, operation=operation, txnId=number)


def _pack(request: Request) -> bytes:
    body = request.SerializeToString()
    return _LENGTH.pack(len(body)) + body
