"""What lies around each task, as far as messages in chunks may reach: its topic's ledgers, cut where the task is.

What conditions and times leave out counts as well. What is found here is only named: indexes and blocks are read when a
message turns out to need them (`chunk_search`), which keeps to the bound in bytes as well.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from offload_core.reading.scan.tasks import EntryRange, LedgerShare, Neighbours, Run, ScanTask

MOST_LEDGERS = 16
"""The most ledgers on either side: tasks stay small where ledgers are."""


def add_neighbours(
    tasks: Sequence[ScanTask], ledgers: Mapping[str | None, Sequence[LedgerShare]], most_bytes: int
) -> list[ScanTask]:
    """The tasks with their neighbours of about `most_bytes` on either side.

    `ledgers` are all that can be read of each topic, whole, in order.
    """
    ids = {topic: [share.ledger_id for share in shares] for topic, shares in ledgers.items()}
    result = []
    for task in tasks:
        ends: dict[str | None, tuple[Run | LedgerShare, Run | LedgerShare]] = {}
        for each in task.runs:
            ends[each.topic] = (ends.get(each.topic, (each, each))[0], each)
        near = {}
        for topic, (first, last) in ends.items():
            of_topic, of_ids = ledgers[topic], ids[topic]
            before, is_all = _nearest(_before(first, of_topic, of_ids), most_bytes)
            after, is_all_after = _nearest(_after(last, of_topic, of_ids), most_bytes)
            if before or after:
                near[topic] = Neighbours(
                    before=tuple(reversed(before)),
                    reaches_beginning=is_all,
                    after=tuple(after),
                    reaches_end=is_all_after,
                )
        result.append(replace(task, neighbours=near))
    return result


def _before(
    first: Run | LedgerShare, ledgers: Sequence[LedgerShare], ids: Sequence[int]
) -> Iterator[LedgerShare]:
    """What lies before a task's first run, the nearest first."""
    if isinstance(first, LedgerShare):
        begin = first.asked.start
    else:
        begin = max(first.start_entry_id, first.blocks[0].first_entry_id)
    at = bisect_left(ids, first.ledger_id)
    if begin and at < len(ids) and ids[at] == first.ledger_id:
        yield replace(ledgers[at], asked=EntryRange(stop=begin))
    for i in range(at - 1, -1, -1):
        yield ledgers[i]


def _after(
    last: Run | LedgerShare, ledgers: Sequence[LedgerShare], ids: Sequence[int]
) -> Iterator[LedgerShare]:
    """What lies behind a task's last run, in order."""
    if isinstance(last, LedgerShare):
        end = last.asked.stop
    else:
        known = (last.stop_entry_id, last.blocks[-1].end_entry_id or last.next_entry_id)
        end = min((each for each in known if each is not None), default=None)
    at = bisect_right(ids, last.ledger_id)
    if end is not None and at and ids[at - 1] == last.ledger_id:
        yield replace(ledgers[at - 1], asked=EntryRange(start=end))
    for i in range(at, len(ids)):
        yield ledgers[i]


def _nearest(shares: Iterator[LedgerShare], most_bytes: int) -> tuple[list[LedgerShare], bool]:
    """Ledgers until they have so many bytes, and whether these are all; of one that is cut it is not known how many."""
    taken: list[LedgerShare] = []
    left = most_bytes
    for share in shares:
        if left <= 0 or len(taken) >= MOST_LEDGERS:
            return taken, False
        taken.append(share)
        if share.asked == EntryRange():
            left -= share.data_bytes
    return taken, True
