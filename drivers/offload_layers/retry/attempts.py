"""One call, made again while its error says that this may help: stamina's loop with this project's rules.

Only an `OffloadError` whose `retryable` is True is followed by another attempt. The wait grows exponentially, with
jitter; an error that carries `retry_after_s` is waited for at least that long. No attempt begins after the budget of
time: an error whose wait would last longer is raised at once. The last error is raised as it came.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import stamina

from offload_hooks.counts import count_retry
from offload_hooks.errors import OffloadError

_T = TypeVar("_T")
_log = logging.getLogger("offload_layers.retry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """How often, how long and with what waits a call is made again.

    Attributes:
        most: the most attempts, the first included.
        budget_s: the time for all of them and the waits between them; None: no limit.
        first_wait_s: the wait after the first attempt; it doubles with each further one.
        longest_wait_s: the longest wait, but for what a store asks for.
        jitter_s: up to so much is added to each wait, at random.
    """

    most: int
    budget_s: float | None
    first_wait_s: float
    longest_wait_s: float
    jitter_s: float

    def run(self, hook: str, key: str, call: Callable[[], _T]) -> _T:
        """Call, and call again where that may help; each further attempt is logged with the hook and the key."""
        deadline = float("inf") if self.budget_s is None else time.monotonic() + self.budget_s
        failure = ""

        def wait_s(error: Exception) -> bool | float:
            nonlocal failure
            failure = type(error).__name__
            if not (isinstance(error, OffloadError) and error.retryable):
                return False
            asked: float | None = getattr(error, "retry_after_s", None)
            least = attempt.next_wait if asked is None else max(asked, attempt.next_wait)
            if time.monotonic() + least > deadline:
                return False
            # Many clients are told the same time, so they are spread by the jitter here as well.
            return True if asked is None else least + random.uniform(0, self.jitter_s)  # noqa: S311

        for attempt in stamina.retry_context(
            on=wait_s,
            attempts=self.most,
            timeout=self.budget_s,
            wait_initial=self.first_wait_s,
            wait_max=self.longest_wait_s,
            wait_jitter=self.jitter_s,
        ):
            if attempt.num > 1:
                count_retry()
                named = {"hook": hook, "key": key, "attempt": attempt.num}
                _log.warning("%s of %r: attempt %d, after %s", *named.values(), failure, extra=named)
            with attempt:
                return call()
        raise AssertionError("stamina's loop ends by an answer or an error")
