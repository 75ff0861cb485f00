"""The thread that makes ledgers durable at intervals: one for all ledgers of a store."""

from __future__ import annotations

import logging
import threading

from offload_core.ledgers.writer import FileLedgerWriter
from offload_hooks.errors import LedgerClosedError, LedgerFailedError, LedgerFencedError

_log = logging.getLogger(__name__)


class IntervalSync:
    """Calls `sync` of writers that have something to make durable, in rounds, `interval_s` after the last one."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._dirty: set[FileLedgerWriter] = set()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, writer: FileLedgerWriter) -> None:
        """A writer has acknowledged what is not durable."""
        with self._lock:
            self._dirty.add(writer)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="offload-ledger-sync", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread; it does not sync any more."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            with self._lock:
                dirty, self._dirty = self._dirty, set()
            for writer in dirty:
                if self._stopped.is_set():
                    break
                try:
                    writer.sync()
                except LedgerClosedError:
                    pass  # meanwhile: it is sealed
                except (LedgerFailedError, LedgerFencedError) as error:  # as the writer's next call tells
                    _log.warning("ledger %d: %s", writer.ledger_id, error)
                except Exception:  # the thread must go on, and this ledger is not durable yet
                    _log.warning("ledger %d is not synced yet", writer.ledger_id, exc_info=True)
                    with self._lock:
                        self._dirty.add(writer)
