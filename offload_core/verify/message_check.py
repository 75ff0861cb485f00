"""Entries that are Pulsar's: their CRC-32C, metadata, compression and batches, by the decoder that reads messages.

Whether an object has entries of Pulsar's is told by its first ones; of others nothing can be said but that their frames
are right. What is encrypted, and chunks, are verified by their checksums only.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from offload_core.codec.byte_arrays import Bytes
from offload_core.messages.decode import BATCH_BYTES, MessageDecoder
from offload_core.messages.entry import BROKER_METADATA_MAGIC, CHECKSUM_MAGIC, split_entry
from offload_core.messages.schema import arrow_schema
from offload_core.scan.tasks import DEFAULT_MAX_MESSAGE_BYTES
from offload_core.verify.block_walk import Located, Longs
from offload_core.verify.codes import Code
from offload_core.verify.findings import ENTRY_CODES, Findings, code_of, of_error
from offload_hooks.errors import DecompressionError, FormatError

_LOOKED_AT = 64
"""So many of an object's first entries tell whether they are Pulsar's."""

_BROKER_HEAD_BYTES = 6


class MessageCheck:
    """The check of one ledger's entries in one object.

    Attributes:
        unchecked: entries that have no checksum.
    """

    def __init__(self, ledger_id: int, found: Findings) -> None:
        self._found = found
        self._is_pulsars: bool | None = None
        self._decoder = MessageDecoder(
            topic=None,
            partition=-1,
            ledger_id=ledger_id,
            schema=arrow_schema("messages", ["__entryId"]),
            verify_checksums=True,
            max_message_bytes=DEFAULT_MAX_MESSAGE_BYTES,
        )
        self.unchecked = 0

    def check(self, located: Located) -> None:
        """Check entries; what is wrong is added to the findings."""
        if self._is_pulsars is None:
            self._is_pulsars = _are_pulsars(located)
        self.unchecked += len(located.entry_ids) - _with_checksum(located)
        if self._is_pulsars:
            for first, last in _batches(located):
                self._check_run(located, first, last)

    def _check_run(self, located: Located, first: int, last: int) -> None:
        """Entries of one batch; behind a wrong one it goes on with the next."""
        while first < last and not self._found.is_full:
            entry_ids = located.entry_ids[first:last]
            offsets, lengths = located.offsets[first:last], located.lengths[first:last]
            try:
                for _ in self._decoder.decode(located.array, located.base, entry_ids, offsets, lengths):
                    pass
                return
            except FormatError as error:
                behind = 0 if error.entry_id is None else int(np.searchsorted(entry_ids, error.entry_id))
                wrong = first + behind
                self._found.add(of_error(_judge(located, wrong, error), error))
                first = wrong + 1


def _judge(located: Located, row: int, error: FormatError) -> Code:
    """What is wrong with an entry: something that it is framed by, or its payload."""
    start = int(located.offsets[row])
    entry = located.array[start : start + int(located.lengths[row])].tobytes()
    try:
        split_entry(entry)
    except FormatError as wrong:
        return code_of(wrong, ENTRY_CODES, Code.MESSAGE_BAD_METADATA)
    return Code.MESSAGE_DECOMPRESSION if isinstance(error, DecompressionError) else Code.MESSAGE_BAD_BATCH


def _batches(located: Located) -> Iterator[tuple[int, int]]:
    """Entries, about a batch full of bytes at a time."""
    ends = np.cumsum(located.lengths)
    first, stop = 0, len(located.entry_ids)
    while first < stop:
        before = int(ends[first - 1]) if first else 0
        last = min(stop, int(np.searchsorted(ends, before + BATCH_BYTES)) + 1)
        yield first, last
        first = last


def _are_pulsars(located: Located) -> bool:
    return any(_is_pulsars(located, row) for row in range(min(_LOOKED_AT, len(located.entry_ids))))


def _is_pulsars(located: Located, row: int) -> bool:
    start = int(located.offsets[row])
    entry = located.array[start : start + int(located.lengths[row])].tobytes()
    if int.from_bytes(entry[:2], "big") in (BROKER_METADATA_MAGIC, CHECKSUM_MAGIC):
        return True
    try:
        split_entry(entry, verify_checksum=False)
    except FormatError:
        return False
    return True


def _with_checksum(located: Located) -> int:
    """How many of the entries begin with a checksum, behind a broker's metadata perhaps."""
    array, ends = located.array, located.offsets + located.lengths
    starts = located.offsets[located.lengths >= _BROKER_HEAD_BYTES]
    ends = ends[located.lengths >= _BROKER_HEAD_BYTES]
    if not len(starts):
        return 0
    magics = _u16(array, starts)
    has_broker = magics == BROKER_METADATA_MAGIC
    count = int((magics == CHECKSUM_MAGIC).sum())
    if has_broker.any():
        starts, ends = starts[has_broker], ends[has_broker]
        sizes = (_u16(array, starts + 2) << 16) | _u16(array, starts + 4)
        behind = starts + _BROKER_HEAD_BYTES + sizes
        behind = behind[behind + _BROKER_HEAD_BYTES <= ends]
        count += int((_u16(array, behind) == CHECKSUM_MAGIC).sum())
    return count


def _u16(array: Bytes, places: Longs) -> Longs:
    numbers: Longs = (array[places].astype(np.int64) << 8) | array[places + 1]
    return numbers
