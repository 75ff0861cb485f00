"""Which entries of transactions a consumer sees: found by a pass over metadata only, kept in summaries."""

from offload_core.reading.scan.transactions.memory import SummaryMemory
from offload_core.reading.scan.transactions.resolve import SummaryPlace, TransactionResolver
from offload_core.reading.scan.transactions.summary import LedgerSummary, pack_summary, parse_summary
from offload_core.reading.scan.transactions.summary_store import SummaryStore

__all__ = [
    "LedgerSummary",
    "SummaryMemory",
    "SummaryPlace",
    "SummaryStore",
    "TransactionResolver",
    "pack_summary",
    "parse_summary",
]
