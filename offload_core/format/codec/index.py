"""An index object as a value, whichever format it has.

Each decoder (`pip17`, `streaming`, `mapfile.index_file`) turns bytes into an `ObjectIndex`; `decoder` picks one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
import numpy.typing as npt

from offload_core.format.codec.arrays import Longs
from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES, NamedFields
from offload_core.format.codec.entry_directory import DirectoryPlace
from offload_core.format.codec.ledger_metadata import LedgerInfo, LedgerMetadata
from offload_core.format.codec.mapfile.sequence_file import SequenceFile
from offload_core.format.codec.object_format import INDEX_MAGIC, ObjectFormat
from offload_hooks.errors import BadLengthError, BadMagicError, EntryOrderError, TruncatedError


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedBlock:
    """One block as the index describes it; of a MapFile, a stretch of its data file.

    Attributes:
        part_number: as stored. From 1 over the object in what Pulsar writes; the PIPs differ: don't rely on it.
        offset: of the block's header in the data object.
        length: in bytes, to the next block or the object's end.
        first_entry_id: the block's first entry; of a block-compressed MapFile, the least that it can be.
        end_entry_id: one past its last entry, where the index shows it (not for the end of a streaming segment); inside
            a MapFile, the most that it can be.
    """

    part_number: int
    offset: int
    length: int
    first_entry_id: int
    end_entry_id: int | None


_ROW = np.dtype(
    [
        ("part_number", np.int32),
        ("offset", np.int64),
        ("length", np.int64),
        ("first_entry_id", np.int64),
        ("end_entry_id", np.int64),
    ]
)
_NOT_KNOWN = -1
"""In the column `end_entry_id`, for None."""

_AT_ONCE = 4096


class BlockTable(Sequence[IndexedBlock]):
    """One ledger's blocks in an object, in order of their entries: a sequence of `IndexedBlock`, kept as columns.

    A block takes 36 bytes; its value is made when it is asked for. Immutable; a slice shares the columns. Large tables
    are worked on by columns (`data_bytes`, `overlapping`, `where`), not block by block.

    Args:
        rows: an array with the columns `part_number` (int32), `offset`, `length`, `first_entry_id` and `end_entry_id`
            (int64, −1 if it is not known).
    """

    __slots__ = ("_rows",)

    def __init__(self, rows: npt.NDArray[np.void]) -> None:
        self._rows = rows.view()
        self._rows.flags.writeable = False

    @classmethod
    def of(cls, blocks: Iterable[IndexedBlock]) -> BlockTable:
        """The table of some blocks."""
        if isinstance(blocks, BlockTable):
            return blocks
        return cls(np.array([_row_of(block) for block in blocks], dtype=_ROW))

    @overload
    def __getitem__(self, at: int) -> IndexedBlock: ...

    @overload
    def __getitem__(self, at: slice) -> BlockTable: ...

    def __getitem__(self, at: int | slice) -> IndexedBlock | BlockTable:
        return BlockTable(self._rows[at]) if isinstance(at, slice) else _block_of(self._rows[at].item())

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[IndexedBlock]:
        for at in range(0, len(self._rows), _AT_ONCE):
            yield from map(_block_of, self._rows[at : at + _AT_ONCE].tolist())

    def __reversed__(self) -> Iterator[IndexedBlock]:
        return iter(self[::-1])

    def __eq__(self, other: object) -> bool:
        return np.array_equal(self._rows, other._rows) if isinstance(other, BlockTable) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._rows.tobytes())

    def __repr__(self) -> str:
        return f"BlockTable of {len(self)} blocks"

    def __reduce__(self) -> tuple[Callable[[bytes], BlockTable], tuple[bytes]]:
        return _table_of, (self._rows.tobytes(),)

    @property
    def offsets(self) -> Longs:
        """The offset of each block in the data object (int64)."""
        return self._rows["offset"]

    @property
    def lengths(self) -> Longs:
        """Number of bytes that each has (int64)."""
        return self._rows["length"]

    @property
    def first_entry_ids(self) -> Longs:
        """The first entry of each (int64)."""
        return self._rows["first_entry_id"]

    def end_entry_ids(self, *, unknown: int) -> Longs:
        """One past the last entry of each (int64); `unknown` where that is not known."""
        ends = self._rows["end_entry_id"]
        return np.where(ends == _NOT_KNOWN, unknown, ends)

    @property
    def data_bytes(self) -> int:
        """Of all blocks."""
        return int(self.lengths.sum())

    def condensed(self) -> BlockTable:
        """One block that stands for all: the first's place and first entry, the last's end, the length of all."""
        if len(self) < 2:
            return self
        first, last = self[0], self[-1]
        return BlockTable.of([replace(first, length=self.data_bytes, end_entry_id=last.end_entry_id)])

    def where(self, chosen: npt.NDArray[np.bool_]) -> BlockTable:
        """The blocks for which a mask of as many values is true."""
        return self if chosen.all() else BlockTable(self._rows[chosen])

    def overlapping(self, start: int, stop: int | None) -> BlockTable:
        """The blocks that may have entries from `start` up to `stop` (None for no bound)."""
        ends = self._rows["end_entry_id"]
        chosen = (ends > start) | (ends == _NOT_KNOWN)
        if stop is not None:
            chosen &= self.first_entry_ids < stop
        return self.where(chosen)

    def with_end(self, end_entry_id: int) -> BlockTable:
        """The same, the last block with this end."""
        rows = self._rows.copy()
        rows["end_entry_id"][-1] = end_entry_id
        return BlockTable(rows)

    def __add__(self, other: BlockTable) -> BlockTable:
        return BlockTable(np.concatenate([self._rows, other._rows]))


def _row_of(block: IndexedBlock) -> tuple[int, ...]:
    end = _NOT_KNOWN if block.end_entry_id is None else block.end_entry_id
    return block.part_number, block.offset, block.length, block.first_entry_id, end


def _block_of(row: tuple[int, int, int, int, int]) -> IndexedBlock:
    part_number, offset, length, first, end = row
    return IndexedBlock(
        part_number=part_number,
        offset=offset,
        length=length,
        first_entry_id=first,
        end_entry_id=None if end == _NOT_KNOWN else end,
    )


def _table_of(rows: bytes) -> BlockTable:
    return BlockTable(np.frombuffer(rows, dtype=_ROW))


NO_BLOCKS = BlockTable(np.empty(0, dtype=_ROW))


def ranges_as_blocks(first_entry_ids: Longs, stop_entry_id: int, data_bytes: int) -> BlockTable:
    """Ranges of entries that follow one another, as blocks that share some bytes by their numbers of entries.

    `first_entry_ids` (int64) ascend from 0 on; the last range ends before `stop_entry_id`.
    """
    rows = np.empty(len(first_entry_ids), _ROW)
    rows["part_number"] = np.arange(1, len(rows) + 1)
    rows["first_entry_id"] = first_entry_ids
    ends = np.append(first_entry_ids[1:], stop_entry_id) if len(rows) else first_entry_ids
    rows["end_entry_id"] = ends
    borders = np.round(np.append(first_entry_ids, ends[-1:]) * (data_bytes / max(stop_entry_id, 1)))
    rows["offset"], rows["length"] = borders[:-1] if len(rows) else borders, np.diff(borders)
    return BlockTable(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerIndex:
    """One ledger's blocks in an object, in order of their entries, and its metadata as the index keeps it.

    There is none of a ledger that a segment's record names, and of which a filter left out all entries.

    Attributes:
        condensed_blocks: how many blocks one stands for, if it stands for all of them: see `condensed`. Else None.
    """

    ledger_id: int
    metadata: LedgerMetadata | LedgerInfo
    blocks: BlockTable
    condensed_blocks: int | None = None

    @property
    def block_count(self) -> int:
        """Number of blocks that the ledger has in the object."""
        return len(self.blocks) if self.condensed_blocks is None else self.condensed_blocks

    def condensed(self) -> LedgerIndex:
        """The same with one block that stands for all: enough to list the ledger, too little to read it."""
        return replace(self, blocks=self.blocks.condensed(), condensed_blocks=self.block_count)

    @property
    def first_entry_id(self) -> int:
        """The first entry of the ledger that lies in this object, by its first block."""
        return self.blocks[0].first_entry_id

    @property
    def end_entry_id(self) -> int | None:
        """One past the last entry that the object stands for, where the index shows it."""
        if self.blocks:
            return self.blocks[-1].end_entry_id
        return self.metadata.entries if isinstance(self.metadata, LedgerInfo) else None

    @property
    def payload_bytes(self) -> int | None:
        """Bytes of all the ledger's entries by its metadata, which can be wrong; None if it is not recorded."""
        return self.metadata.length if isinstance(self.metadata, LedgerMetadata) else self.metadata.size


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectIndex:
    """An index object. `ledgers` are in the order in which the index has them (PIP-17 and MapFile: one).

    `sequence_file` has header and length of a MapFile's data file; None in the other formats. `directory` is where our
    own writer left an entry directory.
    """

    object_format: ObjectFormat
    data_length: int
    ledgers: tuple[LedgerIndex, ...]
    sequence_file: SequenceFile | None = None
    directory: DirectoryPlace | None = None

    def condensed(self) -> ObjectIndex:
        """The same with one block for each ledger, as `LedgerIndex.condensed`."""
        return replace(self, ledgers=tuple(ledger.condensed() for ledger in self.ledgers))


BLOCK_FIELDS = NamedFields(("first entry id", "q"), ("part number", "i"), ("offset of its header", "q"))
"""A line of an index's list of blocks, in PIP-17 and streaming indexes."""

_LINE = np.dtype([("first_entry_id", ">i8"), ("part_number", ">i4"), ("offset", ">i8")])


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockEntry:
    """One line of an index's list of blocks, as stored."""

    first_entry_id: int
    part_number: int
    offset: int


def read_head(data: bytes | memoryview, fields: NamedFields, object_format: ObjectFormat) -> tuple[int, ...]:
    """The fields of an index's head after its magic; the first three are the lengths of index, data and block header.

    Raises:
        TruncatedError, BadMagicError, BadLengthError: cut off, of another format, or of lengths that no object has.
    """
    size, magic = fields.struct.size, INDEX_MAGIC[object_format]
    if len(data) < size:
        raise TruncatedError(
            "an index is cut off", offset=0, expected=f"{size} bytes or more", found=len(data)
        )
    found, length, data_length, header_length, *others = fields.struct.unpack_from(data)
    if found != magic:
        name = "PIP-17" if object_format is ObjectFormat.PIP17 else object_format.value
        raise BadMagicError(
            f"this is not a {name} index", offset=0, expected=f"{magic:08X}", found=f"{found:08X}"
        )
    if length < size:
        raise BadLengthError(
            "an index declares to be shorter than its head",
            offset=4,
            expected=f"{size} or more",
            found=length,
        )
    if length > len(data):
        raise TruncatedError("an index is cut off", offset=4, expected=f"{length} bytes", found=len(data))
    if data_length < BLOCK_HEADER_BYTES:
        raise BadLengthError(
            "an index declares a data object shorter than one block's header",
            offset=8,
            expected=f"{BLOCK_HEADER_BYTES} or more",
            found=data_length,
        )
    if header_length != BLOCK_HEADER_BYTES:
        raise BadLengthError(
            "an index declares block headers of another length",
            offset=16,
            expected=BLOCK_HEADER_BYTES,
            found=header_length,
        )
    return length, data_length, header_length, *others


def read_block_entries(data: bytes | memoryview, count: int, at: int) -> npt.NDArray[np.void]:
    """The `count` lines of a list of blocks that begins at byte `at`, as an array that shares its bytes.

    Its columns are `first_entry_id`, `part_number` and `offset`.
    """
    return np.frombuffer(data, dtype=_LINE, count=count, offset=at)


def block_lengths(offsets: Longs, data_length: int) -> Longs:
    """The length of each block of an object (int64), given where they begin, in any order.

    Raises:
        BadLengthError: offsets that do not begin at 0, collide, or leave less than a header between them.
    """
    is_sorted = bool((offsets[1:] >= offsets[:-1]).all())
    order = slice(None) if is_sorted else np.argsort(offsets, kind="stable")
    begins = offsets[order]
    if begins[0] != 0:
        raise BadLengthError("no block of an index begins at byte 0", expected=0, found=int(begins[0]))
    lengths = np.empty(len(begins), np.int64)
    np.subtract(begins[1:], begins[:-1], out=lengths[:-1])
    lengths[-1] = data_length - int(begins[-1])
    short = lengths < BLOCK_HEADER_BYTES
    if short.any():
        at = int(short.argmax())
        raise BadLengthError(
            "an index leaves less than a header's room for a block",
            expected=f"{BLOCK_HEADER_BYTES} bytes or more from {begins[at]}",
            found=f"its end at {int(begins[at]) + int(lengths[at])}",
        )
    if is_sorted:
        return lengths
    unsorted = np.empty_like(lengths)
    unsorted[order] = lengths
    return unsorted


def index_blocks(entries: npt.NDArray[np.void], lengths: Longs, end_entry_id: int | None) -> BlockTable:
    """One ledger's blocks, from its lines in the index and their lengths.

    `end_entry_id` is one past its last entry, if known.

    Raises:
        EntryOrderError: first entry ids or offsets that do not ascend, or that pass the ledger's end.
    """
    rows = np.empty(len(entries), _ROW)
    for name in ("part_number", "offset", "first_entry_id"):
        rows[name] = entries[name]
    rows["length"] = lengths
    firsts, offsets, ends = rows["first_entry_id"], rows["offset"], rows["end_entry_id"]
    ends[:-1] = firsts[1:]
    ends[-1] = _NOT_KNOWN if end_entry_id is None else end_entry_id
    misplaced = firsts < 0
    misplaced[:-1] |= ends[:-1] <= firsts[:-1]
    misplaced[-1] |= end_entry_id is not None and end_entry_id <= firsts[-1]
    not_after = np.zeros(len(rows), bool)
    np.less_equal(offsets[1:], offsets[:-1], out=not_after[1:])
    wrong = misplaced | not_after
    if wrong.any():
        at = int(wrong.argmax())
        if misplaced[at]:
            end = end_entry_id if at == len(rows) - 1 else int(ends[at])
            raise EntryOrderError(
                "the blocks of an index are not in the order of their entries",
                block=at + 1,
                expected="a first entry id from 0 on, below the next block's or the ledger's end",
                found=f"{firsts[at]}, then {end}",
            )
        raise EntryOrderError(
            "the blocks of an index are not in the order of their offsets",
            block=at + 1,
            expected=f"an offset past {offsets[at - 1]}",
            found=int(offsets[at]),
        )
    return BlockTable(rows)
