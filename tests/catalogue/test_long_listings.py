"""Long listings are made of several at once, and list what one listing would."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import MemoryDriver

from offload_core.metadata.catalogue import listing
from offload_core.metadata.catalogue.listing import list_pairs, stream_unordered
from offload_core.storage.tier import Tier
from offload_hooks import hookimpl


class PagedDriver(MemoryDriver):
    """As an object store: a listing may start after any key, at the cost of its own pages."""

    can_start_anywhere = True
    began: list[str]

    @hookimpl
    def describe(self):
        described = super().describe()
        capabilities = replace(described.capabilities, lists_from_any_key=self.can_start_anywhere)
        return replace(described, capabilities=capabilities)

    @hookimpl
    def list_objects(self, prefix, start_after):
        vars(self).setdefault("began", []).append(start_after)
        return super().list_objects(prefix, start_after)


@pytest.fixture(autouse=True)
def short_pages(monkeypatch):
    monkeypatch.setattr(listing, "_PAGE", 4)


def pairs_of(keys, prefix=""):
    """The pairs of both listings, by key; where the long one was begun."""
    driver = PagedDriver(dict.fromkeys(keys, b"x"))
    tier = Tier(driver)
    expected = list_pairs(tier, prefix)
    driver.began.clear()
    found = sorted(stream_unordered(tier, prefix), key=lambda pair: pair.key.data_key)
    assert found == sorted(expected, key=lambda pair: pair.key.data_key)
    return found, driver.began


def keys_of(uuid, folder="", ledger=1):
    return [f"{folder}{uuid}-ledger-{ledger}", f"{folder}{uuid}-ledger-{ledger}-index"]


def uuids(count, seed=1):
    random = Random(seed)
    return [UUID(int=random.getrandbits(128)) for _ in range(count)]


def test_a_short_one_is_one_listing():
    found, began = pairs_of(keys_of(uuids(1)[0]))
    assert (len(found), began) == (1, [""])


@pytest.mark.parametrize("folder", ["", "cold/"])
def test_a_long_one_is_begun_at_each_first_digit(folder):
    found, began = pairs_of(key for uuid in uuids(100) for key in keys_of(uuid, folder))
    assert len(found) == 100
    assert began[0] == ""
    assert len(began) > 14
    assert all(each.startswith(folder) and len(each) == len(folder) + 1 for each in began[1:])


def test_a_driver_that_passes_what_comes_before_lists_once(monkeypatch):
    monkeypatch.setattr(PagedDriver, "can_start_anywhere", False)
    assert pairs_of(key for uuid in uuids(100) for key in keys_of(uuid))[1] == [""]


def test_what_a_prefix_leaves_of_one_digit_is_listed_once():
    found, began = pairs_of((key for uuid in uuids(200) for key in keys_of(uuid)), prefix="a")
    assert found
    assert began == [""]


NAMES = st.builds(
    lambda folder, uuid, ledger, suffix: f"{folder}{uuid}{ledger}{suffix}",
    st.sampled_from(["", "a/", "f", "a/b/c/1-", "é/", "￿/"]),
    st.uuids(),
    st.sampled_from(["", "-ledger-1", "-ledger-10"]),
    st.sampled_from(["", "-index", "-checksums", "/data", "/index", "/.data.crc", "x"]),
)


@given(names=st.lists(NAMES, max_size=40), prefix=st.sampled_from(["", "a/", "a/b", "f", "0", "a/1"]))
def test_any_names_are_listed_as_by_one_listing(names, prefix):
    pairs_of(set(names), prefix)
