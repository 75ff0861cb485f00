"""The verbs on one ledger: offload it, read it back, delete its cold copy. Records are the caller's."""

from offload_core.offload.ledger_offloader import LedgerOffloader, OffloadedLedger, OffloadProgress

__all__ = ["LedgerOffloader", "OffloadProgress", "OffloadedLedger"]
