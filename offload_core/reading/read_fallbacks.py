"""Copies of a ledger that could not be read, so that the other one was: counted, logged, and passed to a listener."""

from __future__ import annotations

import enum
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from offload_hooks.errors import (
    AccessDeniedError,
    DataLossError,
    FormatError,
    LedgerClosedError,
    ObjectNotFoundError,
    OffloadError,
    OptionError,
    RangeError,
    StoreError,
    StoreUnavailableError,
    UnknownLedgerError,
)

_log = logging.getLogger(__name__)


class Copy(enum.Enum):
    """The copy of a ledger that is read."""

    HOT = "hot"
    COLD = "cold"


class FallbackReason(enum.Enum):
    """Why a copy could not be read, by a stable code."""

    MISSING = "missing"
    DENIED = "denied"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"
    DAMAGED = "damaged"
    NOT_CONFIGURED = "not-configured"


_REASONS: tuple[tuple[type[OffloadError], FallbackReason | None], ...] = (
    (LedgerClosedError, None),  # the caller has closed it
    (RangeError, FallbackReason.MISSING),
    (UnknownLedgerError, FallbackReason.MISSING),
    (ObjectNotFoundError, FallbackReason.MISSING),
    (DataLossError, FallbackReason.MISSING),
    (AccessDeniedError, FallbackReason.DENIED),
    (StoreUnavailableError, FallbackReason.UNAVAILABLE),
    (StoreError, FallbackReason.FAILED),
    (FormatError, FallbackReason.DAMAGED),
    (OptionError, FallbackReason.NOT_CONFIGURED),
)


def reason_of(error: OffloadError) -> FallbackReason | None:
    """The reason why a copy cannot be read, by its error for a right request; None: the other one would not help."""
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """A copy that could not be read, so that the other one was tried.

    Attributes:
        copy: the one that could not.
        entry_id: from which on the other is read; None when the ledger was opened, or its status asked for.
    """

    ledger_id: int
    copy: Copy
    reason: FallbackReason
    entry_id: int | None
    error: OffloadError


FallbackListener = Callable[[Fallback], None]


class ReadFallbacks:
    """Count fallbacks, log them, and pass them to a listener. Thread-safe."""

    def __init__(self, listener: FallbackListener | None = None) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._counts: Counter[tuple[Copy, FallbackReason]] = Counter()

    @property
    def counts(self) -> Mapping[tuple[Copy, FallbackReason], int]:
        """The number of fallbacks, by the copy that could not be read and the reason."""
        with self._lock:
            return dict(self._counts)

    def report(self, fallback: Fallback) -> None:
        """Count and report one."""
        with self._lock:
            self._counts[fallback.copy, fallback.reason] += 1
        _log.log(
            logging.ERROR if fallback.reason is FallbackReason.DAMAGED else logging.WARNING,
            "the %s copy of ledger %d cannot be read (%s), the other one is tried: %s",
            fallback.copy.value,
            fallback.ledger_id,
            fallback.reason.value,
            fallback.error,
            extra={
                "event": "read-fallback",
                "ledger_id": fallback.ledger_id,
                "copy": fallback.copy.value,
                "reason": fallback.reason.value,
                "entry_id": fallback.entry_id,
            },
        )
        if self._listener is not None:
            self._listener(fallback)
