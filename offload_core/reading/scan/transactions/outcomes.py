"""What became of entries' transactions, by the markers that are known.

The first marker of its transaction after an entry decides. Without one the entry is open, unless the transaction was
aborted before it: what a producer sends to it then is aborted, too. The reference implementation is in `tests/support`.
Source: docs/transactions.md.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from offload_core.format.messages.kernels.entry_fields import ABORTED, COMMITTED, OPEN
from offload_core.format.messages.kernels.transaction_ranges import ABORT, COMMIT
from offload_core.reading.scan.tasks import Place

Table = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
States = npt.NDArray[np.int8]

END = 2**63 - 1
"""No entry has this id."""

NO_RANGES: Table = np.empty((0, 5), dtype=np.int64)
"""A table of no ranges, or of no markers."""


def outcomes(ranges: Table, markers: Table) -> States:
    """The state of each range: `COMMITTED`, `ABORTED` or `OPEN`.

    Args:
        ranges: int64; ledger, first and stop entry, most and least bits of the transaction, a row each. No marker of
            its transaction lies inside of a range.
        markers: int64; ledger, entry, most and least bits, type. Types other than commit and abort decide nothing.
    """
    deciding = markers[np.isin(markers[:, 4], (COMMIT, ABORT))]
    events = np.concatenate([ranges[:, [0, 1, 3, 4]], deciding[:, :4]])
    order = np.lexsort((events[:, 1], events[:, 0], events[:, 3], events[:, 2]))
    is_marker = order >= len(ranges)
    is_abort = np.append(np.zeros(len(ranges), dtype=np.bool_), deciding[:, 4] == ABORT)[order]
    transaction = _numbered(events[order, 2:4])
    places = np.arange(len(order))
    before = np.maximum.accumulate(np.where(is_marker, places, -1))
    after = np.minimum.accumulate(np.where(is_marker, places, len(order))[::-1])[::-1]
    states = np.full(len(order), OPEN, dtype=np.int8)
    has_before, has_after = _of_same(transaction, before), _of_same(transaction, after)
    states[has_before] = np.where(is_abort[before[has_before]], ABORTED, OPEN)
    states[has_after] = np.where(is_abort[after[has_after]], ABORTED, COMMITTED)
    found = np.empty(len(ranges), dtype=np.int8)
    found[order[~is_marker]] = states[~is_marker]
    return found


def _numbered(ids: Table) -> Table:
    """Sorted rows as numbers: the same for the same row."""
    if len(ids) == 0:
        return np.empty(0, dtype=np.int64)
    changes = (ids[1:] != ids[:-1]).any(axis=1)
    return np.append(0, np.cumsum(changes))


def _of_same(transaction: Table, nearest: Table) -> Flags:
    """True where the event at `nearest` exists and is of the same transaction."""
    there: Flags = (nearest >= 0) & (nearest < len(nearest))
    there[there] = transaction[nearest[there]] == transaction[there]
    return there


def clip(ranges: Table, start: Place, stop: Place) -> Table:
    """The ranges between two positions, half-open."""
    ledgers, firsts, stops = ranges[:, 0], ranges[:, 1], ranges[:, 2]
    inside = (ledgers > start[0]) | ((ledgers == start[0]) & (stops > start[1]))
    inside &= (ledgers < stop[0]) | ((ledgers == stop[0]) & (firsts < stop[1]))
    clipped: Table = ranges[inside]
    begins, ends = clipped[:, 0] == start[0], clipped[:, 0] == stop[0]
    clipped[begins, 1] = np.maximum(clipped[begins, 1], start[1])
    clipped[ends, 2] = np.minimum(clipped[ends, 2], stop[1])
    return clipped


_NAMED = 10
"""Most open transactions that are named."""


def name_transactions(ranges: Table) -> tuple[int, str]:
    """The number of transactions of ranges, and the first of them with their positions."""
    firsts: dict[tuple[int, int], str] = {}
    for ledger_id, entry_id, _, most, least in ranges.tolist():
        firsts.setdefault((most, least), f"{ledger_id}:{entry_id}")
    named = [f"({most},{least}) at {place}" for (most, least), place in firsts.items()]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return len(named), ", ".join(named[:_NAMED]) + more
