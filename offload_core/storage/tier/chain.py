"""The layers over a driver, in exactly the order of the configuration, as one set of hooks.

A layer comes from a factory `factory(rest, **options)`. `rest` has the hooks of everything below the layer as
attributes, called by keyword: `rest.read_range(key=..., offset=..., length=...)`; it can be used from the
first call on, not in the factory itself. A layer implements a hook in one of two ways:

- one that only watches or delays: `@hookimpl(wrapper=True)`, a generator that yields exactly once;
- one that may call twice or not at all (retry, cache, hedging, faults): a plain `@hookimpl` that calls
  `rest`.

pluggy runs all wrappers before any plain implementation, in whatever order they were registered. So the order is made
level by level: the callers of level i hold the wrappers from layer i down to the first plain implementation
and that one, nothing else; what is below it is reached by its `rest`, which is another level. Hence a
wrapper below a retrying layer runs once for each attempt. A layer without an implementation of a hook is
passed over; `tryfirst` and `trylast` count for nothing. When nothing below a level implements an optional
hook, `read_ranges` is made of that level's `read_range`, and `list_uploads` raises `StoreError`. `read_object` is made
of the level's `stat` and `read_range` also where a plugin implements one of these and not `read_object`: a layer that
caches, changes or counts what is read is never passed by.

`FirstThatHas` are the hooks of several
tiers: an object that the first lacks is read from the first of the others that has it. Topics that have moved in part
have copies in two tiers, each under a uuid of its own. Only tiers that are configured are asked; what an object or a
record states opens none. It is for reading objects by known keys: nothing is listed, written or deleted.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

import pluggy
from pluggy import HookimplOpts

from offload_hooks import OPTIONAL_HOOKS, PROJECT, ByteRange, ReadableBuffer, TierHooks, WholeObject
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import BrokenPluginError, ObjectNotFoundError, OptionError, StoreError
from offload_hooks.whole_objects import read_by_stat_and_range

THREADS = 8


Call = Callable[..., Any]


class HooksBelow:
    """The hooks of everything below a layer, as attributes that are called by keyword."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: Mapping[str, Call] | None = None

    def __getattr__(self, hook: str) -> Call:
        if hook.startswith("_"):
            raise AttributeError(hook)
        if self._calls is None:
            raise BrokenPluginError(f"a layer used rest.{hook} before the tier was put together")
        try:
            return self._calls[hook]
        except KeyError:
            raise AttributeError(f"there is no hook {hook!r}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer that is yet to be made: its name, and what makes it over the rest."""

    name: str
    make: Callable[[HooksBelow], object]


class Chain:
    """A driver under any number of layers, checked, with one caller for each hook and level.

    Raises `BrokenPluginError` when a plugin implements a hook that does not exist, or with arguments that
    it does not have, when the driver lacks a required hook, or when a factory makes nothing.

    Attributes:
        hooks: the whole chain's hooks, called by keyword; an answer of None is a `BrokenPluginError`.
        reads_whole: `read_object` is one call of the driver, and not made of `stat` and `read_range`.
    """

    def __init__(self, driver: object, driver_name: str, layers: Sequence[Layer] = ()) -> None:
        self._manager = _Manager(PROJECT)
        self._manager.add_hookspecs(TierHooks)
        self._hook_names = tuple(vars(self._manager.hook))
        self.hooks = HooksBelow()
        rests = [self.hooks] + [HooksBelow() for _ in layers]
        who = [f"layer {layer.name!r}" for layer in layers] + [f"driver {driver_name!r}"]
        plugins = [layer.make(rest) for layer, rest in zip(layers, rests[1:], strict=True)] + [driver]
        # The last to be registered is the first to be called, so: from the driver upwards.
        for level in reversed(range(len(plugins))):
            self._register(plugins[level], who[level], level)
        self._plugins, self._who = plugins, who
        self._check_names()
        self._check_driver()
        self.reads_whole = all(not self._hides_whole(plugin) for plugin in self._plugins)
        for level, rest in enumerate(rests):
            rest._calls = {name: self._call(name, level, rest) for name in self._hook_names}

    def close(self) -> None:
        """Close the plugins that can be closed."""
        for plugin in self._plugins:
            shut = getattr(plugin, "close", None)
            if callable(shut):
                shut()

    def _register(self, plugin: object, who: str, level: int) -> None:
        if plugin is None:
            raise BrokenPluginError(f"the factory of the {who} made nothing")
        try:
            hash(plugin)
            self._manager.register(plugin, f"{level}: {who}")
        except pluggy.PluginValidationError as error:
            raise BrokenPluginError(f"the {who} does not fit the hooks: {error}") from error
        except (TypeError, ValueError) as error:
            raise BrokenPluginError(
                f"the {who} cannot be told from other plugins: it must be hashable and equal only to itself",
                hint="A dataclass needs eq=False.",
            ) from error

    def _check_names(self) -> None:
        try:
            self._manager.check_pending()
        except pluggy.PluginValidationError as error:
            pending = [name for name in vars(self._manager.hook) if name not in self._hook_names]
            wrong = next(name for name in pending if self._implementations(name, error.plugin))
            close = difflib.get_close_matches(wrong, self._hook_names, n=2)
            level = next(i for i, plugin in enumerate(self._plugins) if plugin is error.plugin)
            raise BrokenPluginError(
                f"the {self._who[level]} implements a hook that does not exist, {wrong!r}",
                hint=f"{'Close' if close else 'There are'}: {', '.join(close or self._hook_names)}.",
            ) from error

    def _check_driver(self) -> None:
        required = [name for name in self._hook_names if name not in OPTIONAL_HOOKS]
        missing = [name for name in required if not self._acts(name, len(self._plugins) - 1)]
        if missing:
            raise BrokenPluginError(f"the {self._who[-1]} lacks required hooks: {', '.join(missing)}")

    def _call(self, name: str, level: int, rest: HooksBelow) -> Call:
        """The caller of one hook at one level."""
        taking_part: list[object] = []
        for i in range(level, len(self._plugins)):
            if self._implementations(name, self._plugins[i]):
                taking_part.append(self._plugins[i])
            if self._acts(name, i):
                kept = {id(plugin) for plugin in taking_part}
                others = [plugin for plugin in self._plugins if id(plugin) not in kept]
                return _answered(self._manager.subset_hook_caller(name, others), name, self._who[i])
            if name == "read_object" and self._hides_whole(self._plugins[i]):
                return partial(_read_whole, rest)
        if name == "read_ranges":
            return partial(_read_each, rest)
        return _refused(name, self._who[-1])

    def _hides_whole(self, plugin: object) -> bool:
        """True if the plugin takes part in reads or stats, but not in `read_object`."""
        reads = any(self._implementations(name, plugin) for name in ("read_range", "stat"))
        return reads and not self._implementations("read_object", plugin)

    def _implementations(self, name: str, plugin: object) -> list[pluggy.HookImpl]:
        caller: pluggy.HookCaller = getattr(self._manager.hook, name)
        return [impl for impl in caller.get_hookimpls() if impl.plugin is plugin]

    def _acts(self, name: str, level: int) -> bool:
        """True if the plugin of this level has a plain implementation of the hook."""
        found = self._implementations(name, self._plugins[level])
        return any(not (impl.wrapper or impl.hookwrapper) for impl in found)


class _Manager(pluggy.PluginManager):
    """A plugin manager in which only the order of registration counts."""

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> HookimplOpts | None:
        options = super().parse_hookimpl_opts(plugin, name)
        if options is None:
            return None
        return {**options, "tryfirst": False, "trylast": False}


def _answered(caller: pluggy.HookCaller, name: str, who: str) -> Call:
    def call(**arguments: object) -> Any:
        answer = caller(**arguments)
        if answer is None:
            raise BrokenPluginError(f"the {who} answered None to {name}", hint="A hook must say what it did.")
        return answer

    return call


def _read_each(rest: HooksBelow, *, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
    """The hook `read_ranges` made of `read_range`."""

    def read(each: ByteRange) -> ReadableBuffer:
        data: ReadableBuffer = rest.read_range(key=each.key, offset=each.offset, length=each.length)
        return data

    if len(ranges) < 2:
        return [read(each) for each in ranges]
    return list(bounded_map(read, ranges, at_once=THREADS, name="tier-read"))


def _read_whole(rest: HooksBelow, *, key: str, most_bytes: int) -> WholeObject:
    """The hook `read_object` made of `stat` and `read_range`."""
    return read_by_stat_and_range(rest, key, most_bytes)


def _refused(name: str, who: str) -> Call:
    def call(**_: object) -> Any:
        raise StoreError(f"the {who} does not support {name}")

    return call


_MOST_KNOWN = 1 << 16

_T = TypeVar("_T")


class FirstThatHas:
    """The hooks of several tiers, for reading."""

    def __init__(self, all_hooks: Sequence[HooksBelow]) -> None:
        self._all = all_hooks
        self._known: dict[str, HooksBelow] = {}

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

    def read_object(self, *, key: str, most_bytes: int) -> object:
        """See the hook."""
        return self._ask(key, lambda hooks: hooks.read_object(key=key, most_bytes=most_bytes))

    def list_objects(self, **_: str) -> Iterator[NoReturn]:
        """Refused."""
        raise OptionError(
            "what lies in several tiers, only records tell", expected="records with further tiers"
        )

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def refuse(**_: object) -> NoReturn:
            raise OptionError("tiers that are read together are only read", found=name)

        return refuse

    def _ask(self, key: str, call: Callable[[HooksBelow], _T]) -> _T:
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
