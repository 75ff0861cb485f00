"""Numbers in the tables of Protobuf messages. Source: protobuf.dev, "Encoding"."""

from __future__ import annotations

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = 0, 1, 2, 3, 4, 5
"""Wire types."""

INT32, INT64, UINT32, UINT64, SINT32, SINT64, BOOL, ENUM = 0, 1, 2, 3, 4, 5, 6, 7
FIXED_32, SFIXED_32, FLOAT, FIXED_64, DOUBLE = 8, 9, 10, 11, 12
STRING, BYTES, MESSAGE, GROUP = 13, 14, 15, 16

KINDS = {
    "int32": INT32,
    "int64": INT64,
    "uint32": UINT32,
    "uint64": UINT64,
    "sint32": SINT32,
    "sint64": SINT64,
    "bool": BOOL,
    "enum": ENUM,
    "fixed32": FIXED_32,
    "sfixed32": SFIXED_32,
    "float": FLOAT,
    "fixed64": FIXED_64,
    "sfixed64": FIXED_64,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "message": MESSAGE,
    "group": GROUP,
}
"""Protobuf's types by how they are read; both of 8 bytes are read alike."""

WIRE_TYPES = (*(VARINT,) * 8, *(FIXED32,) * 3, *(FIXED64,) * 2, *(LENGTH,) * 3, START_GROUP)
"""The wire type of each kind."""

NUMBER, KIND, WIRE_TYPE, SLOT, REPEATS, INNER, CLEARS, CLEARS_COUNT, SYMBOLS, SYMBOLS_COUNT = range(10)
"""A field's row: slot −1 for one that only clears the others of its oneof; the message in it; slots to clear (pairs of
bounds) and a closed enum's numbers, as ranges of numbers."""
FIELD_PARTS = 10

FIRST, COUNT, IS_ENTRY, SLOTS, SLOTS_COUNT, LISTS, LISTS_COUNT = range(7)
"""A message's row: its fields; whether it is an entry of a map; of a frame its slots, and those of lists."""
MESSAGE_PARTS = 7

MOST_GROUPS = 100
"""Most levels of nested unknown groups."""
