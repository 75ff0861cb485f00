"""What an index object says, whichever format it has.

Each decoder (`pip17`, `streaming`, `mapfile.layout`) turns bytes into an `ObjectIndex`; `decoder` picks one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from offload_core.codec.block_header import BLOCK_HEADER_BYTES
from offload_core.codec.entry_directory import DirectoryPlace
from offload_core.codec.ledger_info import LedgerInfo
from offload_core.codec.ledger_metadata import LedgerMetadata
from offload_core.codec.mapfile.header import SequenceFile
from offload_core.codec.named_fields import NamedFields
from offload_core.codec.object_format import ObjectFormat
from offload_hooks.errors import BadLengthError, EntryOrderError


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedBlock:
    """One block as the index knows it; of a MapFile, a stretch of its data file.

    Attributes:
        part_number: as stored. From 1 over the object in what Pulsar writes; the PIPs say otherwise: don't rely on it.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerIndex:
    """One ledger's blocks in an object, in order of their entries, and its metadata as the index keeps it.

    There is none of a ledger that a segment's record names, and of which a filter left out all entries.
    """

    ledger_id: int
    metadata: LedgerMetadata | LedgerInfo
    blocks: tuple[IndexedBlock, ...]

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
        """Bytes of all the ledger's entries by its metadata, which can be wrong; None if not said."""
        return self.metadata.length if isinstance(self.metadata, LedgerMetadata) else self.metadata.size


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectIndex:
    """An index object. `ledgers` are in the order in which the index has them (PIP-17 and MapFile: one).

    `sequence_file` is what readers of a MapFile's data must know; None in the other formats. `directory` is where our
    own writer left an entry directory.
    """

    object_format: ObjectFormat
    data_length: int
    ledgers: tuple[LedgerIndex, ...]
    sequence_file: SequenceFile | None = None
    directory: DirectoryPlace | None = None


BLOCK_FIELDS = NamedFields(("first entry id", "q"), ("part number", "i"), ("offset of its header", "q"))
"""A line of an index's list of blocks, in PIP-17 and streaming indexes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockEntry:
    """One line of an index's list of blocks, as stored."""

    first_entry_id: int
    part_number: int
    offset: int


def check_lengths(data_length: int, header_length: int) -> None:
    """Refuse a data length or block header length that no object has."""
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


def block_lengths(entries: Sequence[BlockEntry], data_length: int) -> dict[int, int]:
    """Block offset → block length, for all blocks of an object.

    Raises:
        BadLengthError: offsets that do not begin at 0, collide, or leave less than a header between them.
    """
    offsets = sorted(entry.offset for entry in entries)
    if offsets[0] != 0:
        raise BadLengthError("no block of an index begins at byte 0", expected=0, found=offsets[0])
    lengths: dict[int, int] = {}
    for offset, end in zip(offsets, [*offsets[1:], data_length], strict=True):
        if end - offset < BLOCK_HEADER_BYTES:
            raise BadLengthError(
                "an index leaves less than a header's room for a block",
                expected=f"{BLOCK_HEADER_BYTES} bytes or more from {offset}",
                found=f"its end at {end}",
            )
        lengths[offset] = end - offset
    return lengths


def index_blocks(
    entries: Sequence[BlockEntry], lengths: dict[int, int], end_entry_id: int | None
) -> tuple[IndexedBlock, ...]:
    """One ledger's blocks, from its lines in the index; `end_entry_id` is one past its last entry, if known.

    Raises:
        EntryOrderError: first entry ids or offsets that do not ascend, or that pass the ledger's end.
    """
    ends: list[int | None] = [entry.first_entry_id for entry in entries[1:]]
    blocks = []
    for i, (entry, end) in enumerate(zip(entries, [*ends, end_entry_id], strict=True)):
        if entry.first_entry_id < 0 or (end is not None and end <= entry.first_entry_id):
            raise EntryOrderError(
                "the blocks of an index are not in the order of their entries",
                block=i + 1,
                expected="a first entry id from 0 on, below the next block's or the ledger's end",
                found=f"{entry.first_entry_id}, then {end}",
            )
        if i and entry.offset <= entries[i - 1].offset:
            raise EntryOrderError(
                "the blocks of an index are not in the order of their offsets",
                block=i + 1,
                expected=f"an offset past {entries[i - 1].offset}",
                found=entry.offset,
            )
        blocks.append(
            IndexedBlock(
                part_number=entry.part_number,
                offset=entry.offset,
                length=lengths[entry.offset],
                first_entry_id=entry.first_entry_id,
                end_entry_id=end,
            )
        )
    return tuple(blocks)
