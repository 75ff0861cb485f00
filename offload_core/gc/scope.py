"""What a collection looks for: where, whose, how old, and by which clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Self

from offload_core.catalogue import TopicName
from offload_core.offload.clock import system_now_ms

DEFAULT_GRACE = timedelta(days=1)
DEFAULT_CLOCK_SKEW = timedelta(minutes=5)

_COMPARED = timedelta(seconds=5)
"""How far clocks may be apart that were compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What is looked for.

    Attributes:
        prefix: only objects whose keys begin so: the folder that the cluster's objects lie in.
        wants: whether a topic's garbage is wanted, None for all; all is listed and all records are read all the same.
        grace: how old garbage is at least, by the store's clock.
        clock_skew: how far the store's clock may be from `now_ms`, when its lead was taken off.
        clock_lead: how far the store's clock is known to be ahead of `now_ms`.
        is_shared: others may write here than the cluster of the records.
        takes_stand_ins: copies go as well that were made to stand in for others, by a mapping or a repair.
        now_ms: the time, since 1970, UTC.
    """

    prefix: str = ""
    wants: Callable[[TopicName | None], bool] | None = None
    grace: timedelta = DEFAULT_GRACE
    clock_skew: timedelta = DEFAULT_CLOCK_SKEW
    clock_lead: timedelta = timedelta(0)
    is_shared: bool = True
    takes_stand_ins: bool = False
    now_ms: Callable[[], int] = system_now_ms

    @property
    def folder(self) -> str:
        """The folder that the cluster's objects lie in, with its `/`."""
        return f"{self.prefix.removesuffix('/')}/" if self.prefix else ""

    def is_wanted(self, topic: TopicName | None) -> bool:
        """Whether garbage of a topic is wanted, or (None) such of which nothing tells the topic."""
        return self.wants is None or self.wants(topic)

    def now(self) -> datetime:
        """The time, by the store's clock as far as it is known."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC) + self.clock_lead

    @property
    def before(self) -> datetime:
        """What is later, by the store's clock, is not old enough."""
        return self.now() - self.grace - self.clock_skew

    def with_lead(self, lead: timedelta) -> Self:
        """The same, now that the clocks were compared."""
        return replace(self, clock_lead=lead, clock_skew=_COMPARED)
