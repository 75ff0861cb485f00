"""What tests of topics with transactions share: their messages, and how their snapshots are kept."""

from __future__ import annotations

import itertools

from offload_core.managed_ledger import SnapshotPolicy
from offload_core.messages.new_entry import NewMessage, pack_entry
from offload_core.metadata import EntryPosition
from offload_core.transactions import TransactionId

START = EntryPosition(0, 0)
NEVER = SnapshotPolicy(max_entries=1 << 40, interval_s=1 << 40)
"""Only when it is told to."""

_numbers = itertools.count()


def message(transaction: TransactionId | None = None, *, publish_time_ms: int = 1) -> bytes:
    """An entry with one message, which no other has."""
    return pack_entry(
        [NewMessage(value=b"%d" % next(_numbers))],
        producer_name="shop",
        sequence_id=0,
        publish_time_ms=publish_time_ms,
        transaction=transaction,
    )


def next_to(position: EntryPosition, by: int = 1) -> EntryPosition:
    """So many entries behind it, in the same ledger."""
    return EntryPosition(position.ledger_id, position.entry_id + by)
