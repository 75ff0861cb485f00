# ruff: noqa: D102 (the names of the cases state the promises)
"""The conformance suite of layers: a driver under the layer must keep all that a driver promises.

    class TestMyLayer(LayerConformance):
        @pytest.fixture
        def make_layer(self):
            return partial(MyLayer, attempts="3")

The layer stands over a driver in memory. See docs/conformance.md.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import pluggy
import pytest

from offload_hooks import PROJECT, TierHooks, WholeObject, hookimpl
from offload_hooks.errors import AccessDeniedError, BrokenPluginError
from offload_hooks.testing.conformance import DriverConformance
from offload_hooks.testing.memory import MemoryBackDoor, MemoryDriver, MemoryTier
from offload_hooks.testing.store import Store
from offload_hooks.whole_objects import read_by_stat_and_range

MakeLayer = Callable[[Any], object]

HOOKS = tuple(name for name, spec in vars(TierHooks).items() if hasattr(spec, f"{PROJECT}_spec"))


class DriverOfHooks:
    """A driver whose hooks are those of something else, for whatever judges drivers.

    Args:
        hooks: has each hook as an attribute that is called by keyword.
    """

    hook_spec_version = 1

    def __init__(self, hooks: object) -> None:
        self.hooks = hooks


def _passed_on(spec: Callable[..., object]) -> Callable[..., object]:
    signature = inspect.signature(spec)

    @functools.wraps(spec)  # whose arguments pluggy reads
    def call(self: DriverOfHooks, *given: object, **named: object) -> object:
        arguments = signature.bind(self, *given, **named).arguments
        del arguments["self"]
        return getattr(self.hooks, spec.__name__)(**arguments)

    return hookimpl(call)


for _name in HOOKS:
    setattr(DriverOfHooks, _name, _passed_on(getattr(TierHooks, _name)))


class RestOfHooks:
    """The hooks below a layer, called by keyword; in the layer's factory there are none yet."""

    def __init__(self) -> None:
        self.relay: Any = None

    def __getattr__(self, hook: str) -> Callable[..., Any]:
        if hook.startswith("_") or hook not in HOOKS:
            raise AttributeError(hook)
        if self.relay is None:
            raise BrokenPluginError(
                f"a layer used rest.{hook} in its factory; it works from the first call on"
            )
        call: Callable[..., Any] = getattr(self.relay, hook)
        return call


class LayerOverDriver:
    """One layer over a driver, as the program puts them together: the hooks of both as attributes."""

    def __init__(self, make_layer: MakeLayer, driver: object) -> None:
        below, both = _manager(), _manager()
        rest = RestOfHooks()
        self.layer = make_layer(rest)
        below.register(driver)
        both.register(driver)
        both.register(self.layer)  # the last is the first to be called
        both.check_pending()
        rest.relay = below.hook
        self._both = both.hook

    def __getattr__(self, hook: str) -> Any:
        if hook == "read_object" and self._is_passed_by():
            return self._read_object
        return getattr(self._both, hook)

    def implemented(self) -> list[str]:
        """The hooks that the layer takes part in."""
        return [
            hook
            for hook in HOOKS
            if any(each.plugin is self.layer for each in getattr(self._both, hook).get_hookimpls())
        ]

    def _is_passed_by(self) -> bool:
        """True if the layer takes part in reads or stats, and not in reading whole objects."""
        implemented = self.implemented()
        return "read_object" not in implemented and bool({"read_range", "stat"} & set(implemented))

    def _read_object(self, key: str, most_bytes: int) -> WholeObject:
        return read_by_stat_and_range(self._both, key, most_bytes)


def _manager() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(TierHooks)
    return manager


class DenyingDriver(MemoryDriver):
    """A driver whose store refuses all that it is asked."""

    @hookimpl
    def read_range(self, key: str) -> NoReturn:  # type: ignore[override]
        raise AccessDeniedError("the store refuses", key=key)

    @hookimpl
    def stat(self, key: str) -> NoReturn:
        raise AccessDeniedError("the store refuses", key=key)

    @hookimpl
    def write_index(self, key: str) -> NoReturn:  # type: ignore[override]
        raise AccessDeniedError("the store refuses", key=key)


class LayerConformance(DriverConformance):
    """Subclass it, with a name that begins with `Test`, and write the fixture `make_layer`.

    The attributes of `DriverConformance` may be set.
    """

    @pytest.fixture
    def make_layer(self) -> MakeLayer:
        """To be written by the author: the layer's factory, which is given the `rest`, with its options."""
        self._missing("make_layer", "the layer's factory with its options, which is given the rest")

    @pytest.fixture
    def memory_tier(self) -> MemoryTier:
        """The objects of the driver in memory."""
        return MemoryTier()

    @pytest.fixture
    def make_driver(self, make_layer: MakeLayer, memory_tier: MemoryTier) -> Callable[[], object]:
        """Drivers in memory under the layer, each of them made anew."""
        return lambda: DriverOfHooks(LayerOverDriver(make_layer, MemoryDriver(memory_tier)))

    @pytest.fixture
    def back_door(self, memory_tier: MemoryTier) -> MemoryBackDoor:
        """The same objects, without the layer."""
        return MemoryBackDoor(memory_tier)

    def test_a_layer_takes_part_in_a_hook(self, make_layer: MakeLayer) -> None:
        assert LayerOverDriver(make_layer, MemoryDriver()).implemented(), "the layer implements no hook"

    def test_a_layer_is_equal_to_itself_only(self, make_layer: MakeLayer) -> None:
        one, other = (LayerOverDriver(make_layer, MemoryDriver()).layer for _ in range(2))
        assert one is not other, "each tier has a layer of its own"
        assert one == one
        assert one != other
        hash(one)

    def test_an_error_of_the_driver_is_passed_on(self, make_layer: MakeLayer) -> None:
        store = Store(DriverOfHooks(LayerOverDriver(make_layer, DenyingDriver())), self.secrets)
        with store.refuses(AccessDeniedError, key="k"):
            store.read("k", 0, 1)
        with store.refuses(AccessDeniedError, key="k"):
            store.stat("k")
        with store.refuses(AccessDeniedError, key="k"):
            store.write_index("k", b"x")
