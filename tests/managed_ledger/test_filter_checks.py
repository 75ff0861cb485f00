"""What a filter took out is checked against the transactions of that moment: each check by itself."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest
from records import closed, managed_ledger

from offload_core.codec.index import IndexedBlock, LedgerIndex
from offload_core.codec.ledger_info import LedgerInfo
from offload_core.filters import DroppedEntries, FilterMode, FilterRecord
from offload_core.filters.record import RECORD_KEY, aborted_cause
from offload_core.filters.recorded import settled_by_filters
from offload_core.metadata import (
    DriverMetadata,
    EntryPosition,
    OffloadContext,
    OffloadSegment,
)
from offload_core.offload.filter_check import check_settled, checked_record
from offload_core.transactions import BufferSnapshot, TransactionId
from offload_hooks.errors import DataLossError, OffloadError

ONE = TransactionId(0, 1)
PREFIX = EntryPosition(1 << 40, 0)


def record_of(dropped: int, stop: EntryPosition | None) -> FilterRecord:
    causes = {aborted_cause(ONE): DroppedEntries(entries=dropped)} if dropped else {}
    return FilterRecord.of("transactions", FilterMode.GAP, stop, DroppedEntries(), causes)


@pytest.mark.parametrize(
    ("record", "stable", "aborted", "right"),
    [
        (record_of(1, EntryPosition(3, 2)), EntryPosition(3, 1), [ONE], True),
        (record_of(1, EntryPosition(3, 2)), EntryPosition(3, 0), [ONE], False),
        (record_of(1, EntryPosition(3, 2)), EntryPosition(4, 0), [ONE], True),
        (record_of(1, EntryPosition(3, 2)), EntryPosition(4, 0), [], False),
        (record_of(1, None), None, [ONE], True),
        (record_of(1, None), None, [], False),
        (record_of(0, EntryPosition(3, 2)), None, [], True),
        (record_of(1, EntryPosition(0, 0)), None, [ONE], True),
    ],
)
def test_what_is_settled_is_what_the_snapshot_says(
    record: FilterRecord, stable: EntryPosition | None, aborted: list[TransactionId], right: bool
) -> None:
    check = partial(check_settled, [record], ledger_id=7)
    snapshot = BufferSnapshot(stable_position=stable, aborted=dict.fromkeys(aborted, PREFIX))
    if right:
        check(snapshot=snapshot)
    else:
        with pytest.raises(OffloadError) as caught:
            check(snapshot=snapshot)
        assert caught.value.ledger_id == 7


def index_of(record: FilterRecord, length: int) -> LedgerIndex:
    """A ledger's part of an index: one block, and the record of a filter."""
    block = IndexedBlock(part_number=1, offset=0, length=length, first_entry_id=0, end_entry_id=None)
    custom = LedgerInfo(ledger_id=7, properties=((RECORD_KEY, record.pack()),))
    return LedgerIndex(ledger_id=7, metadata=custom, blocks=(block,))


KEPT = DroppedEntries(entries=3, payload_bytes=30)
RIGHT = replace(record_of(2, EntryPosition(7, 5)), kept=KEPT)
LEAST = 128 + 3 * 12 + 30


@pytest.mark.parametrize(
    ("record", "entries", "length", "match"),
    [
        (RIGHT, 5, LEAST, None),
        (RIGHT, 5, LEAST - 1, "smaller than what a filter kept"),
        (RIGHT, 4, LEAST, "not all that was to be offloaded"),
        (RIGHT, 6, LEAST, "not all that was to be offloaded"),
        (replace(RIGHT, total_dropped=DroppedEntries(entries=3)), 6, LEAST, "not all that was"),
        (replace(RIGHT, total_dropped=DroppedEntries(entries=3)), 5, LEAST, "not all that was"),
    ],
)
def test_a_record_counts_each_entry_once(
    record: FilterRecord, entries: int, length: int, match: str | None
) -> None:
    driver = DriverMetadata(name="local").with_property(RECORD_KEY, record.pack(short=True))
    check = partial(checked_record, 7, index_of(record, length), driver, entries=entries, key="data")
    if match is None:
        assert check() == record
    else:
        with pytest.raises(DataLossError, match=match) as caught:
            check()
        assert (caught.value.ledger_id, caught.value.key) == (7, "data")


def test_a_record_without_an_index_is_refused() -> None:
    driver = DriverMetadata(name="local").with_property(RECORD_KEY, RIGHT.pack(short=True))
    with pytest.raises(DataLossError, match="found no filter"):
        checked_record(7, None, driver, entries=5, key="data")
    assert checked_record(7, None, None, entries=5, key="data") is None


def test_settled_by_filters_is_what_is_complete_and_was_bounded() -> None:
    def share(number: int, record: FilterRecord | None, *, complete: bool = True) -> OffloadSegment:
        driver = DriverMetadata(name="local")
        text = None if record is None else record.pack(short=True)
        return OffloadSegment(
            uuid=UUID(int=number),
            complete=complete,
            end_entry_id=number,
            driver=driver.with_property(RECORD_KEY, text),
        )

    def settled(*shares: OffloadSegment) -> EntryPosition | None:
        return settled_by_filters(managed_ledger(closed(7, 9, OffloadContext.of_segments(shares))))

    bounded, unbounded = record_of(0, EntryPosition(7, 9)), record_of(0, None)
    assert settled(share(1, bounded), share(3, bounded)) == EntryPosition(7, 3)
    assert settled(share(1, bounded), share(3, unbounded)) == EntryPosition(7, 1)
    assert settled(share(1, bounded), share(3, bounded, complete=False)) == EntryPosition(7, 1)
    assert settled(share(1, None)) is None
