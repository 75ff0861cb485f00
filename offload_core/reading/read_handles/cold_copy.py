"""Open a ledger's cold copy by its record: each object is looked up in the tier that its record names.

Three small requests per object check that both objects exist, with the length that the index states and a known
version. Only complete copies are opened. Source: docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from offload_core.format.codec.extent import LedgerExtent
from offload_core.format.codec.index import BlockTable, IndexedBlock
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
class ColdExtent(LedgerExtent):
    """An extent of a ledger's cold copy, ready to be read.

    The end of its last block may be unknown, for a streaming object without a record's word.

    Attributes:
        token: identifies its bytes in `ReadMemory`.
    """

    tier: Tier
    token: Hashable
    data_length: int

    @property
    def blocks_or_gap(self) -> BlockTable:
        """The blocks; where a filter left out all entries, one without bytes in their place."""
        if self.blocks:
            return self.blocks
        nothing = IndexedBlock(
            part_number=0,
            offset=0,
            length=0,
            first_entry_id=self.first_entry_id,
            end_entry_id=self.ledger.end_entry_id,
        )
        return BlockTable.of([nothing])


def open_extents(
    tiers: KnownTiers, record: LedgerRecord, managed_ledger: str | None, memory: ReadMemory
) -> tuple[ColdExtent, ...]:
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
    extents: dict[int, ColdExtent] = {}
    with placed(ledger_id=record.ledger_id):
        for copy in recorded_copies(topic_of_managed_ledger(managed_ledger or ""), record):
            if copy.unfinished is None:
                extent = _open_extent(tiers.find(copy.driver), record, copy, managed_ledger, memory)
                extents[extent.first_entry_id] = extent
        if not extents:
            raise UnknownLedgerError("the ledger has no cold copy that is complete")
    return tuple(extents[first] for first in sorted(extents))


def _open_extent(
    tier: Tier, record: LedgerRecord, copy: RecordedCopy, managed_ledger: str | None, memory: ReadMemory
) -> ColdExtent:
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
    return ColdExtent(
        tier=tier,
        token=(memory.token(tier), copy.key.data_key, found.data.size_bytes, found.data.modified_at),
        data_length=found.index.data_length,
        key=copy.key,
        ledger=with_end(ledger, copy.stop_entry_id),
        begin_entry_id=copy.begin_entry_id if stat.marks.has_gaps else None,
        marks=stat.marks,
        sequence_file=found.index.sequence_file,
        directory=found.index.directory,
    )


def _unreadable(found: FoundCopy, mismatch: Mismatch) -> OffloadError:
    """The error of a reader for a mismatch of a copy."""
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


def pinned_bytes(extents: Sequence[ColdExtent]) -> int:
    """Estimate the memory of an open ledger's extents."""
    return sum(_EXTENT_BYTES + _BLOCK_BYTES * len(extent.ledger.blocks) for extent in extents)


_EXTENT_BYTES = 2400
"""Memory of an extent without its blocks, with its key, metadata and reader; measured, as the next."""

_BLOCK_BYTES = 80  # in the index, where the next extent cuts it off, and its end
