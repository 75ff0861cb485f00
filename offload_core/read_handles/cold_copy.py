"""A ledger's record → its cold copy, ready to be read: each object looked up in the tier that its record names.

Three small requests an object: both are there, as long as the index says, of a version that is known. Only complete
copies are opened. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from offload_core.catalogue.known_tiers import KnownTiers
from offload_core.catalogue.reading import read_index
from offload_core.catalogue.recorded import (
    RecordedCopy,
    find_ledger,
    find_mismatch,
    recorded_copies,
    with_end,
)
from offload_core.catalogue.topics import topic_of_managed_ledger
from offload_core.codec.entry_directory import DirectoryPlace
from offload_core.codec.filtered_objects import has_gaps
from offload_core.codec.index import BlockTable, IndexedBlock, LedgerIndex, ObjectIndex
from offload_core.codec.mapfile.header import SequenceFile
from offload_core.codec.object_format import (
    FORMAT_VERSION,
    FORMAT_VERSION_KEY,
    ObjectFormat,
    ObjectKey,
)
from offload_core.metadata import LedgerRecord
from offload_core.read_handles.memory import ReadMemory
from offload_core.tier import Tier
from offload_hooks.errors import (
    BadLengthError,
    IndexMismatchError,
    ObjectNotFoundError,
    OptionError,
    UnknownLedgerError,
    UnsupportedVersionError,
    placed,
)
from offload_hooks.values import ObjectStat


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdPiece:
    """Part of a ledger, or all of it, in one object.

    Attributes:
        token: which bytes these are, for `ReadMemory`.
        ledger: the ledger's blocks; the end of the last may be unknown, of a streaming object without a record's word.
        has_gaps: whether entries were left out on purpose, so that ids only ascend.
        first_entry_id: the first entry that the object stands for, with gaps also without it.
        directory: our own entry directory, in the index object.
    """

    tier: Tier
    token: Hashable
    key: ObjectKey
    object_format: ObjectFormat
    data_length: int
    ledger: LedgerIndex
    has_gaps: bool
    first_entry_id: int
    sequence_file: SequenceFile | None
    directory: DirectoryPlace | None

    @property
    def blocks(self) -> BlockTable:
        """The ledger's blocks; where a filter left out all of its entries, one without bytes that stands for them."""
        if self.ledger.blocks:
            return self.ledger.blocks
        nothing = IndexedBlock(
            part_number=0,
            offset=0,
            length=0,
            first_entry_id=self.first_entry_id,
            end_entry_id=self.ledger.end_entry_id,
        )
        return BlockTable.of([nothing])


def open_pieces(
    tiers: KnownTiers, record: LedgerRecord, managed_ledger: str | None, memory: ReadMemory
) -> tuple[ColdPiece, ...]:
    """The complete objects of a ledger's cold copy, in the order of their entries; at least one.

    Args:
        managed_ledger: its name, by which MapFiles are found; None where there are none.

    Raises:
        UnknownLedgerError: no copy is recorded as complete.
        OptionError: the tier of an object is not configured, or a MapFile is to be found without its topic's name.
        ObjectNotFoundError: an object that is recorded as complete is not there.
        FormatError: it is not what its record or index says.
        StoreError: the tier fails.
    """
    pieces: dict[int, ColdPiece] = {}
    with placed(ledger_id=record.ledger_id):
        for copy in recorded_copies(topic_of_managed_ledger(managed_ledger or ""), record):
            if copy.unfinished is None:
                piece = _open_piece(tiers.find(copy.driver), copy, managed_ledger, memory)
                pieces[piece.first_entry_id] = piece
        if not pieces:
            raise UnknownLedgerError("the ledger has no cold copy that is complete")
    return tuple(pieces[first] for first in sorted(pieces))


def _open_piece(tier: Tier, copy: RecordedCopy, managed_ledger: str | None, memory: ReadMemory) -> ColdPiece:
    if copy.key.is_mapfile and managed_ledger is None:
        raise OptionError("a MapFile is found by the name of its managed ledger", ledger_id=copy.ledger_id)
    try:
        stored, index = _open_object(tier, copy.key)
    except ObjectNotFoundError:
        if copy.mapfile_key is None or managed_ledger is None:
            raise
        copy = replace(copy, key=copy.mapfile_key, mapfile_key=None)
        stored, index = _open_object(tier, copy.key)
    gaps = has_gaps(stored.user_metadata)
    ledger = find_ledger(copy, index, gaps=gaps)
    mismatch = find_mismatch(copy, ledger)
    if ledger is None or mismatch is not None:
        raise IndexMismatchError(
            "a cold copy is not what its ledger's record says", key=copy.key.index_key, found=mismatch
        )
    return ColdPiece(
        tier=tier,
        token=(memory.token(tier), copy.key.data_key, stored.size_bytes, stored.modified_at),
        key=copy.key,
        object_format=index.object_format,
        data_length=index.data_length,
        ledger=with_end(ledger, copy.stop_entry_id),
        has_gaps=gaps,
        first_entry_id=copy.begin_entry_id if gaps else ledger.first_entry_id,
        sequence_file=index.sequence_file,
        directory=index.directory,
    )


def _open_object(tier: Tier, key: ObjectKey) -> tuple[ObjectStat, ObjectIndex]:
    """An object's data as it is stored, and its index."""
    data, stored = tier.stat(key.data_key), tier.stat(key.index_key)
    version = data.user_metadata.get(FORMAT_VERSION_KEY, FORMAT_VERSION)
    if version != FORMAT_VERSION:
        raise UnsupportedVersionError(
            "an object has a format version that is not known",
            key=key.data_key,
            expected=FORMAT_VERSION,
            found=version,
        )
    index = read_index(tier, key, index_bytes=stored.size_bytes, data_bytes=data.size_bytes)
    if index.data_length != data.size_bytes:
        raise BadLengthError(
            "a data object is not as long as its index says",
            key=key.data_key,
            expected=f"{index.data_length} bytes",
            found=data.size_bytes,
        )
    return data, index


def pinned_bytes(pieces: Sequence[ColdPiece]) -> int:
    """About what an open ledger's pieces take."""
    return sum(_PIECE_BYTES + _BLOCK_BYTES * len(piece.ledger.blocks) for piece in pieces)


_PIECE_BYTES = 2400
"""Of a piece without its blocks, with its key, metadata and reader; measured, as the next."""

_BLOCK_BYTES = 36
