"""From what is asked for of one ledger to the runs of its blocks, as soon as its index is read.

The planner reads the indexes of ledgers that it must cut; those of the others are read by the tasks, some ahead of the
reader. A copy that turns out to be broken, and entries that are not there at a ledger's beginning, are an error or a
warning wherever that is noticed.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace

from offload_core.format.codec.extent import LedgerExtent
from offload_core.format.codec.index import BlockTable
from offload_core.metadata.catalogue import Ledger, extent_of, with_index
from offload_core.reading.scan.gaps import lose
from offload_core.reading.scan.tasks import EntryRange, LedgerShare, Run
from offload_core.storage.tier import Tier

INDEXES_AHEAD = 16
"""So many indexes of a task are on their way while its runs are read."""

_log = logging.getLogger(__name__)


def _lose_ledger(share: LedgerShare, fail: bool) -> None:
    """Say that a ledger has no complete copy after all, as `gaps.report_gaps` does of those that never seemed to.

    If nothing follows, it may still be on its way: a warning. Unless its record, or an index that is left, says that
    there was a copy, or a position behind it was asked for.

    Raises:
        DataLossError: it is lost, and `fail`.
    """
    ledger = share.ledger
    if ledger.has_nothing_to_lose:
        return
    what = f"a ledger of {share.label} has no complete copy"
    if ledger.is_lost or not share.is_last or share.ends_at is not None:
        lose(what, ledger.ledger_id, fail, found=ledger.why_not_read)
    else:
        _log.warning("%s (ledger %d): %s. It is not read", what, ledger.ledger_id, ledger.why_not_read)


def read_share(tier: Tier, share: LedgerShare) -> LedgerShare:
    """The same with the ledger's index read, if it was not; errors as of `read_ledger`."""
    return replace(share, ledger=read_ledger(tier, share.ledger))


def read_ledger(tier: Tier, ledger: Ledger) -> Ledger:
    """The ledger with its index read, if it was not; without extents if the copy turns out to be broken.

    Raises:
        StoreError: the store fails, or has the index no more.
    """
    unread = ledger.unread
    if unread is None:
        return ledger
    read = with_index(tier, unread)
    attempts = tuple(read if stored is unread else stored for stored in ledger.attempts)
    extents = () if read.index is None else (extent_of(read, read.index.ledgers[0]),)
    return replace(ledger, attempts=attempts, extents=extents)


def runs_of(share: LedgerShare, fail: bool) -> Iterator[Run]:
    """The runs of a ledger whose index is read.

    Raises:
        DataLossError: it has no complete copy after all, or its first entries have none (`fail`).
    """
    ledger, asked = share.ledger, share.asked
    if not ledger.extents:
        _lose_ledger(share, fail)
        return
    there = ledger.extents[0].begin_entry_id
    if there is not None and asked.start < there and (asked.stop is None or asked.start < asked.stop):
        what, found = (
            f"the first entries of a ledger of {share.label} have no copy here",
            f"entries from {there} on",
        )
        if ledger.may_be_trimmed and not asked.start:
            _log.warning("%s (ledger %d): %s. They were trimmed, or are lost", what, ledger.ledger_id, found)
        else:
            lose(what, ledger.ledger_id, fail, found=found)
    _report_lost(share, fail)
    yield from _runs(share)


def _report_lost(share: LedgerShare, fail: bool) -> None:
    """Say which entries were lost before an object was made of a damaged one.

    Raises:
        DataLossError: some that were asked for, and `fail`.
    """
    asked = share.asked
    for extent in share.ledger.extents:
        lost = extent.marks.lost
        if lost is not None and lost.touches(share.ledger.ledger_id, asked.start, asked.stop):
            what = f"entries of a ledger of {share.label} were lost before its copy was repaired"
            lose(what, share.ledger.ledger_id, fail, found=f"{extent.data_key} lacks {lost.pack()}")


def runs_around(tier: Tier, planned: Run | LedgerShare) -> tuple[Run, ...]:
    """The runs of a task's neighbour. What is missing of it is said where it is read for itself.

    Raises:
        StoreError: the store fails.
    """
    return (planned,) if isinstance(planned, Run) else tuple(_runs(read_share(tier, planned)))


def _runs(share: LedgerShare) -> Iterator[Run]:
    ledger, asked = share.ledger, share.asked
    for extent, later in zip(ledger.extents, [*ledger.extents[1:], None], strict=True):
        end = _least(extent.stop_entry_id, asked.stop)
        blocks = extent.ledger.blocks.overlapping(asked.start, end)
        if not blocks or (end is not None and end <= asked.start):
            continue
        cut = end is not None and end == asked.stop
        following = _following(share, extent, later)
        yield Run(
            topic=share.topic,
            partition=share.partition,
            ledger_id=ledger.ledger_id,
            object_format=extent.object_format,
            data_key=extent.data_key,
            blocks=blocks,
            start_entry_id=asked.start,
            start_batch=asked.start_batch,
            stop_entry_id=end,
            stop_batch=asked.stop_batch if cut else 0,
            next_entry_id=None if following is None else _least(following, asked.stop),
            payload_bytes=_payload_bytes(ledger, extent, blocks, asked),
            sequence_file=extent.sequence_file,
            checksum_key=extent.checksum_key,
            has_gaps=extent.marks.skips_ids,
            resolved=extent.marks.is_settled,
            ends_by_time=share.ends_by_time,
        )


def runs_ahead(tier: Tier, planned: Sequence[Run | LedgerShare], fail: bool) -> Generator[Run, None, None]:
    """The runs of a task, in order; indexes are fetched ahead. Who does not read to the end closes it.

    Raises:
        DataLossError: as `runs_of`.
        StoreError: the store fails.
    """
    has_unread = any(isinstance(each, LedgerShare) for each in planned)
    if not has_unread or tier.describe().capabilities.ranges_ahead < 1:
        for each in planned:
            yield from _resolved(tier, each, fail)
        return
    waiting = iter(planned)
    under_way: deque[Future[Sequence[Run]]] = deque()
    pool = ThreadPoolExecutor(INDEXES_AHEAD, thread_name_prefix="offload-index")

    def send(count: int) -> None:
        for each in itertools.islice(waiting, count):
            under_way.append(pool.submit(copy_context().run, _resolved, tier, each, fail))

    try:
        send(INDEXES_AHEAD)
        while under_way:
            runs = under_way.popleft().result()
            send(1)
            yield from runs
    finally:
        pool.shutdown(cancel_futures=True)


def _resolved(tier: Tier, planned: Run | LedgerShare, fail: bool) -> Sequence[Run]:
    if isinstance(planned, Run):
        return (planned,)
    return tuple(runs_of(read_share(tier, planned), fail))


def _following(share: LedgerShare, extent: LedgerExtent, following: LedgerExtent | None) -> int | None:
    """The entry that must follow a extent: where the one behind it begins, or the end of a ledger that is closed.

    The last ledger of a topic may still be on its way: nothing must follow what there is, or what its record says that
    there is. Where a position says how far to read, all before it must be there. Where an object with gaps ends, only
    records tell.
    """
    ledger, ends_at = share.ledger, share.ends_at
    if extent.marks.has_gaps and extent.ledger.end_entry_id is None:
        return None
    if following is not None:
        return following.begin_entry_id
    if share.is_closed:
        end = ledger.entries
    elif ends_at is not None:
        is_open = ledger.record is not None and ledger.record.info.entries is None
        asked = (
            ends_at.entry_id + bool(ends_at.batch_index) if ends_at.ledger_id == ledger.ledger_id else None
        )
        end = asked if is_open else ledger.entries
    else:
        end = None if ledger.record is None else ledger.record.offloaded_stop
    return extent.stop_entry_id if end is None else end


def _payload_bytes(ledger: Ledger, extent: LedgerExtent, blocks: BlockTable, asked: EntryRange) -> int | None:
    if extent.marks.is_filtered or extent.marks.lost is not None:
        return None
    whole = (
        len(ledger.extents) == 1 and extent.first_entry_id == 0 and len(blocks) == len(extent.ledger.blocks)
    )
    return extent.ledger.payload_bytes if whole and asked == EntryRange() else None


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)
