"""Open a ledger's cold copy by its record: each object is looked up in the tier that its record names.

Three small requests per object check that both objects exist, with the length that the index states and a known
version. Only complete copies are opened. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from offload_core.format.codec.entry_directory import DirectoryPlace
from offload_core.format.codec.index import BlockTable, IndexedBlock, LedgerIndex
from offload_core.format.codec.mapfile.header import SequenceFile
from offload_core.format.codec.object_format import ObjectFormat, ObjectKey
from offload_core.metadata.catalogue.copy_check import (
    FoundCopy,
    Mismatch,
    MismatchKind,
    MismatchSeverity,
    check_copy,
    find_copy,
    find_ledger,
    with_end,
)
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.catalogue.recorded_copies import RecordedCopy, recorded_copies
from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.records import LedgerRecord
from offload_core.reading.read_handles.read_memory import ReadMemory
from offload_core.storage.tier import Tier
from offload_hooks.errors import (
    BadLengthError,
    IndexMismatchError,
    ObjectNotFoundError,
    OffloadError,
    OptionError,
    UnknownLedgerError,
    UnsupportedVersionError,
    placed,
)


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
        FormatError: it differs from its record or index.
        StoreError: the tier fails.
    """
    pieces: dict[int, ColdPiece] = {}
    with placed(ledger_id=record.ledger_id):
        for copy in recorded_copies(topic_of_managed_ledger(managed_ledger or ""), record):
            if copy.unfinished is None:
                piece = _open_piece(tiers.find(copy.driver), record, copy, managed_ledger, memory)
                pieces[piece.first_entry_id] = piece
        if not pieces:
            raise UnknownLedgerError("the ledger has no cold copy that is complete")
    return tuple(pieces[first] for first in sorted(pieces))


def _open_piece(
    tier: Tier, record: LedgerRecord, copy: RecordedCopy, managed_ledger: str | None, memory: ReadMemory
) -> ColdPiece:
    if managed_ledger is None:
        if copy.key.is_mapfile:
            raise OptionError(
                "a MapFile is found by the name of its managed ledger", ledger_id=copy.ledger_id
            )
        copy = replace(copy, mapfile_key=None)
    found = find_copy(tier, copy)
    stat, copy = found.stat, found.copy
    mismatch = check_copy(record, copy, stat, found.index)
    if mismatch is not None and mismatch.severity is MismatchSeverity.UNREADABLE:
        raise _unreadable(found, mismatch)
    assert found.data is not None
    assert found.index is not None
    assert stat is not None
    ledger = find_ledger(copy, found.index, gaps=stat.marks.has_gaps)
    assert ledger is not None
    return ColdPiece(
        tier=tier,
        token=(memory.token(tier), copy.key.data_key, found.data.size_bytes, found.data.modified_at),
        key=copy.key,
        object_format=found.index.object_format,
        data_length=found.index.data_length,
        ledger=with_end(ledger, copy.stop_entry_id),
        has_gaps=stat.marks.has_gaps,
        first_entry_id=copy.begin_entry_id if stat.marks.has_gaps else ledger.first_entry_id,
        sequence_file=found.index.sequence_file,
        directory=found.index.directory,
    )


def _unreadable(found: FoundCopy, mismatch: Mismatch) -> OffloadError:
    """The error of a reader for what is wrong with a copy."""
    return _ERRORS.get(mismatch.kind, IndexMismatchError)(
        f"a cold copy cannot be read: {mismatch.what}",
        key=mismatch.key(found.copy),
        expected=mismatch.expected,
        found=mismatch.found,
    )


_ERRORS: dict[MismatchKind, type[OffloadError]] = {
    MismatchKind.NO_DATA: ObjectNotFoundError,
    MismatchKind.NO_INDEX: ObjectNotFoundError,
    MismatchKind.UNKNOWN_VERSION: UnsupportedVersionError,
    MismatchKind.WRONG_LENGTH: BadLengthError,
}


def pinned_bytes(pieces: Sequence[ColdPiece]) -> int:
    """Estimate the memory of an open ledger's extents."""
    return sum(_PIECE_BYTES + _BLOCK_BYTES * len(piece.ledger.blocks) for piece in pieces)


_PIECE_BYTES = 2400
"""Of a piece without its blocks, with its key, metadata and reader; measured, as the next."""

_BLOCK_BYTES = 80  # in the index, where the next piece cuts it off, and its end
