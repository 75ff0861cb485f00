"""A topic's entries by where they lie, as its record says: which positions are in which object, and which only hot."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from offload_core.catalogue.recorded_copies import RecordedCopy, recorded_copies
from offload_core.catalogue.topics import TopicName
from offload_core.codec.object_format import ObjectKey
from offload_core.metadata import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.offload_context import FILTER_PROPERTY


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRange:
    """Entries of one ledger that follow one another and lie in the same places.

    Attributes:
        end_entry_id: the last one; None where it is not known yet, since the ledger is written.
        key: of the data object that has them; None if they are hot only.
        is_complete: whether that may be read; else it is being written, or its attempt failed.
        is_hot: whether the hot tier has them too.
        filter_record: what a filter did to the whole object, as the record says it; None if none ran.
    """

    ledger_id: int
    first_entry_id: int
    end_entry_id: int | None
    key: ObjectKey | None
    is_complete: bool
    is_hot: bool
    filter_record: str | None = None

    @property
    def entries(self) -> int | None:
        """How many there are; None where it is not known yet."""
        return None if self.end_entry_id is None else self.end_entry_id + 1 - self.first_entry_id


def layout_of(topic: TopicName, info: ManagedLedgerInfo) -> list[EntryRange]:
    """All entries of a topic, in their order; without ledgers that are empty or being deleted."""
    return [
        part
        for ledger in info.in_order
        if not ledger.is_condemned
        for part in _ranges(ledger, list(recorded_copies(topic, ledger)))
    ]


def _ranges(ledger: LedgerRecord, copies: list[RecordedCopy]) -> Iterator[EntryRange]:
    stop = ledger.info.entries if ledger.info.is_closed else None
    is_hot = ledger.has_hot_copy
    first = 0
    for copy in copies:
        is_segment = copy.key.ledger_id is None
        copy_stop = copy.stop_entry_id if is_segment else stop
        if copy_stop is None:
            copy_stop = stop  # a segment under way: it may end before
        if copy_stop is None or copy_stop > first:
            yield _range(ledger, first, copy_stop, copy, is_hot=is_hot)
        if copy_stop is None:
            return
        first = copy_stop
    if stop is None or first < stop:
        yield _range(ledger, first, stop, None, is_hot=is_hot)


def _range(
    ledger: LedgerRecord, first: int, stop: int | None, copy: RecordedCopy | None, *, is_hot: bool
) -> EntryRange:
    return EntryRange(
        ledger_id=ledger.ledger_id,
        first_entry_id=first,
        end_entry_id=None if stop is None else stop - 1,
        key=None if copy is None else copy.key,
        is_complete=copy is not None and copy.unfinished is None,
        is_hot=is_hot,
        filter_record=None if copy is None or copy.driver is None else copy.driver.get(FILTER_PROPERTY),
    )
