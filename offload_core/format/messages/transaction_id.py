"""The name of a transaction, as entries, markers and snapshots carry it."""

from __future__ import annotations

from typing import NamedTuple


class TransactionId(NamedTuple):
    """Two signed numbers of 64 bits, as in Pulsar's `TxnID`: which coordinator, and which of its transactions.

    In an entry's metadata the same bits are unsigned. All bits set, −1 in either, stands for none.
    """

    most_bits: int
    least_bits: int

    def __str__(self) -> str:
        return f"({self.most_bits},{self.least_bits})"
