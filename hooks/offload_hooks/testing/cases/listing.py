# ruff: noqa: D102 (the names of the cases state the promises)
"""Listings: in order, complete, up to date, from anywhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import pytest

from offload_hooks.errors import InvalidKeyError, OffloadError
from offload_hooks.testing.back_door import BackDoor
from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.content import content
from offload_hooks.testing.store import BYTES, Store

KEYS = ["A/1", "a-b", "a/b", "a/c/1", "a/c/2", "a0", "b", "b.1/x", "b1"]
"""In the order of their bytes, which is neither that of folders, nor of a dictionary."""

UNUSUAL = ["Z", "a b", "a%41", "a+b", "a=b", "e", "z", "ä", "é/1", "日本", "\uff5e", "\U0001f600"]
"""In the order of their UTF-8 bytes; the last two come in the other order in UTF-16."""

_PLACES = ["", "A", "A/1", "a", "a/", "a/b", "a/bb", "a/c/1", "a/c/9", "a0", "b.1", "b1", "b1/", "z"]


def _fill(store: Store, keys: list[str]) -> None:
    for i, key in enumerate(reversed(keys)):
        store.write_index(key, content(len(keys) - 1 - i))


class ListingCases(SuiteBase):
    """`list_objects`."""

    def test_keys_come_in_the_order_of_their_bytes(self, store: Store) -> None:
        _fill(store, KEYS)
        assert store.keys() == KEYS

    def test_unusual_keys_come_in_the_order_of_their_utf_8_bytes(self, store: Store) -> None:
        taken = []
        for key in UNUSUAL:
            try:
                store.write_index(key, b"x")
            except InvalidKeyError:
                continue
            taken.append(key)
        assert {"Z", "e", "z"} <= set(taken), "plain keys are taken by every store"
        assert store.keys() == taken == sorted(taken, key=str.encode)
        for place, key in enumerate(taken):
            assert store.whole(key) == b"x"
            assert store.keys("", key) == taken[place + 1 :]

    def test_a_key_that_begins_another_comes_before_it(self, store: Store) -> None:
        store.write_index("a/b", b"x")
        try:
            store.write_index("a", b"x")
        except OffloadError:
            pytest.skip("the store takes no key that another one has as its folder")
        store.write_index("a-b", b"x")
        assert store.keys() == ["a", "a-b", "a/b"]
        assert store.keys("a/") == ["a/b"]
        assert store.delete("a") == 1
        assert store.keys() == ["a-b", "a/b"]

    @pytest.mark.parametrize(
        "case_prefix", ["", "a", "a/", "a/c", "a/c/1", "a/c/1x", "b", "b.", "c", "A", "/"]
    )
    def test_only_keys_that_begin_with_the_prefix_are_listed(self, store: Store, case_prefix: str) -> None:
        _fill(store, KEYS)
        assert store.keys(case_prefix) == [key for key in KEYS if key.startswith(case_prefix)]

    @pytest.mark.parametrize("case_start_after", _PLACES)
    def test_only_keys_after_a_place_are_listed(self, store: Store, case_start_after: str) -> None:
        _fill(store, KEYS)
        assert store.keys("", case_start_after) == [key for key in KEYS if key > case_start_after]

    def test_prefix_and_place_may_be_combined(self, store: Store) -> None:
        _fill(store, KEYS)
        for prefix in ("a", "a/", "a/c/", "b"):
            for start_after in _PLACES:
                expected = [key for key in KEYS if key.startswith(prefix) and key > start_after]
                assert store.keys(prefix, start_after) == expected, (prefix, start_after)

    def test_sizes_and_times_are_those_of_the_objects(self, store: Store) -> None:
        _fill(store, KEYS)
        store.put("data/1", content(1234))
        found = {each.key: each for each in store.listing()}
        assert [found[key].size_bytes for key in KEYS] == list(range(len(KEYS)))
        assert found["data/1"].size_bytes == 1234
        for each in found.values():
            assert each.modified_at.utcoffset() == timedelta(0), "an aware time in UTC"
            assert abs(each.modified_at - datetime.now(timezone.utc)) < timedelta(seconds=self.clock_skew_s)

    def test_a_storage_class_is_the_stores_word_or_none(self, store: Store) -> None:
        _fill(store, KEYS[:2])
        store.put("data/1", content(10))
        classes = {each.storage_class for each in store.listing()}
        assert len(classes) == 1, "what was written alike is kept alike"
        assert classes == {store.stat(KEYS[0]).storage_class}, "a lookup says what a listing says"
        assert all(each is None or (each and each.isprintable()) for each in classes)

    def test_a_version_is_another_one_after_each_write_or_none(self, store: Store) -> None:
        versions = []
        for data in (b"one", b"two", b"three"):
            store.write_index("k", data)
            (listed,) = store.listing()
            assert listed.version == store.stat("k").version, "a lookup says what a listing says"
            versions.append(listed.version)
        assert set(versions) == {None} or (None not in versions and len(set(versions)) == 3)

    def test_uploads_and_other_things_of_the_drivers_own_are_not_listed(self, store: Store) -> None:
        store.put("k/1", b"x", user_metadata={"role": "data"})
        store.write_index("k/2", b"x", {"role": "index"})
        upload = store.begin("k/3", {"role": "data"})
        store.write(upload, 1, 0, content(17))
        store.abort(store.begin("k/4"))
        for prefix in ("", ".", "k", "k/", "k/1", "k/3"):
            assert store.keys(prefix) == [key for key in ("k/1", "k/2") if key.startswith(prefix)]

    def test_a_listing_longer_than_a_page_is_complete(self, store: Store, back_door: BackDoor) -> None:
        store.write_index("last", b"")
        keys = [f"many/{i // 100:03}/{i:06}" for i in range(self.many_keys)]
        with ThreadPoolExecutor(self.racers) as pool:
            list(pool.map(lambda key: back_door.put(key, b"x", {}, BYTES), reversed(keys)))
        keys.insert(0, "last")
        assert store.keys() == keys
        assert store.keys("many/") == keys[1:]
        middle = len(keys) // 2
        assert store.keys("", keys[middle]) == keys[middle + 1 :]
        assert store.keys("many/", keys[middle] + "x") == keys[middle + 1 :]
        assert store.keys("", keys[-2]) == keys[-1:]

    def test_a_listing_may_be_left_in_the_middle(self, store: Store) -> None:
        _fill(store, KEYS)
        listing = store.listing()
        assert [next(listing).key, next(listing).key] == KEYS[:2]
        del listing
        assert store.keys() == KEYS

    def test_two_listings_do_not_disturb_each_other(self, store: Store) -> None:
        _fill(store, KEYS)
        one, two = store.listing("a"), store.listing()
        both = [(next(one).key, next(two).key) for _ in range(4)]
        assert both == list(zip(KEYS[1:5], KEYS[:4], strict=True))

    def test_a_listing_shows_what_was_written_since_the_last_one(
        self, store: Store, back_door: BackDoor
    ) -> None:
        store.put("k/1", b"x")
        assert store.keys() == store.keys("k/") == ["k/1"]
        store.put("k/2", b"x")
        back_door.put("k/3", b"x", {}, BYTES)
        store.write_index("k/0", b"x")
        assert store.keys() == store.keys("k/") == ["k/0", "k/1", "k/2", "k/3"]

    def test_a_listing_shows_what_another_instance_did(self, store: Store, other: Store) -> None:
        store.put("k/1", b"x")
        assert other.keys() == ["k/1"]
        store.put("k/2", b"xx")
        assert other.keys() == ["k/1", "k/2"]
        store.delete("k/1")
        store.put("k/2", b"xxx")
        assert [(found.key, found.size_bytes) for found in other.listing()] == [("k/2", 3)]
