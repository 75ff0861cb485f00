"""Scans of topics of which a filter left out entries: exactly those that are left, and no more requests than before."""

from __future__ import annotations

from typing import Any

from filtered_topics import FilteredTopic, filtered_topics
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import TOPIC

from offload_core.api import TierReader
from offload_core.catalogue import TopicName
from offload_core.scan import Position, Scan, read_task
from offload_core.tier import Tier

NAME = TopicName(TOPIC)
Places = list[tuple[int, int]]


def scan_of(tier: TierReader, topic: FilteredTopic, *, with_records: bool, **options: Any) -> Scan:
    return tier.scan(
        topic=TOPIC if topic.known_without_records or with_records else (),
        records=topic.records() if with_records else None,
        **options,
    )


def rows_of(scan: Scan, *names: str) -> list[tuple[Any, ...]]:
    """Of the scan itself, and the same of its tasks."""
    found = [tuple(row[name] for name in names) for batch in scan for row in batch.to_pylist()]
    batches = [batch for task in scan.tasks for batch in read_task(scan.tier, task, scan.options)]
    assert [tuple(row[name] for name in names) for batch in batches for row in batch.to_pylist()] == found
    return found


@st.composite
def places(draw: st.DrawFn, topic: FilteredTopic, *, with_records: bool) -> Position:
    """Any entry's place, also of one that was left out, or the end of a ledger."""
    known = topic.known_without_records
    ledgers = [each for each in topic.ledgers if with_records or each.ledger_id in known]
    ledger = draw(st.sampled_from(ledgers))
    return Position(
        ledger.ledger_id, draw(st.integers(0, len(ledger.payloads))), draw(st.sampled_from([0, 0, 1]))
    )


@settings(max_examples=150, deadline=None)
@given(topic=filtered_topics(), data=st.data())
def test_a_scan_gives_the_entries_that_are_left(topic: FilteredTopic, data: st.DataObject) -> None:
    with_records = data.draw(st.booleans())
    tier = topic.tier(
        range_bytes=data.draw(st.sampled_from([512, 8 << 20])),
        ranges_ahead=data.draw(st.sampled_from([0, 3])),
    )
    options = {"task_bytes": data.draw(st.sampled_from([1, 600, 1 << 20]))}
    scan = scan_of(tier, topic, with_records=with_records, level="entries", **options)
    found = rows_of(scan, "__ledgerId", "__entryId", "value")
    assert [row[:2] for row in found] == topic.kept
    assert {row[:2]: row[2] for row in found} == topic.values


@settings(max_examples=200, deadline=None)
@given(topic=filtered_topics(), data=st.data())
def test_a_range_gives_what_is_left_of_it_by_no_more_requests(
    topic: FilteredTopic, data: st.DataObject
) -> None:
    with_records = data.draw(st.booleans())
    if not with_records and not topic.known_without_records:
        return
    start, stop = (data.draw(places(topic, with_records=with_records)) for _ in range(2))
    options: dict[str, Any] = {
        "start": {NAME: start},
        "stop": {NAME: stop},
        "columns": ["__ledgerId", "__entryId", "__batchIndex"],
        "task_bytes": data.draw(st.sampled_from([1, 600, 1 << 20])),
        "chunks": "raw",
    }
    driver, whole = topic.driver(), topic.driver(whole=True)
    found, everything = (
        [
            (row["__ledgerId"], row["__entryId"], max(row["__batchIndex"], 0))
            for batch in scan_of(TierReader(Tier(each)), topic, with_records=with_records, **options)
            for row in batch.to_pylist()
        ]
        for each in (driver, whole)
    )
    begin, end = ((at.ledger_id, at.entry_id, at.batch_index) for at in (start, stop))
    assert all(begin <= row < end for row in everything)
    assert found == [row for row in everything if row[:2] in set(topic.kept)]
    assert len(driver.reads) <= len(whole.reads)
