from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_drivers.azure import listing as azure_listing
from offload_drivers.azure.listing import common_start, in_utf8_order

NAMES = st.lists(st.text(alphabet="a/\u00e9\ud7ff\ue000\uff5e\U00010000\U0001f600", max_size=6), unique=True)


@pytest.fixture
def driver(azurite, front, open_driver, monkeypatch):
    monkeypatch.setattr(azure_listing, "PAGE_BLOBS", 3)
    given = {"connection_string": azurite.connection_string, "endpoint_url": front.url}
    return open_driver(prefix="cold", **given)


def fill(container, keys):
    for key in keys:
        container.upload_blob(f"cold/{key}", b"x")


def keys(driver, prefix="", start_after=""):
    return [found.key for found in driver.list_objects(prefix, start_after)]


def listings(front):
    return [request for request in front.requests if request.parameters.get("comp") == "list"]


def utf16(name):
    return name.encode("utf-16-be")


def test_a_listing_goes_over_many_pages_lazily(driver, container, front):
    names = [f"k{i:02}" for i in range(20)]
    fill(container, names)
    found = driver.list_objects("", "")
    assert listings(front) == []
    assert next(found).key == "k00"
    assert len(listings(front)) == 1
    assert [each.key for each in found] == names[1:]
    assert len(listings(front)) == 7
    assert keys(driver, "", "k11") == names[12:]
    assert keys(driver, "k1", "k11") == names[12:]
    assert keys(driver, "k0", "k1") == keys(driver, "k0", "z") == []


def test_the_store_is_asked_to_begin_at_a_name(driver, container, front):
    fill(container, ["a", "b", "c"])
    assert keys(driver, "", "b") == ["c"]
    assert all(request.parameters["startFrom"] == "cold/b" for request in listings(front))
    front.requests.clear()
    assert keys(driver, "b", "a") == ["b"]
    assert not [request for request in listings(front) if "startFrom" in request.parameters]


def test_keys_come_in_the_order_of_their_utf_8_bytes_though_the_server_has_that_of_utf_16(driver, container):
    names = ["a", "\uff5e/1", "\uff5e/2", "\ue000", "\U0001f600/1", "\U0001f600/2", "\U00010000", "z", "é"]
    fill(container, names)
    listed = [blob.name.removeprefix("cold/") for blob in container.list_blobs()]
    assert listed == sorted(names, key=utf16) != sorted(names)
    assert keys(driver) == sorted(names)
    for start_after in names:
        assert keys(driver, "", start_after) == [name for name in sorted(names) if name > start_after]
    assert keys(driver, "\U0001f600") == ["\U0001f600/1", "\U0001f600/2"]


def test_what_is_no_key_is_not_listed(driver, container):
    for name in ("cold//a", "cold/a//b", "cold/b.", "cold/.offload-uploads/x", "cold", "colder/a"):
        container.upload_blob(name, b"x")
    fill(container, ["a"])
    assert keys(driver) == ["a"]


def test_listing_goes_on_while_objects_come_and_go(driver, container):
    fill(container, [f"k{i}" for i in range(9)])
    found = driver.list_objects("", "")
    assert [next(found).key for _ in range(3)] == ["k0", "k1", "k2"]
    container.delete_blob("cold/k1")
    container.delete_blob("cold/k5")
    container.upload_blob("cold/k0a", b"x")
    assert [each.key for each in found] == ["k3", "k4", "k6", "k7", "k8"]


# --- the order by itself -----------------------------------------------------------------------------------


@given(NAMES)
def test_either_order_becomes_that_of_utf_8(names):
    expected = sorted(names, key=str.encode)
    assert list(in_utf8_order(sorted(names, key=utf16), str)) == expected
    assert list(in_utf8_order(sorted(names), str)) == expected


@given(NAMES, st.text(alphabet="a/\u00e9\ud7ff\ue000\uff5e\U00010000", max_size=6))
def test_nothing_that_is_to_be_listed_comes_before_the_common_start(names, after):
    start = common_start(after)
    for name in names:
        if name > after:
            assert name >= start
            assert utf16(name) >= utf16(start)


def test_only_names_that_may_come_in_another_order_are_held_back():
    names = [f"a/{i}" for i in range(5)] + ["b\U0001f600", "b\uff5e", "c", "d"]
    taken = 0

    def counted():
        nonlocal taken
        for taken, name in enumerate(names, 1):  # noqa: B007
            yield name

    ordered = in_utf8_order(counted(), str)
    seen = [(next(ordered), taken) for _ in range(len(names))]
    assert seen[:5] == [(name, i) for i, name in enumerate(names[:5], 1)]
    assert seen[5:] == [("b\uff5e", 8), ("b\U0001f600", 8), ("c", 8), ("d", 9)]


def test_orders_of_many_names_are_alike():
    dice = random.Random(0)
    alphabet = "ab/\ue000\U0001f600"
    names = list({"".join(dice.choices(alphabet, k=dice.randint(1, 5))) for _ in range(2000)})
    assert list(in_utf8_order(sorted(names, key=utf16), str)) == sorted(names)
