"""What is to be done with each entry's payload, and the buffer of those that are not read where they lie.

A payload is read where it is stored, decompressed into scratch memory, passed on as it is, or left out. What was
decrypted or joined of chunks (`opened`) goes through scratch memory as well, decompressed if its metadata says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from offload_core.format.messages.arrays import Bytes, Table
from offload_core.format.messages.compression import decompress_into
from offload_core.format.messages.decompressors import LEFT_ALONE, decompress_payloads
from offload_core.format.messages.kernels import batches
from offload_core.format.messages.kernels import fields as f
from offload_hooks.errors import OffloadError


@dataclass(slots=True, kw_only=True)
class PayloadPlan:
    """Per entry of a table: what is to be done with its payload.

    Attributes:
        treatment: uint8, `READ`, `PASS_ON` or `LEAVE_OUT` (`kernels.fields`).
        in_scratch: uint8, whether it is read from scratch memory.
        sizes: int64, its bytes as it will be read.
        opened: what payloads became by decryption or by joining chunks, by the entry's row.
        first_chunks: ledger and entry of the first chunk of a message that was joined, by the row of its last.
        encrypted, chunks, transactional: how many of each there are.
    """

    treatment: Bytes
    in_scratch: Bytes
    sizes: npt.NDArray[np.int64]
    opened: dict[int, bytes] = field(default_factory=dict)
    first_chunks: dict[int, tuple[int, int]] = field(default_factory=dict)
    encrypted: int
    chunks: int
    transactional: int
    any_in_scratch: bool

    def open(self, row: int, payload: bytes, table: Table) -> None:
        """The payload of this entry is read from now on."""
        is_compressed = table[row, f.E_COMPRESSION] != 0
        self.treatment[row] = f.READ
        self.in_scratch[row] = 1
        self.sizes[row] = table[row, f.E_UNCOMPRESSED_SIZE] if is_compressed else len(payload)
        self.opened[row] = payload
        self.any_in_scratch = True

    def too_large(self, most: int) -> int | None:
        """The first entry whose payload declares no size to decompress to, or more than `most` bytes; None if none."""
        if not self.any_in_scratch:
            return None
        rows = np.flatnonzero((self.in_scratch != 0) & ((self.sizes < 0) | (self.sizes > most)))
        return int(rows[0]) if len(rows) else None


def survey_payloads(table: Table) -> PayloadPlan:
    """What is to be done by the metadata alone: what is encrypted or a chunk is passed on as it is."""
    count = len(table)
    sizes = np.empty(count, dtype=np.int64)
    in_scratch, treatment = np.empty(count, dtype=np.uint8), np.empty(count, dtype=np.uint8)
    encrypted, chunks, transactional, compressed = batches.survey_entries(table, sizes, in_scratch, treatment)
    return PayloadPlan(
        treatment=treatment,
        in_scratch=in_scratch,
        sizes=sizes,
        encrypted=encrypted,
        chunks=chunks,
        transactional=transactional,
        any_in_scratch=compressed > 0,
    )


class WrongPayloadError(Exception):
    """Carries the row of an entry that does not decompress to the place that explains it."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def fill_scratch(
    block: Bytes, table: Table, plan: PayloadPlan, first: int, last: int, room: Callable[[int], Bytes]
) -> tuple[Bytes | None, npt.NDArray[np.int64]]:
    """Decompress payloads of the entries `first` … `last` − 1 one behind another, and copy what was opened.

    `room` gives the buffer, of at least so many bytes. Answers it (None if nothing was to be done), and each entry's
    place in it or −1.

    Raises:
        WrongPayloadError: a payload does not decompress.
    """
    places = np.full(len(table), -1, dtype=np.int64)
    chosen = np.flatnonzero(plan.in_scratch[first:last]) + first
    if len(chosen) == 0:
        return None, places
    ends = np.cumsum(plan.sizes[chosen])
    scratch = room(int(ends[-1]))
    places[chosen] = ends - plan.sizes[chosen]
    starts, lengths = table[chosen, f.E_PAYLOAD], table[chosen, f.E_PAYLOAD_LENGTH]
    codecs = table[chosen, f.E_COMPRESSION]
    if plan.opened:
        codecs[np.isin(chosen, list(plan.opened))] = LEFT_ALONE
    sizes = plan.sizes[chosen]
    left = decompress_payloads(block, starts, lengths, codecs, scratch, places[chosen], sizes)
    for i in left.tolist():
        row, start, end = int(chosen[i]), int(starts[i]), int(ends[i])
        codec, opened = int(table[row, f.E_COMPRESSION]), plan.opened.get(row)
        out = scratch[end - int(sizes[i]) : end]
        try:
            if codec == 0 and opened is not None:
                out[:] = np.frombuffer(opened, dtype=np.uint8)
            else:
                stored = block[start : start + int(lengths[i])]
                payload = stored if opened is None else np.frombuffer(opened, dtype=np.uint8)
                decompress_into(codec, payload, out)
        except OffloadError as error:
            raise WrongPayloadError(row) from error
    return scratch, places
