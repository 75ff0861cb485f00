"""What the managed ledgers of one process share: where records and ledgers are, and the time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from offload_core.managed_ledger.hot_ledgers import HotLedgers
from offload_core.metadata import ManagedLedgerRecords


def system_now_ms() -> int:
    """The system's clock, in ms since 1970, UTC."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What managed ledgers are opened in. Nothing of it is closed by them.

    Attributes:
        records: their records.
        hot: their ledgers; one of these for all that use a store.
        now_ms: the time, in ms since 1970, UTC.
    """

    records: ManagedLedgerRecords
    hot: HotLedgers
    now_ms: Callable[[], int] = system_now_ms
