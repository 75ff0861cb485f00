"""What all protobuf records share: a strict parse, text that is text, the fields that this program does not know."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from offload_hooks.errors import BadLengthError, MetadataError

_Record = TypeVar("_Record", bound=Message)


MOST_BYTES_IN_OBJECTS = 1 << 20
"""Of a record in an index. Fields of a few bytes become values of a hundred, so a larger one is refused before."""


def parse_protobuf(
    kind: type[_Record], data: bytes | memoryview, what: str, *, most_bytes: int | None = None
) -> _Record:
    """Decode a record; `what` names it in errors.

    Raises:
        MetadataError: not a protobuf of this type, or a required field is missing.
        BadLengthError: it has more than `most_bytes`.
    """
    if most_bytes is not None and len(data) > most_bytes:
        raise BadLengthError(f"{what} is too long", expected=f"at most {most_bytes} bytes", found=len(data))
    record = kind()
    try:
        record.ParseFromString(bytes(data))
    except DecodeError as error:
        raise MetadataError(f"{what} cannot be parsed: {error}", found=f"{len(data)} bytes") from error
    if not record.IsInitialized():
        missing = ", ".join(record.FindInitializationErrors())  # type: ignore[attr-defined]
        raise MetadataError(f"{what} lacks what is required", expected=missing)
    return record


def text_of(value: str | bytes, what: str) -> str:
    """A field of type string; protobuf hands out text that is not UTF-8 as bytes: `MetadataError`."""
    if isinstance(value, bytes):
        raise MetadataError(f"a text in {what} is not UTF-8", found=value)
    return value


def unknown_fields(record: Message) -> bytes:
    """The fields of a record (not of the records in it) that its type does not have, as they were encoded."""
    rest = type(record)()
    rest.CopyFrom(record)
    for field in record.DESCRIPTOR.fields:
        rest.ClearField(field.name)
    return rest.SerializePartialToString()
