"""The status of a streamed topic, and the futures of callers that wait for its segments."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from offload_core.metadata.records import EntryPosition
from offload_hooks.errors import OffloadError

StreamingState = Literal["off", "idle", "open", "closing", "waiting", "ended"]
"""No segment, and none to come; none now; one that takes entries; one that only uploads; a failure's pause; closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntriesByOrigin:
    """Counts of entries from the offload buffer, the tail cache and the hot tier."""

    buffer: int = 0
    cache: int = 0
    hot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingStatus:
    """The state of a topic's streaming.

    Attributes:
        segment: the attempt at the segment that is open or closing.
        begin: where that begins.
        next_position: the entry that is offloaded next.
        completed: how many segments were completed since the topic was opened.
        last_end: the last entry of the last of them.
        stop: the first position that the topic's filter did not decide of when it was asked last; None for no bound.
        waits_for: in words, what the entries from there on wait for; None if there are none.
        waiting_since_ms: since when the entries wait that its next segment closes with, in ms since 1970, UTC; None if
            none do.
        buffered_bytes: what waits in the offload buffer.
        read_from: where entries came from.
        failures_in_a_row: since the last success.
        last_error: the newest failure, also after a success.
        next_try_ms: when the next try is, in ms since 1970, UTC; None if none waits.
    """

    state: StreamingState = "off"
    segment: UUID | None = None
    begin: EntryPosition | None = None
    next_position: EntryPosition | None = None
    completed: int = 0
    last_end: EntryPosition | None = None
    stop: EntryPosition | None = None
    waits_for: str | None = None
    waiting_since_ms: int | None = None
    buffered_bytes: int = 0
    read_from: EntriesByOrigin = EntriesByOrigin()
    failures_in_a_row: int = 0
    last_error: OffloadError | None = None
    next_try_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentCompletion:
    """The result of a request that all acknowledged entries be in the tier.

    Attributes:
        end: the last entry up to which all of it is; None if there is nothing.
        waits_for: in words, what the entries after that wait for, of which the topic's filter does not decide yet;
            None if all are in the tier.
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

    def complete_before(self, begin: EntryPosition | None) -> None:
        """End the waiters for what is before `begin`; None: all of them."""
        with self._lock:
            done = [each for each in self._waiting if begin is None or each[0] < begin]
            self._waiting = [each for each in self._waiting if each not in done]
        for target, waiter in done:
            waiter.set_result(SegmentCompletion(end=target))

    def complete_all(self, completion: SegmentCompletion) -> None:
        """End all waiters: this is all that may be offloaded now."""
        for _, waiter in self._take_all():
            waiter.set_result(completion)

    def fail(self, error: OffloadError) -> None:
        """Streaming failed: all waiters get the error."""
        for _, waiter in self._take_all():
            waiter.set_exception(error)

    def _take_all(self) -> list[tuple[EntryPosition, Future[SegmentCompletion]]]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting
