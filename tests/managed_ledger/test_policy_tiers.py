"""Tiers that policies name: opened once, closed when nobody uses them, found again where a record means them."""

from __future__ import annotations

import contextlib
import threading
from functools import partial

import pytest

from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.policies import parse_policies, resolve_policies
from offload_core.storage.tier import open_store
from offload_core.writing.managed_ledger import policy_tiers
from offload_core.writing.managed_ledger.policy_tiers import PolicyTiers
from offload_hooks.errors import OptionError
from offload_hooks.testing.threads import together

DEADLINE_S = 60.0


def to(folder, **given):
    said = {"driver": "local", "extra_configurations": {"root": str(folder)}, **given}
    return resolve_policies(topic=parse_policies(said))


@pytest.fixture
def tiers():
    with contextlib.closing(PolicyTiers(most_idle=1)) as tiers:
        yield tiers


def where(tier):
    return tier.describe().location


def test_a_tier_is_opened_once_for_the_same_options(tiers, tmp_path):
    with tiers.lease(to(tmp_path)) as one, tiers.lease(to(tmp_path, threshold_in_bytes=5)) as two:
        assert one.current is two.current
        assert tiers.open_count == 1
        with tiers.lease(to(tmp_path, rate_limit_in_bytes_per_second=9)) as limited:
            assert limited.current is not one.current
            assert tiers.open_count == 2


def test_those_that_nobody_uses_are_closed_beyond_a_few_the_longest_unused_first(tiers, tmp_path):
    a, b, c = (to(tmp_path / name) for name in "abc")
    with tiers.lease(a), tiers.lease(b), tiers.lease(c) as held:
        last = held.current
        assert tiers.open_count == 3
    assert tiers.open_count == 1
    with tiers.lease(a), tiers.lease(b):
        pass
    with tiers.lease(c) as again:
        assert again.current is not last


def test_one_that_is_in_use_stays_open(tiers, tmp_path):
    with tiers.lease(to(tmp_path / "held")) as held:
        for number in range(5):
            tiers.lease(to(tmp_path / str(number))).close()
        assert tiers.open_count == 2
        with tiers.lease(to(tmp_path / "held")) as again:
            assert again.current is held.current


def test_a_copy_is_found_where_a_policy_once_pointed_though_that_tier_was_closed(tiers, tmp_path):
    with tiers.lease(to(tmp_path / "old")) as old:
        record = tier_record(old.current)
    for number in range(3):
        tiers.lease(to(tmp_path / str(number))).close()
    lease = tiers.lease(to(tmp_path / "now"))
    found = lease.tiers.find(record)
    assert where(found) == where(open_store(str(tmp_path / "old")))
    assert tiers.open_count == 3  # both, and an idle one
    lease.close()
    lease.close()
    assert tiers.open_count == 1


def test_without_a_driver_there_are_only_those_that_were_known(tiers, tmp_path):
    assert tiers.lease(resolve_policies()) is None
    tiers.lease(to(tmp_path / "once")).close()
    with tiers.lease(resolve_policies()) as known:
        assert where(known.current).endswith("/once")
    with open_store(str(tmp_path / "beside")) as other:
        beside = PolicyTiers([other])
        with beside.lease(resolve_policies()) as known:
            assert known.current is other
            assert known.find(tier_record(other)) is other
        with beside.lease(to(tmp_path)) as known, pytest.raises(OptionError, match="not configured"):
            known.find(tier_record(open_store(str(tmp_path / "nowhere"))))
        beside.close()
        assert beside.open_count == 0


def test_a_tier_that_takes_long_to_open_holds_nobody_up(tiers, tmp_path, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()

    def slow_store(driver, **given):
        if given["root"].endswith("slow"):
            begun.set()
            assert go_on.wait(DEADLINE_S)
        return open_store(driver, **given)

    monkeypatch.setattr(policy_tiers, "open_store", slow_store)

    def fast():
        assert begun.wait(DEADLINE_S)
        tiers.lease(to(tmp_path / "fast")).close()
        go_on.set()

    together([lambda: tiers.lease(to(tmp_path / "slow")).close(), fast], deadline_s=2 * DEADLINE_S)


def test_many_who_want_the_same_tier_get_the_same(tiers, tmp_path):
    leases = []
    together(
        [partial(lambda: leases.append(tiers.lease(to(tmp_path)))) for _ in range(8)], deadline_s=DEADLINE_S
    )
    assert len({id(lease.tiers.current) for lease in leases}) == 1
    assert tiers.open_count == 1
    for lease in leases:
        lease.close()


def test_a_tier_that_cannot_be_opened_is_told_and_not_kept(tiers):
    with pytest.raises(OptionError, match="root"):
        tiers.lease(resolve_policies(topic=parse_policies({"driver": "local"})))
    assert tiers.open_count == 0


def test_options_are_in_no_repr(tmp_path):
    assert "hunter2" not in repr(policy_tiers._Options("s3", (("secret", "hunter2"),), None))
