"""The layers over a driver, in exactly the order of the configuration, as one set of hooks.

A layer comes from a factory `factory(rest, **options)`. `rest` has the hooks of everything below the layer as
attributes, called by keyword: `rest.read_range(key=..., offset=..., length=...)`; it can be used from the
first call on, not in the factory itself. A layer implements a hook in one of two ways:

- one that only watches or delays: `@hookimpl(wrapper=True)`, a generator that yields exactly once;
- one that may call twice or not at all (retry, cache, hedging, faults): a plain `@hookimpl` that calls
  `rest`.

pluggy runs all wrappers before any plain implementation, whoever was registered first. So the order is made
level by level: the callers of level i hold the wrappers from layer i down to the first plain implementation
and that one, nothing else; what is below it is reached by its `rest`, which is another level. Hence a
wrapper below a retrying layer runs once for each attempt. A layer without an implementation of a hook is
passed over; `tryfirst` and `trylast` count for nothing. When nothing below a level implements an optional
hook, `read_ranges` is made of that level's `read_range`, and `list_uploads` raises `StoreError`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pluggy
from pluggy import HookimplOpts

from offload_core.tier.concurrent_reads import ConcurrentReads
from offload_hooks import OPTIONAL_HOOKS, PROJECT, TierHooks
from offload_hooks.errors import BrokenPluginError, StoreError

Call = Callable[..., Any]


class Rest:
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
    make: Callable[[Rest], object]


class Chain:
    """A driver under any number of layers, checked, with one caller for each hook and level.

    Raises `BrokenPluginError` when a plugin implements a hook that does not exist, or with arguments that
    it does not have, when the driver lacks a required hook, or when a factory makes nothing.

    Attributes:
        hooks: the whole chain's hooks, called by keyword; an answer of None is a `BrokenPluginError`.
    """

    def __init__(self, driver: object, driver_name: str, layers: Sequence[Layer] = ()) -> None:
        self._manager = _Manager(PROJECT)
        self._manager.add_hookspecs(TierHooks)
        self._hook_names = tuple(vars(self._manager.hook))
        self._reads: list[ConcurrentReads] = []
        self.hooks = Rest()
        rests = [self.hooks] + [Rest() for _ in layers]
        who = [f"layer {layer.name!r}" for layer in layers] + [f"driver {driver_name!r}"]
        plugins = [layer.make(rest) for layer, rest in zip(layers, rests[1:], strict=True)] + [driver]
        # The last to be registered is the first to be called, so: from the driver upwards.
        for level in reversed(range(len(plugins))):
            self._register(plugins[level], who[level], level)
        self._plugins, self._who = plugins, who
        self._check_names()
        self._check_driver()
        for level, rest in enumerate(rests):
            rest._calls = {name: self._call(name, level, rest) for name in self._hook_names}

    def close(self) -> None:
        """Stop the threads that this process started for concurrent reads, and close the plugins that can be."""
        for reads in self._reads:
            reads.close()
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

    def _call(self, name: str, level: int, rest: Rest) -> Call:
        """The caller of one hook at one level."""
        taking_part: list[object] = []
        for i in range(level, len(self._plugins)):
            if self._implementations(name, self._plugins[i]):
                taking_part.append(self._plugins[i])
            if self._acts(name, i):
                kept = {id(plugin) for plugin in taking_part}
                others = [plugin for plugin in self._plugins if id(plugin) not in kept]
                return _answered(self._manager.subset_hook_caller(name, others), name, self._who[i])
        if name == "read_ranges":
            self._reads.append(ConcurrentReads(rest))
            return self._reads[-1]
        return _refused(name, self._who[-1])

    def _implementations(self, name: str, plugin: object) -> list[pluggy.HookImpl]:
        caller: pluggy.HookCaller = getattr(self._manager.hook, name)
        return [impl for impl in caller.get_hookimpls() if impl.plugin is plugin]

    def _acts(self, name: str, level: int) -> bool:
        """Whether the plugin of this level has a plain implementation of the hook."""
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


def _refused(name: str, who: str) -> Call:
    def call(**_: object) -> Any:
        raise StoreError(f"the {who} does not support {name}")

    return call
