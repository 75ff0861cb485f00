"""The CRC-32C of a data object's blocks while it is verified: against checksums that there are, or to make some."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from offload_core.codec.block_checksums import BlockChecksums, RunningChecksums, block_lengths_of
from offload_core.codec.index import ObjectIndex
from offload_core.scan.fetch import Window
from offload_core.verify.codes import Code
from offload_core.verify.findings import Finding, Findings


class BlockSums:
    """The checksums of one object's blocks.

    Args:
        known: those that lie beside it; None where there are none.
        makes: they are to be made.
        found: takes blocks that are not those that were written.
    """

    def __init__(
        self, index: ObjectIndex, known: BlockChecksums | None, *, makes: bool, found: Findings
    ) -> None:
        self._known = known
        self._makes = makes
        self._found = found
        self._lengths = block_lengths_of(index) if known is None else known.lengths
        self._running = RunningChecksums(self._lengths) if makes or known is not None else None
        self._sums: dict[int, int] = {}

    def passed(self, windows: Iterator[Window]) -> Iterator[Window]:
        """One ledger's windows; of each the bytes are looked at when the next is asked for."""
        if self._running is None:
            yield from windows
            return
        self._running.rewind()
        for window in windows:
            yield window
            for number, crc in self._running.update(window.data, window.offset):
                self._take(number, crc, window)

    def made(self, index_bytes: int, index_crc: int) -> BlockChecksums | None:
        """The checksums of all blocks, if they were to be made and all came by."""
        if not self._makes or len(self._sums) != len(self._lengths):
            return None
        crcs = np.fromiter((self._sums[number] for number in range(len(self._lengths))), np.uint32)
        return BlockChecksums(index_length=index_bytes, index_crc=index_crc, lengths=self._lengths, crcs=crcs)

    def _take(self, number: int, crc: int, window: Window) -> None:
        if self._makes:
            self._sums[number] = crc
        if self._known is None or self._known.crcs[number] == crc:
            return
        assert self._running is not None
        offset, code = self._running.offset(number), Code.CHECKSUMS_BLOCK
        self._found.add(
            Finding(
                code=code,
                what=code.meaning,
                ledger_id=window.run.ledger_id,
                block=window.block.part_number if window.block.offset == offset else None,
                offset=offset,
                expected=f"{self._known.crcs[number]:08x}",
                found=f"{crc:08x}",
            )
        )
