"""Statistics of offloading, as Pulsar's `LedgerOffloaderStats`, which offloads, reads and deletions report to."""

from __future__ import annotations

from typing import Protocol


class OffloaderStats(Protocol):
    """Counts what happens to a topic's ledgers. Calls may come from many threads, and cost little.

    A topic is `persistent://tenant/namespace/topic`; durations are in seconds.
    """

    def count_offload_error(self, topic: str) -> None:
        """A ledger's offload failed."""

    def count_offloaded(self, topic: str, size_bytes: int) -> None:
        """Count bytes of blocks that were written to the tier."""

    def count_write_error(self, topic: str) -> None:
        """A write to the tier failed."""

    def time_ledger_read(self, topic: str, seconds: float) -> None:
        """Entries for a block were read from the hot tier in this time."""

    def count_read_error(self, topic: str) -> None:
        """A read from the tier failed."""

    def count_read(self, topic: str, size_bytes: int) -> None:
        """Count bytes that were read from the tier."""

    def time_index_read(self, topic: str, seconds: float) -> None:
        """An index was read from the tier in this time."""

    def time_data_read(self, topic: str, seconds: float) -> None:
        """Data were read from the tier in this time."""

    def count_fallback(self, copy: str, reason: str) -> None:
        """A ledger's copy (`hot`, `cold`) could not be read for this reason, and the other one was tried.

        Not of Pulsar's; the reasons are those of docs/reading-entries.md.
        """

    def count_deletion(self, topic: str, *, succeeded: bool) -> None:
        """A ledger's cold copy was deleted, or was not."""
