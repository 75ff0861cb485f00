"""The settings that an author of a driver gives the suite, and the begin of all cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import ClassVar, NoReturn

import pytest

from offload_hooks.testing.back_door import BackDoor
from offload_hooks.testing.store import Store


class SuiteBase:
    """Two fixtures that the author writes, attributes that he may set, and two fixtures that the cases use."""

    secrets: ClassVar[tuple[str, ...]] = ()
    """Texts that must never be seen in a description, repr or error: the passwords that the driver is given."""

    own_keys: ClassVar[tuple[str, ...]] = ()
    """Keys that the driver refuses because it needs the names for itself."""

    many_keys: ClassVar[int] = 1100
    """Objects of the longest listing: more than one page of the store's."""

    racers: ClassVar[int] = 8
    """Threads that do the same thing at once."""

    races: ClassVar[int] = 3
    """Times that a race is run."""

    max_examples: ClassVar[int] = 20
    """Sequences of calls that are compared with a dict; 0 for none."""

    steps: ClassVar[int] = 50
    """The most calls of such a sequence."""

    shrink: ClassVar[bool] = True
    """True if a sequence that fails is made as short as possible, which may take some minutes."""

    deadline_s: ClassVar[float] = 60.0
    """After how many seconds concurrent calls, or a forked child, count as hanging."""

    clock_skew_s: ClassVar[float] = 300.0
    """The most that the store's clock may differ from ours, in seconds."""

    @pytest.fixture
    def make_driver(self) -> Callable[[], object]:
        """To be written by the author: what makes a driver on the same tier each time, which is empty at first.

        Where it gives the same driver every time, the cases that need two instances are skipped.
        """
        self._missing("make_driver", "what makes a driver, each time on the same, empty tier")

    @pytest.fixture
    def back_door(self) -> BackDoor:
        """To be written by the author: the same tier, reached without the driver."""
        self._missing("back_door", "a BackDoor to the same tier")

    @pytest.fixture
    def open_store(self, make_driver: Callable[[], object]) -> Iterator[Callable[[], Store]]:
        """Makes drivers and closes them in the end."""
        with ExitStack() as opened:

            def open_one() -> Store:
                store = Store(make_driver(), self.secrets)
                opened.callback(store.close)
                return store

            yield open_one

    @pytest.fixture
    def store(self, open_store: Callable[[], Store]) -> Store:
        """The driver, called through its hooks."""
        return open_store()

    @pytest.fixture
    def other(self, store: Store, open_store: Callable[[], Store]) -> Store:
        """Another driver on the same tier, as another process has one."""
        other = open_store()
        if other.driver is store.driver:
            pytest.skip("make_driver() gives the same driver every time, and this needs another one")
        return other

    def _missing(self, fixture: str, what: str) -> NoReturn:
        who = type(self).__name__
        pytest.fail(f"{who} needs a fixture {fixture!r}: {what} (see docs/conformance.md)", pytrace=False)
