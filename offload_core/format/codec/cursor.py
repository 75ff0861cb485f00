"""The cursor over the entries of one block (or stretch of a MapFile), as every format has it, and which one to open.

`blocks.BlockCursor` is that of PIP-17 and streaming objects, `mapfile.cursor.MapFileCursor` that of MapFiles.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Bytes, Longs
from offload_core.format.codec.blocks import BlockCursor
from offload_core.format.codec.index import IndexedBlock
from offload_core.format.codec.mapfile.cursor import MapFileCursor
from offload_core.format.codec.mapfile.sequence_file import SequenceFile
from offload_core.format.codec.object_format import ObjectFormat


class EntryCursor(Protocol):
    """Walks the entries of one block once, in order, window by window.

    `next_entry_id` is the least id that can come next, `payload_bytes` how many bytes of entries the walk has passed,
    `done` whether it is over, `starved` whether what comes next lies behind the window.
    """

    next_entry_id: int
    payload_bytes: int
    done: bool
    starved: bool

    @property
    def array(self) -> Bytes:
        """Where the entries are that were located last (uint8)."""
        ...

    @property
    def offset(self) -> int | None:
        """The place of `array` in the object; None if it is not bytes of the object, but inflated."""
        ...

    @property
    def reached(self) -> int:
        """The place in the object from which on a next window must have its bytes."""
        ...

    @property
    def next_length(self) -> int:
        """Payload bytes of the next entry (only where there is one)."""
        ...

    def feed(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Go on in the next window: the bytes `data` from the object's byte `offset` on."""
        ...

    def skip_to(self, entry_id: int) -> None:
        """Go on to `entry_id`, or the first entry behind it that there is, unless the cursor is there already."""
        ...

    def locate(self, entry_ids: Longs, offsets: Longs, lengths: Longs, byte_room: int) -> int:
        """Find the payloads of the next entries in `array`, and their ids, which ascend; how many they are.

        As many as fit the outputs; stops after the entry with which they reach `byte_room` bytes. 0 only at the end, of
        the block or of the window.
        """
        ...

    def copy(self, values: Bytes, value_offsets: npt.NDArray[np.int32], entry_ids: Longs) -> int:
        """Copy the payloads of the next entries, as many as fit; how many they are.

        They lie behind one another in `values`; `value_offsets` gets their borders (one more than entries), `entry_ids`
        their ids, which ascend. 0 at the end, of the block or of the window, or if the next entry alone is larger than
        `values`: then neither `done` nor `starved`, and `next_length` tells its size.
        """
        ...


def open_cursor(
    data: bytes | bytearray | memoryview,
    object_format: ObjectFormat,
    ledger_id: int,
    indexed: IndexedBlock,
    *,
    sequence_file: SequenceFile | None = None,
    stop_entry_id: int | None = None,
    gaps: bool = False,
    more: bool = False,
) -> EntryCursor:
    """The cursor over a block of an object of this format; arguments as of `BlockCursor`.

    `sequence_file` is the index's, and given exactly for a MapFile, whose ids may always have gaps.
    """
    if sequence_file is not None:
        return MapFileCursor(data, sequence_file, ledger_id, indexed, stop_entry_id=stop_entry_id, more=more)
    return BlockCursor(
        data, object_format, ledger_id, indexed, stop_entry_id=stop_entry_id, gaps=gaps, more=more
    )
