"""What a filter took out is checked against the transactions of that moment: each check by itself."""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest
from records import closed, managed_ledger

from offload_core.format.messages.transaction_id import TransactionId
from offload_core.metadata.records import (
    DriverMetadata,
    EntryPosition,
    OffloadContext,
    OffloadSegment,
)
from offload_core.metadata.records.filter_record import RECORD_KEY, aborted_cause
from offload_core.reading.transaction_buffers import BufferSnapshot
from offload_core.writing.filters import DroppedEntries, FilterMode, FilterRecord
from offload_core.writing.filters.recorded_filters import settled_by_filters
from offload_core.writing.offload.hot_copy_check import check_settled
from offload_hooks.errors import OffloadError

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
