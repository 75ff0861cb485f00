"""Where a segment of sealed ledgers ends: with the entry whose payload reaches the size that is set.

The ledgers' sizes are in the record; within the ledger in which the end must lie it is found by binary search, where
the hot tier tells sizes. PIP-76 plans history so, before it is offloaded.
"""

from __future__ import annotations

from contextlib import closing

from offload_core.managed_ledger.streaming.plan import all_following, takes_segment
from offload_core.metadata import EntryPosition, ManagedLedgerInfo
from offload_hooks.ledger_stores import LedgerStore, SizedLedgerReader


def planned_end(
    info: ManagedLedgerInfo, begin: EntryPosition, max_bytes: int, hot: LedgerStore
) -> EntryPosition | None:
    """The last entry of a segment that begins there; None if the sealed ledgers have no more than it may.

    None too if the hot tier does not tell. Errors as `LedgerStore.open` and `LedgerReader.read`.
    """
    begins_in, left, first = info.ledger(begin.ledger_id), max_bytes, begin.entry_id
    if begins_in is None:
        return None
    for ledger in (begins_in, *all_following(info, begin.ledger_id)):
        if not ledger.info.is_closed or (ledger is not begins_in and not takes_segment(ledger)):
            return None
        size = ledger.info.size or 0
        if first or size >= left:
            with closing(hot.open(ledger.ledger_id)) as reader:
                if not isinstance(reader, SizedLedgerReader):
                    return None
                before = reader.size_before(first) if first else 0
                if size - before >= left:
                    return EntryPosition(
                        ledger.ledger_id, _reaching(reader, first, ledger.info.entries or 0, before + left)
                    )
                left -= size - before
        else:
            left -= size
        first = 0
    return None


def _reaching(reader: SizedLedgerReader, first: int, stop: int, size: int) -> int:
    """The first entry from `first` on with which so many bytes are reached; the last one if none."""
    low, high = first, stop - 1
    while low < high:
        middle = (low + high) // 2
        if reader.size_before(middle + 1) >= size:
            high = middle
        else:
            low = middle + 1
    return low
