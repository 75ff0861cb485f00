# ruff: noqa: D102 (the names of the cases state the promises)
"""Many threads and processes at once, forks, and processes that are killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import wait

import pytest

from offload_hooks.errors import VersionConflictError
from offload_hooks.metadata_stores import WritableMetadataStore
from offload_hooks.testing.forks import CAN_FORK, forked, in_forked_children
from offload_hooks.testing.metadata_cases.base import MakeStore, MetadataSuiteBase
from offload_hooks.testing.threads import outcomes, together

PATH = "/managed-ledgers/acme/cold/persistent/raced"


def increment(store: WritableMetadataStore, path: str) -> int:
    """Add one to the number at a path, however often others are faster; the new number."""
    while True:
        found = store.get(path)
        value, version = (b"0", None) if found is None else found
        number = int(value) + 1
        try:
            store.put(path, b"%d" % number, version)
        except VersionConflictError:
            continue
        return number


def number_at(store: WritableMetadataStore, path: str) -> int:
    """The number at a path."""
    found = store.get(path)
    return 0 if found is None else int(found[0])


class ConcurrencyCases(MetadataSuiteBase):
    """Calls from several processes."""

    def test_of_threads_that_create_the_same_exactly_one_wins(self, open_store: MakeStore) -> None:
        stores = [open_store() for _ in range(self.racers)]
        for turn in range(self.rounds):
            path = f"{PATH}-{turn}"
            calls = [partial(store.put, path, b"%d" % i, None) for i, store in enumerate(stores)]
            ended = outcomes(calls, self.deadline_s)
            (winner,) = [i for i, outcome in enumerate(ended) if isinstance(outcome, int)]
            assert sum(isinstance(outcome, VersionConflictError) for outcome in ended) == self.racers - 1
            assert stores[0].get(path) == (b"%d" % winner, ended[winner])

    def test_threads_of_one_store_lose_no_increment(self, store: WritableMetadataStore) -> None:
        def count() -> list[int]:
            return [increment(store, PATH) for _ in range(self.rounds)]

        counted = together([count] * self.racers, self.deadline_s)
        assert sorted(number for of_one in counted for number in of_one) == list(
            range(1, self.racers * self.rounds + 1)
        )
        assert number_at(store, PATH) == self.racers * self.rounds

    def test_creating_and_deleting_neighbours_disturbs_nobody(self, store: WritableMetadataStore) -> None:
        """Names that come and go together with the last value below them."""

        def come_and_go(i: int) -> None:
            for _ in range(self.rounds):
                version = store.put(f"/come/and/go/{i}", b"%d" % i, None)
                assert store.get(f"/come/and/go/{i}") == (b"%d" % i, version)
                store.delete(f"/come/and/go/{i}", version)

        together([partial(come_and_go, i) for i in range(self.racers)], self.deadline_s)
        assert [store.get(f"/come/and/go/{i}") for i in range(self.racers)] == [None] * self.racers

    def test_processes_lose_no_increment(self, make_store: MakeStore, store: WritableMetadataStore) -> None:
        self._needs_processes()

        def count() -> None:
            own = make_store()
            for _ in range(self.rounds):
                increment(own, PATH)
            own.close()

        in_forked_children([count] * self.racers, self.deadline_s)
        assert number_at(store, PATH) == self.racers * self.rounds

    def test_a_forked_child_goes_on_with_its_parents_store(self, store: WritableMetadataStore) -> None:
        self._needs_processes()
        increment(store, PATH)

        def count() -> None:
            assert number_at(store, PATH) >= 1
            for _ in range(self.rounds):
                increment(store, PATH)

        in_forked_children([count] * 2, self.deadline_s)
        assert number_at(store, PATH) == 2 * self.rounds + 1
        increment(store, PATH)
        in_forked_children([count], self.deadline_s)
        assert number_at(store, PATH) == 3 * self.rounds + 2

    def test_what_was_acknowledged_outlives_a_process_that_is_killed(
        self, make_store: MakeStore, store: WritableMetadataStore
    ) -> None:
        self._needs_processes()
        read_end, write_end = os.pipe()

        def count_until_killed() -> None:
            own = make_store()
            while True:
                increment(own, PATH)
                os.write(write_end, b".")

        acknowledged = _acknowledged(count_until_killed, read_end, write_end, self.rounds, self.deadline_s)
        assert acknowledged >= self.rounds
        assert number_at(store, PATH) in (acknowledged, acknowledged + 1)
        assert increment(store, PATH) > acknowledged

    def _needs_processes(self) -> None:
        if self.one_process:
            pytest.skip("the store is one of a single process")
        if not CAN_FORK:
            pytest.skip("this system has no fork")


def _acknowledged(
    work: Callable[[], object], read_end: int, write_end: int, enough: int, deadline_s: float
) -> int:
    """The bytes that a child wrote before it was killed, which happens after `enough`, or the deadline."""
    written = 0
    with forked(work) as child:
        os.close(write_end)
        while written < enough and wait([read_end], deadline_s):
            more = len(os.read(read_end, 1))
            if not more:
                break  # it has failed
            written += more
        os.kill(child, signal.SIGKILL)
    while more := len(os.read(read_end, 65536)):
        written += more
    os.close(read_end)
    return written
