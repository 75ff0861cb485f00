"""The entries of transactions that a consumer sees: where a topic ends, and what became of each entry before."""

from offload_core.reading.scan.transactions.cuts import Cuts, TailReader

__all__ = ["Cuts", "TailReader"]
