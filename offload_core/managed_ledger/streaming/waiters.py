"""Those who wait until all up to a position is offloaded, or all of it that may be."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass

from offload_core.metadata import EntryPosition
from offload_hooks.errors import OffloadError


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCompletion:
    """What became of a wish that all that was acknowledged be in the tier.

    Attributes:
        end: the last entry up to which all of it is; None if there is nothing.
        waits_for: in words, what the entries behind that wait for, of which the topic's filter does not decide yet;
            None if all is there.
    """

    end: EntryPosition | None
    waits_for: str | None = None


class SegmentWaiters:
    """Futures by position, for many threads; false if there is none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[tuple[EntryPosition, Future[SegmentCompletion]]] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, target: EntryPosition) -> Future[SegmentCompletion]:
        """Done when all up to and with `target` is offloaded, or may not be; it raises what comes between."""
        waiter: Future[SegmentCompletion] = Future()
        with self._lock:
            self._waiting.append((target, waiter))
        return waiter

    def tell_done(self, begin: EntryPosition | None) -> None:
        """All before `begin` is offloaded; None: all that is to be."""
        with self._lock:
            done = [each for each in self._waiting if begin is None or each[0] < begin]
            self._waiting = [each for each in self._waiting if each not in done]
        for target, waiter in done:
            waiter.set_result(SegmentCompletion(end=target))

    def tell_held(self, completion: SegmentCompletion) -> None:
        """Nobody waits any more: this is all that may be offloaded now."""
        for _, waiter in self._take_all():
            waiter.set_result(completion)

    def tell(self, error: OffloadError) -> None:
        """It failed; nobody waits any more."""
        for _, waiter in self._take_all():
            waiter.set_exception(error)

    def _take_all(self) -> list[tuple[EntryPosition, Future[SegmentCompletion]]]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting
