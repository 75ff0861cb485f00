"""Payloads to frames, in pieces that are written one after another; and the bounds on what is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from offload_core.codec.byte_arrays import Bytes, read_only
from offload_core.ledgers.frames import FRAME_HEAD_BYTES, MAX_ENTRY_BYTES
from offload_core.ledgers.kernels.frames import frame_entries
from offload_core.ledgers.spare_buffers import give, take
from offload_core.messages.checksum import crc32c_address
from offload_hooks.errors import OptionError
from offload_hooks.values import ReadableBuffer

PIECE_BYTES = 4 << 20
"""How much is framed at once, unless one entry has more."""

Piece = tuple[memoryview, int, int]
"""Frames, the index of their first entry, and one past that of their last."""


def checked(payload: ReadableBuffer, ledger_id: int) -> bytes:
    """The payload as bytes; `OptionError` if it is too large or no bytes."""
    try:
        data = payload if type(payload) is bytes else bytes(memoryview(payload))
    except TypeError:
        raise OptionError("an entry is no bytes", ledger_id=ledger_id, found=type(payload).__name__) from None
    if len(data) > MAX_ENTRY_BYTES:
        raise OptionError(
            "an entry is too large",
            ledger_id=ledger_id,
            expected=f"at most {MAX_ENTRY_BYTES}",
            found=len(data),
        )
    return data


class Payloads:
    """Entries of one call or several, ready to be framed.

    Attributes:
        offsets: where each begins in `values`, and the end of the last (int64).
    """

    def __init__(self, payloads: Sequence[ReadableBuffer], ledger_id: int) -> None:
        try:
            joined = b"".join(payloads)
        except TypeError:
            raise OptionError("an entry is no bytes", ledger_id=ledger_id) from None
        lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
        self.offsets: npt.NDArray[np.int64] = np.zeros(len(payloads) + 1, np.int64)
        np.cumsum(lengths, out=self.offsets[1:])
        if self.offsets[-1] != len(joined):
            raise OptionError("an entry is no contiguous run of bytes", ledger_id=ledger_id)
        if len(lengths) and lengths.max() > MAX_ENTRY_BYTES:
            raise OptionError(
                "an entry is too large",
                ledger_id=ledger_id,
                expected=f"at most {MAX_ENTRY_BYTES}",
                found=int(lengths.max()),
            )
        self.values: Bytes = read_only(joined)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[memoryview]:
        data = self.values.data
        return (data[a:b] for a, b in pairwise(self.offsets.tolist()))

    def frame_offsets(self) -> npt.NDArray[np.int64]:
        """Where each entry's frame begins, from that of the first on, and the end of the last."""
        return self.offsets + FRAME_HEAD_BYTES * np.arange(len(self.offsets), dtype=np.int64)

    def pieces(self, first_entry_id: int, seed: int) -> Iterator[Piece]:
        """The frames, piece by piece; each is to be used before the next is asked for."""
        ends = self.frame_offsets()
        first = 0
        buffer = bytearray()
        try:
            while first < len(self):
                last = int(np.searchsorted(ends, ends[first] + PIECE_BYTES, side="right")) - 1
                last = max(last, first + 1)
                needed = int(ends[last] - ends[first])
                if len(buffer) < needed:
                    buffer = take(needed)
                frame_entries(
                    self.values,
                    self.offsets,
                    first,
                    last,
                    first_entry_id + first,
                    crc32c_address(),
                    np.uint32(seed),
                    np.frombuffer(buffer, np.uint8),
                )
                yield memoryview(buffer)[:needed], first, last
                first = last
        finally:
            give(buffer)
