"""What became of transactions' entries: a join of ranges of entries with the markers behind them.

The first marker of its transaction behind an entry decides. Without one the entry is open, unless the transaction was
aborted before it: what a producer sends to it then is aborted, too. Positions are (part, entry); parts are numbered in
the order of ledgers and pieces. The twin is in `tests/support/transactions.py`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from offload_core.format.messages.kernels.fields import ABORTED, COMMITTED, OPEN
from offload_core.format.messages.kernels.transactions import ABORT, COMMIT

Table = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def outcomes(ranges: Table, markers: Table) -> npt.NDArray[np.int8]:
    """The state of each range: `COMMITTED`, `ABORTED` or `OPEN`.

    Args:
        ranges: int64; part, first entry, most and least bits of the transaction, a row each. No marker of its
            transaction lies inside of a range.
        markers: int64; part, entry, most and least bits, type. Types other than commit and abort decide nothing.
    """
    deciding = markers[np.isin(markers[:, 4], (COMMIT, ABORT))]
    events = np.concatenate([ranges[:, :4], deciding[:, :4]])
    order = np.lexsort((events[:, 1], events[:, 0], events[:, 3], events[:, 2]))
    is_marker = order >= len(ranges)
    is_abort = np.append(np.zeros(len(ranges), dtype=np.bool_), deciding[:, 4] == ABORT)[order]
    transaction = _numbered(events[order, 2:4])
    places = np.arange(len(order))
    before = np.maximum.accumulate(np.where(is_marker, places, -1))
    behind = np.minimum.accumulate(np.where(is_marker, places, len(order))[::-1])[::-1]
    states = np.full(len(order), OPEN, dtype=np.int8)
    has_before, has_behind = _of_same(transaction, before), _of_same(transaction, behind)
    states[has_before] = np.where(is_abort[before[has_before]], ABORTED, OPEN)
    states[has_behind] = np.where(is_abort[behind[has_behind]], ABORTED, COMMITTED)
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
    """Whether the event at `nearest` is there, and of the same transaction."""
    there: Flags = (nearest >= 0) & (nearest < len(nearest))
    there[there] = transaction[nearest[there]] == transaction[there]
    return there
