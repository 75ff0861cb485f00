"""Which entries of transactions a consumer sees: found by a pass over metadata only, kept in summaries."""

from offload_core.reading.scan.transactions.resolve import TransactionResolver
from offload_core.reading.scan.transactions.summaries import (
    LedgerSummary,
    SummaryMemory,
    SummaryStore,
    pack_summary,
    parse_summary,
)

__all__ = [
    "LedgerSummary",
    "SummaryMemory",
    "SummaryStore",
    "TransactionResolver",
    "pack_summary",
    "parse_summary",
]
