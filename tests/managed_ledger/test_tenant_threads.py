"""Threads and memory that tenants share: none of them has all, and what waits for its turn gets it, or is cancelled."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future

import pytest

from offload_core.storage.tier.memory_budget import MemoryBudget
from offload_core.writing.managed_ledger import TenantThreads


def test_a_tenant_whose_work_never_ends_leaves_a_thread_to_others() -> None:
    threads, end = TenantThreads(2, "test"), threading.Event()
    stuck: list[Future[None]] = [threads.submit("acme", lambda: end.wait() and None) for _ in range(5)]
    done = threading.Event()
    for _ in range(3):
        threads.submit("zeta", done.set).result(timeout=30)
        assert done.is_set()
        done.clear()
    assert not any(each.done() for each in stuck)
    end.set()
    for each in stuck:
        each.result(timeout=30)
    threads.shutdown()


def test_an_error_is_its_futures_and_the_next_is_begun() -> None:
    threads = TenantThreads(1, "test")

    def fail() -> None:
        raise ValueError("no")

    failed, after = threads.submit("acme", fail), threads.submit("acme", lambda: None)
    with pytest.raises(ValueError, match="no"):
        failed.result(timeout=30)
    assert after.result(timeout=30) is None
    threads.shutdown()


def test_what_waits_is_cancelled_when_no_more_is_begun() -> None:
    threads, begun, end = TenantThreads(1, "test"), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        end.wait()

    running, waiting = threads.submit("acme", work), threads.submit("acme", lambda: None)
    begun.wait()
    threads.shutdown()
    with pytest.raises(CancelledError):
        waiting.result(timeout=30)
    end.set()
    running.result(timeout=30)
    with pytest.raises(RuntimeError):
        threads.submit("acme", lambda: None)


def test_a_part_of_a_budget_leaves_the_rest_to_others() -> None:
    whole = MemoryBudget(150)
    acme, zeta = whole.share("acme", 100), whole.share("zeta", 100)
    acme.take(100)
    assert not acme.try_take(1)
    zeta.take(50)
    assert not zeta.try_take(1)
    assert (acme.taken_bytes, zeta.taken_bytes, whole.taken_bytes) == (100, 50, 150)
    acme.give_back(100)
    assert zeta.try_take(50)
    assert (acme.taken_bytes, zeta.taken_bytes, whole.taken_bytes) == (0, 100, 100)
