"""A fault plan: which calls of which hooks go wrong, how, and by which dice.

Each hook's calls are counted from 1, and whether a call is hit depends on the seed, the hook and this number only: the
same calls give the same faults, also when calls of other hooks come between them from other threads.

As text a plan is faults with `;` between them, each `KIND HOOKS WHEN [DETAIL]`:

    fail-before read_range,read_ranges 10%       one call in ten fails before it is made
    fail-after commit_data #1,3 timeout          the 1st and 3rd commit are made, and then reported as timed out
    delay any 50% 0.03                           every other call of any hook waits for 0.03 s

KIND is one of `KINDS`; HOOKS are names of hooks, or `any`; DETAIL is `unavailable` or `timeout` for errors, and seconds
for a delay. Where `,` and `;` have a meaning already (a layer as text), write `+` and `|` instead.
"""

from __future__ import annotations

import math
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

from offload_hooks.errors import OptionError, StoreTimeoutError, StoreUnavailableError

Kind = Literal["fail-before", "fail-after", "truncate", "delay", "duplicate", "stale-list"]

KINDS: tuple[Kind, ...] = get_args(Kind)

HOOKS = (
    "begin_data",
    "write_block",
    "commit_data",
    "abort_data",
    "write_index",
    "read_range",
    "read_ranges",
    "read_object",
    "stat",
    "list_objects",
    "delete",
    "list_uploads",
)
"""The hooks that ask something of the store; `describe` does not, and never fails."""

_ONLY_FOR: dict[Kind, tuple[str, ...]] = {
    "truncate": ("read_range", "read_ranges", "read_object"),
    "stale-list": ("list_objects",),
}
_ERRORS: dict[str, type[StoreUnavailableError]] = {
    "unavailable": StoreUnavailableError,
    "timeout": StoreTimeoutError,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which calls go wrong.

    Attributes:
        kind: `fail-before`: an error, and the call is not made. `fail-after`: the call is made, then an error: the
            caller does not know the outcome; a listing gives its first object, then the error. `truncate`: a read gives
            too few bytes. `delay`: the call comes later. `duplicate`: the call is made twice, and the second answer
            counts. `stale-list`: the answer of the same listing before.
        hooks: the hooks that are hit; all that the kind makes sense for when empty.
        probability: the part of their calls that is hit, from 0 to 1.
        calls: further calls of each of these hooks that are hit, counted from 1.
        error: the error of the two failures; unavailable before, time-out after, if none is given.
        delay_s: length of a delay, in seconds.
    """

    kind: Kind
    hooks: tuple[str, ...] = ()
    probability: float = 0.0
    calls: tuple[int, ...] = ()
    error: type[StoreUnavailableError] | None = None
    delay_s: float = 0.01

    def __post_init__(self) -> None:
        possible = _ONLY_FOR.get(self.kind, HOOKS)
        wrong = [hook for hook in self.hooks if hook not in possible]
        if self.kind not in KINDS or wrong:
            raise OptionError(
                f"no fault {self.kind!r} of {', '.join(wrong) or 'any hook'}",
                expected=f"one of {', '.join(KINDS)} of {', '.join(possible)}",
            )
        if (
            not 0 <= self.probability <= 1
            or not 0 <= self.delay_s < math.inf
            or any(call < 1 for call in self.calls)
        ):
            raise OptionError("a fault needs a probability from 0 to 1, calls from 1 and a delay from 0")

    def may_hit(self, hook: str) -> bool:
        """True if calls of this hook can be hit."""
        return hook in (self.hooks or _ONLY_FOR.get(self.kind, HOOKS))

    def make_error(self, hook: str) -> StoreUnavailableError:
        """The error that a call of this hook is given."""
        after = self.kind == "fail-after"
        kind = self.error or (StoreTimeoutError if after else StoreUnavailableError)
        return kind(f"{hook} failed by plan, {'after' if after else 'before'} it was made")


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneFault:
    """A fault that happened: to which call of which hook, counted from 1, and of which key."""

    kind: Kind
    hook: str
    call: int
    key: str


class FaultPlan:
    """Faults and the dice that choose their calls; thread-safe.

    Args:
        faults: what goes wrong.
        seed: whatever names the dice.
        sleep: what waits for the seconds of a delay.
    """

    def __init__(
        self,
        faults: Sequence[Fault] = (),
        *,
        seed: int | str = 0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.faults = tuple(faults)
        self.sleep = sleep
        self._seed = str(seed)
        self._calls: Counter[str] = Counter()
        self._done: list[DoneFault] = []
        self._lock = threading.Lock()

    @classmethod
    def parse(cls, text: str, *, seed: int | str = 0) -> FaultPlan:
        """The plan that a text is; `OptionError` for one that is none."""
        return cls([_parse(part) for part in re.split(r"[;|]", text) if part.strip()], seed=seed)

    @property
    def done(self) -> list[DoneFault]:
        """The faults so far."""
        with self._lock:
            return list(self._done)

    def next_call(self, hook: str, key: str) -> Hits:
        """Count a call, and throw the dice for it."""
        with self._lock:
            self._calls[hook] += 1
            call = self._calls[hook]
        hits: dict[Kind, Fault] = {}
        for place, fault in enumerate(self.faults):
            if fault.may_hit(hook) and fault.kind not in hits:
                by_dice = self.dice(place, hook, call).random() < fault.probability
                if by_dice or call in fault.calls:
                    hits[fault.kind] = fault
        return Hits(self, hook, call, key, hits)

    def dice(self, *what: object) -> random.Random:
        """Dice that fall alike whenever they are thrown for the same."""
        return random.Random("/".join(map(str, (self._seed, *what))))  # noqa: S311

    def note(self, done: DoneFault) -> None:
        """Remember what happened."""
        with self._lock:
            self._done.append(done)


class Hits:
    """The faults that hit one call, at most one of a kind."""

    def __init__(self, plan: FaultPlan, hook: str, call: int, key: str, hits: dict[Kind, Fault]) -> None:
        self._plan = plan
        self._place = {"hook": hook, "call": call, "key": key}
        self._hits = hits

    def take(self, kind: Kind) -> Fault | None:
        """The fault of this kind, which happens now; None if there is none."""
        fault = self._hits.get(kind)
        if fault is not None:
            self._plan.note(DoneFault(kind=kind, **self._place))  # type: ignore[arg-type]
        return fault

    def less_than(self, length: int) -> int:
        """Number of bytes, below `length`, that a truncated read gives."""
        return self._plan.dice(*self._place.values()).randrange(length)


def _parse(text: str) -> Fault:
    try:
        kind, hooks, when, *detail = text.replace("+", ",").split()
        given: dict[str, object] = {}
        if when.startswith("#"):
            given["calls"] = tuple(int(call) for call in when[1:].split(","))
        else:
            given["probability"] = float(when.removesuffix("%")) / 100
        if detail and kind == "delay":
            given["delay_s"] = float(*detail)
        elif detail:
            given["error"] = _ERRORS[" ".join(detail)]
        names = () if hooks == "any" else tuple(hooks.split(","))
        return Fault(kind=cast("Kind", kind), hooks=names, **given)  # type: ignore[arg-type]
    except OptionError:
        raise
    except (ValueError, TypeError, KeyError):
        raise OptionError(
            f"{text.strip()!r} is no fault",
            expected="KIND HOOKS WHEN [DETAIL], such as 'fail-after commit_data #2 timeout' or 'delay any 5% 0.1'",
        ) from None
