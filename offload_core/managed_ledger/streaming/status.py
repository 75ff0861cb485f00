"""`StreamingStatus`: how the streaming of a topic stands, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from offload_core.metadata import EntryPosition
from offload_hooks.errors import OffloadError

StreamingState = Literal["off", "idle", "open", "closing", "waiting", "ended"]
"""No segment, and none to come; none now; one that takes entries; one that only uploads; a failure's pause; closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryCounts:
    """How many entries came from the offload buffer, the tail cache and the hot tier."""

    buffer: int = 0
    cache: int = 0
    hot: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingStatus:
    """How the streaming of a topic stands.

    Attributes:
        segment: the attempt at the segment that is open or closing.
        begin: where that begins.
        next_position: the entry that is offloaded next.
        completed: how many segments were completed since the topic was opened.
        last_end: the last entry of the last of them.
        stop: the first position that the topic's filter did not decide of when it was asked last; None for no bound.
        waits_for: in words, what the entries from there on wait for; None if there are none.
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
    buffered_bytes: int = 0
    read_from: EntryCounts = EntryCounts()
    failures_in_a_row: int = 0
    last_error: OffloadError | None = None
    next_try_ms: int | None = None
