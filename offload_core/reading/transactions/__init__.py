"""Transaction buffers: which entries of a topic are settled, which are aborted, and the snapshots that say so."""

from offload_core.format.messages.transaction_id import TransactionId
from offload_core.reading.transactions.buffer import BufferState, Decision, TransactionBuffer, find_events
from offload_core.reading.transactions.snapshot import BufferSnapshot, pack_snapshot, parse_snapshot
from offload_core.reading.transactions.snapshot_store import SnapshotStore

__all__ = [
    "BufferSnapshot",
    "BufferState",
    "Decision",
    "SnapshotStore",
    "TransactionBuffer",
    "TransactionId",
    "find_events",
    "pack_snapshot",
    "parse_snapshot",
]
