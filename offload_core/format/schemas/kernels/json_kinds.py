"""Numbers in the tables of JSON's values (`schemas.json_decoder`)."""

from __future__ import annotations

RECORD, LIST, MAP, TEXT, BYTES, WHOLE, DOUBLE, BOOLEAN, NULL = range(9)
"""Kinds of values: bytes are base64, whole is an integer."""

KIND, SLOT, FIRST, COUNT, LEVEL, LEVEL_COUNT, NAME, NAME_BYTES, WORD, SHIFT, LIMIT, LOW, HIGH, FACTOR = range(
    14
)
"""A value's row: its kind and slot; the rows of a record's fields, a list's items, a map's key and value; of the whole,
a list and a map the slots that each item adds a cell to; its name as a field, and the first eight bytes of it and the
quote after it as a big-endian word, of which the bits from `SHIFT` on count; of an integer the largest that its type
has, what its column holds, and by what it is multiplied there."""
PARTS = 14

MOST_KEYS = 64
"""Most keys of a map; each is compared with all before it."""
