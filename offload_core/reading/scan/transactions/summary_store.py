"""Where summaries are kept: any place that a driver can open, one small object for each ledger in a data object.

Best effort: what cannot be read or written costs a warning and another pass, never the read. A summary's key is that
of the data object followed by `.ledger-<id>.summary`, which is no object's key (docs/formats/summary.md).
"""

from __future__ import annotations

import logging

from offload_core.reading.scan.transactions.summary import LedgerSummary, pack_summary, parse_summary
from offload_core.storage.tier import Tier
from offload_hooks.errors import (
    FormatError,
    MetadataError,
    ObjectNotFoundError,
    OffloadError,
    StoreError,
    UnsupportedVersionError,
    placed,
)

MAX_SUMMARY_BYTES = 1 << 30
"""A larger one is neither written nor read."""

_log = logging.getLogger(__name__)


class SummaryStore:
    """The summaries in a store. Threads may share it."""

    def __init__(self, store: Tier) -> None:
        self._store = store
        self._newer: set[str] = set()

    def load(self, data_key: str, data_bytes: int, ledger_id: int) -> LedgerSummary | None:
        """The summary of a ledger in a data object of this length; None if there is none that can be used."""
        key = summary_key(data_key, ledger_id)
        try:
            with placed(key=key):
                summary = self._read(key)
                found = (summary.data_key, summary.data_bytes, summary.ledger_id)
        except ObjectNotFoundError:
            return None
        except UnsupportedVersionError as error:
            self._newer.add(key)  # it is of use to whoever wrote it
            _log.warning("%s It is not used, and the ledger is looked through again", error)
            return None
        except FormatError as error:
            _log.warning("%s. It is made anew", error)
            return None
        except StoreError as error:
            _log.warning(
                "a ledger's summary cannot be read, so the ledger is looked through again: %s", error
            )
            return None
        if found != (data_key, data_bytes, ledger_id):
            _log.info("the summary %s is of another object, %s. It is made anew", key, found)
            return None
        return summary

    def save(self, summary: LedgerSummary) -> None:
        """Keep a summary, whole or not at all."""
        key = summary_key(summary.data_key, summary.ledger_id)
        data = pack_summary(summary)
        if key in self._newer or len(data) > MAX_SUMMARY_BYTES:
            return
        try:
            self._store.write_index(key, data)
        except OffloadError as error:
            _log.warning("a ledger's summary cannot be kept, so it will be made again: %s", error)

    def _read(self, key: str) -> LedgerSummary:
        size = self._store.stat(key).size_bytes
        if not 0 < size <= MAX_SUMMARY_BYTES:
            raise MetadataError(
                "a ledger's summary has no possible size",
                expected=f"1 to {MAX_SUMMARY_BYTES} bytes",
                found=size,
            )
        return parse_summary(self._store.read_range(key, 0, size))


def summary_key(data_key: str, ledger_id: int) -> str:
    """The key of the summary of a ledger in a data object."""
    return f"{data_key}.ledger-{ledger_id}.summary"
