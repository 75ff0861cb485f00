"""What a store takes from bookies is bounded, and the bounds end with the deadline."""

from __future__ import annotations

import time

import pytest

from offload_core.storage.hot.bookkeeper.bookie_connection import BookieSecurity
from offload_core.storage.hot.bookkeeper.bookies import BookieLimits, Bookies
from offload_hooks.testing.ledger_cases.base import all_of


def bookies(**limits):
    defaults = {"connections": 4, "requests": 256, "requests_per_second": None, "bytes_per_second": None}
    return Bookies(None, "/ledgers", BookieSecurity(), BookieLimits(**defaults | limits))


@pytest.mark.parametrize(("connections", "requests", "at_once"), [(4, 256, 64), (1, 2, 2), (8, 4, 1)])
def test_connections_share_the_requests(connections, requests, at_once):
    assert (
        BookieLimits(
            connections=connections, requests=requests, requests_per_second=None, bytes_per_second=None
        ).requests_at_once
        == at_once
    )


def test_no_more_is_asked_than_the_rate_gives_in_half_of_the_time():
    deadline = time.monotonic() + 100
    assert bookies(requests_per_second=5).most_requests(deadline) in (249, 250)
    assert bookies(requests_per_second=5).most_requests(time.monotonic() - 1) == 1
    assert bookies().most_requests(deadline) > 1000


def test_waiting_for_a_rate_ends_at_the_deadline():
    few = bookies(requests_per_second=1, bytes_per_second=1)
    begun = time.monotonic()
    few.wait_for(begun + 0.05, requests=1000, received=1000)
    few.wait_for(begun + 0.1, requests=1000, received=1000)
    assert time.monotonic() - begun < 30


def test_a_slow_rate_reads_all_the_same(bookkeeper, open_store):
    written = [b"%d" % i for i in range(12)]
    ledger_id = bookkeeper.make_ledger(written, ensemble=3, write_quorum=2)
    store = open_store(requests_per_second="20", timeout_s="20")
    assert all_of(store.open(ledger_id)) == written


def test_a_read_of_any_size_is_taken(bookkeeper, store):
    ledger_id = bookkeeper.make_ledger([b"x"] * 10)
    assert len(store.open(ledger_id).read(0, 9, 1 << 62)) == 10
