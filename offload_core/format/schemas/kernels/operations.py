"""The instructions of a program that reads datums: six int64 each, the operation and its arguments.

`slot` −1 reads and stores nothing. Addresses are rows of the program. Ranges are of `numbers`, an int64 array
beside it.
"""

from __future__ import annotations

END = 0
"""The datum ends here."""
INT, LONG, FLOAT, DOUBLE, BOOLEAN = 1, 2, 3, 4, 5
"""slot, conversion, bound: a number."""
SPAN = 6
"""slot, whether it is text: bytes with their length before them."""
FIXED = 7
"""slot, size."""
ENUM = 8
"""slot, start and length of a range: the reader's symbol for each of the writer's, −1 for none."""
DECIMAL = 9
"""slot, size (−1: its length stands before it), upper and lower word of the first number that is too large."""
UNION = 10
"""–, start and length of a range: the address for each branch."""
JUMP = 11
"""–, address."""
NULLS = 12
"""–, start and length of a range: slots that a null is added to."""
VALID = 13
"""slot: a struct that is there."""
LIST = 14
"""–: an array or map begins; its `NEXT` follows."""
NEXT = 15
"""–, address after the list's end, cells of an item, slot of the list: go on with the next item, or leave."""
CONSTANT = 16
"""slot, value of the cell."""
ITEMS = 17
"""slot, number of items of a constant list, which follow, cells of an item."""
FAULT = 18
"""The reader has no counterpart of the value."""

AS_IS, TO_DOUBLE, TO_MICROSECONDS, TIME_OF_DAY = 0, 1, 2, 3
"""Conversions: none; of an integer for a float's cell; of ms, null beyond int64; null from the bound on."""

IN_POOL = 1 << 62
"""Flag of a span's cell: its offset is into the pool of constants. A cell is flag | offset << 31 | length."""
SPAN_BITS = 31
LONGEST = (1 << SPAN_BITS) - 1

TOO_MANY_CELLS = 2
"""The fault of a payload that has more cells in lists than it may; 1 is that of one that is not right."""
