# ruff: noqa: D102 (the names of the cases state the promises)
"""Many threads, forks, and a driver that is used after it was closed."""

from __future__ import annotations

from functools import partial

import pytest

from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.content import content
from offload_hooks.testing.forks import CAN_FORK, in_forked_child
from offload_hooks.testing.store import Store
from offload_hooks.testing.threads import together


def _all_verbs(store: Store, name: str) -> None:
    """Write, list, read and delete objects that only `name` knows."""
    data = content(1000, seed=len(name))
    store.put(f"{name}/data", data, user_metadata={"who": name})
    store.write_index(f"{name}/index", data[:10], {"who": name})
    assert store.keys(f"{name}/") == [f"{name}/data", f"{name}/index"]
    assert store.read(f"{name}/data", 100, 200) == data[100:300]
    assert store.stat(f"{name}/index").user_metadata == {"who": name}
    assert store.abort(store.begin(f"{name}/data")) is True
    assert store.delete(f"{name}/data", f"{name}/index") == 2
    assert store.keys(f"{name}/") == []


class ProcessCases(SuiteBase):
    """Calls from several processes."""

    def test_calls_may_come_from_many_threads_at_once(self, store: Store) -> None:
        together([partial(_all_verbs, store, f"thread-{i}") for i in range(self.racers)], self.deadline_s)
        assert store.keys("thread") == []

    def test_a_driver_works_in_a_forked_child(self, store: Store) -> None:
        if not CAN_FORK:
            pytest.skip("this system has no fork")
        _all_verbs(store, "parent")
        store.put("k", content(1000))

        def work() -> None:
            assert store.whole("k") == content(1000)
            _all_verbs(store, "child")

        in_forked_child(work, self.deadline_s)
        _all_verbs(store, "parent")
        assert store.whole("k") == content(1000)

    def test_a_driver_can_be_used_after_it_was_closed(self, store: Store) -> None:
        if not callable(getattr(store.driver, "close", None)):
            pytest.skip("the driver has no close()")
        store.put("k", content(1000))
        for _ in range(2):
            store.close()
            store.close()
            assert store.whole("k") == content(1000)
            _all_verbs(store, "again")
