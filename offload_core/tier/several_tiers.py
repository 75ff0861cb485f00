"""The hooks of several tiers: an object that the first lacks is read from the first of the others that has it.

Topics that have moved in part have copies in two tiers, each under a uuid of its own. Only tiers that somebody
configured are asked; what an object or a record says opens none. It is for reading what is known by its key: nothing
is listed, written or deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TypeVar

from offload_core.tier.chain import Rest
from offload_hooks import ByteRange
from offload_hooks.errors import ObjectNotFoundError, OptionError

_MOST_KNOWN = 1 << 16

_T = TypeVar("_T")


class FirstThatHas:
    """The hooks of several tiers, for reading."""

    def __init__(self, all_hooks: Sequence[Rest]) -> None:
        self._all = all_hooks
        self._known: dict[str, Rest] = {}

    def stat(self, *, key: str) -> object:
        """See the hook."""
        return self._ask(key, lambda hooks: hooks.stat(key=key))

    def read_range(self, *, key: str, offset: int, length: int) -> object:
        """See the hook."""
        return self._ask(key, lambda hooks: hooks.read_range(key=key, offset=offset, length=length))

    def read_ranges(self, *, ranges: Sequence[ByteRange]) -> list[object]:
        """See the hook."""
        found: dict[int, object] = {}
        for key in dict.fromkeys(each.key for each in ranges):
            numbers = [number for number, each in enumerate(ranges) if each.key == key]
            some = [ranges[number] for number in numbers]
            read = self._ask(key, lambda hooks, some=some: hooks.read_ranges(ranges=some))  # type: ignore[misc]
            found.update(zip(numbers, read, strict=True))
        return [found[number] for number in range(len(ranges))]

    def list_objects(self, **_: str) -> Iterator[NoReturn]:
        """Refused."""
        raise OptionError(
            "what lies in several tiers, only records tell", expected="records with further tiers"
        )

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def refuse(**_: object) -> NoReturn:
            raise OptionError("tiers that are read together are only read", found=name)

        return refuse

    def _ask(self, key: str, call: Callable[[Rest], _T]) -> _T:
        """Ask the one that had it, or all."""
        known = self._known.get(key)
        missing: ObjectNotFoundError | None = None
        for hooks in (
            self._all if known is None else (known, *(each for each in self._all if each is not known))
        ):
            try:
                answer = call(hooks)
            except ObjectNotFoundError as error:
                missing = missing or error
                continue
            if hooks is not known:
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[key] = hooks
            return answer
        assert missing is not None
        raise missing
