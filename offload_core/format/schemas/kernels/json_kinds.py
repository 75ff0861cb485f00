"""Numbers in the tables of JSON's values (`schemas.json_decoder`)."""

from __future__ import annotations

RECORD, LIST, MAP, TEXT, BYTES, WHOLE, DOUBLE, BOOLEAN, NULL = range(9)
"""Kinds of values: bytes are base64, whole is an integer."""

KIND, SLOT, FIRST, COUNT, LEVEL, LEVEL_COUNT, NAME, NAME_BYTES, LIMIT, LOW, HIGH, FACTOR = range(12)
"""A value's row: its kind and slot; the rows of a record's fields, a list's items, a map's key and value; of the whole,
a list and a map the slots that each item adds a cell to; its name as a field; of an integer the largest that its type
has, what its column holds, and by what it is multiplied there."""
PARTS = 12

MOST_KEYS = 64
"""Most keys of a map; each is compared with all before it."""
