"""Facts of transactions in entries, found without reading payloads.

At an entry that is not right a kernel does not raise: it stops there. The reference implementation is in
`tests/support/transactions.py`. Arguments that do not match are an `IndexError`, before anything is read or
written out of bounds.
"""

from __future__ import annotations

from offload_core.format.kernel import kernel
from offload_core.format.messages.kernels import entry_fields as f
from offload_core.format.messages.kernels.entries import is_span, read_entry

COMMITTING, COMMIT, ABORT = 20, 21, 22
"""Types of the markers of transactions."""


@kernel
def find_transactions(
    data, offsets, lengths, count, entry_ids, checksum, row, ranges, markers, tombstones, times
):
    """Find transactions' entries and markers among entries, whose ids ascend.

    `entry_ids` is int64, `row` int64 scratch, `E_FIELDS` long. Outputs, int64, with room for `count` rows: `ranges` of
    entries of one transaction that follow one another (first, stop, most, least bits), `markers` (entry, type, most,
    least bits) and `tombstones`, markers without a transaction (first, stop). `times` (least and greatest publish time)
    is brought up to date. A checksum is verified where the answer depends on the entry; `checksum` as of `read_entry`.
    Answers (entries that are right before the first wrong one, ranges, markers, tombstones).
    Bounds: `count` is at most the arrays' lengths, and no output gets more than a row for each entry.
    """
    if count > min(len(offsets), len(lengths), len(entry_ids), len(ranges), len(markers), len(tombstones)):
        raise IndexError("more entries than places or rows")
    if min(ranges.shape[1], markers.shape[1]) < 4 or tombstones.shape[1] < 2 or len(times) < 2:
        raise IndexError("a table is too narrow")
    found = marked = placeholders = 0
    for i in range(count):
        if not is_span(offsets[i], lengths[i], len(data)):
            return i, found, marked, placeholders
        end = offsets[i] + lengths[i]
        if not read_entry(data, offsets[i], end, 0, row):
            return i, found, marked, placeholders
        entry_id = entry_ids[i]
        times[0] = min(times[0], row[f.E_PUBLISH_TIME])
        times[1] = max(times[1], row[f.E_PUBLISH_TIME])
        kind, most, least = row[f.E_MARKER_TYPE], row[f.E_TXN_MOST], row[f.E_TXN_LEAST]
        is_of_transaction = most != -1 and least != -1
        if kind >= 0 and not COMMITTING <= kind <= ABORT:
            continue
        if kind < 0 and not is_of_transaction:
            continue
        if checksum != 0 and not read_entry(data, offsets[i], end, checksum, row):
            return i, found, marked, placeholders
        if kind < 0:
            if (
                found
                and ranges[found - 1, 1] == entry_id
                and ranges[found - 1, 2] == most
                and ranges[found - 1, 3] == least
            ):
                ranges[found - 1, 1] = entry_id + 1
            else:
                ranges[found, 0], ranges[found, 1] = entry_id, entry_id + 1
                ranges[found, 2], ranges[found, 3] = most, least
                found += 1
        elif is_of_transaction:
            markers[marked, 0], markers[marked, 1] = entry_id, kind
            markers[marked, 2], markers[marked, 3] = most, least
            marked += 1
        elif placeholders and tombstones[placeholders - 1, 1] == entry_id:
            tombstones[placeholders - 1, 1] = entry_id + 1
        else:
            tombstones[placeholders, 0], tombstones[placeholders, 1] = entry_id, entry_id + 1
            placeholders += 1
    return count, found, marked, placeholders
