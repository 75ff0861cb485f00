# ruff: noqa: D102 (the names of the cases state the promises)
"""Ranges: exactly the bytes that were asked for, one range or many at once."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import pytest

from offload_hooks import ByteRange
from offload_hooks.errors import ObjectNotFoundError, RangeError
from offload_hooks.testing.back_door import BackDoor
from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.content import blocks_of, content, differing
from offload_hooks.testing.store import BYTES, Store
from offload_hooks.testing.threads import together

SIZE = 10_000
_RANGES = {
    "at the beginning": (0, 100),
    "in the middle": (4999, 1234),
    "at the end": (SIZE - 100, 100),
    "of the first byte": (0, 1),
    "of the last byte": (SIZE - 1, 1),
    "of all bytes": (0, SIZE),
}
_NONE = {
    "before the beginning": (-1, 10),
    "that is empty": (5, 0),
    "of a negative length": (5, -1),
    "one byte past the end": (SIZE - 9, 10),
    "at the end": (SIZE, 1),
    "after the end": (SIZE + 10, 10),
    "larger than the object": (0, SIZE + 1),
    "far away": (1 << 40, 10),
}


def _ranges(key: str, count: int, seed: int) -> list[ByteRange]:
    """Ranges anywhere in an object of `SIZE`: near each other, overlapping, some of them twice."""
    dice = random.Random(seed)  # noqa: S311
    places = [(dice.randrange(SIZE - 200), dice.randint(1, 200)) for _ in range(count - count // 5)]
    places += dice.choices(places, k=count // 5)
    return [ByteRange(key=key, offset=offset, length=length) for offset, length in places]


class ReadingCases(SuiteBase):
    """`read_range`, `read_ranges` and `read_object`."""

    @pytest.mark.parametrize(("case_offset", "case_length"), _RANGES.values(), ids=_RANGES)
    def test_a_range_is_exact(self, store: Store, case_offset: int, case_length: int) -> None:
        store.put("k", content(SIZE))
        assert (
            store.read("k", case_offset, case_length)
            == content(SIZE)[case_offset : case_offset + case_length]
        )

    @pytest.mark.parametrize(("case_offset", "case_length"), _NONE.values(), ids=_NONE)
    def test_no_object_has_a_range(self, store: Store, case_offset: int, case_length: int) -> None:
        store.put("k", content(SIZE))
        with store.refuses(RangeError, key="k"):
            store.read("k", case_offset, case_length)

    def test_an_empty_object_has_no_range(self, store: Store) -> None:
        store.write_index("k", b"")
        with store.refuses(RangeError, key="k"):
            store.read("k", 0, 1)

    def test_ranges_cross_the_borders_of_blocks(self, store: Store) -> None:
        blocks = blocks_of([store.block_bytes, 1000])
        whole, border = b"".join(blocks), len(blocks[0])
        store.put("k", *blocks)
        for offset, length in [
            (border - 500, 1000),
            (border - 1, 2),
            (border, 1),
            (border - 1, 1),
            (7, border),
        ]:
            assert store.read("k", offset, length) == whole[offset : offset + length]

    def test_what_is_not_there_cannot_be_read(self, store: Store) -> None:
        store.put("k/1", b"x")
        for key in ("nothing", "k/2", "k/1x"):
            with store.refuses(ObjectNotFoundError, key=key):
                store.read(key, 0, 1)
            with store.refuses(ObjectNotFoundError, key=key):
                store.stat(key)

    def test_what_begins_other_keys_is_no_object(self, store: Store) -> None:
        store.put("a/b/c", b"x")
        for key in ("a", "a/b"):
            with store.refuses(ObjectNotFoundError, key=key):
                store.stat(key)
            with store.refuses(ObjectNotFoundError, key=key):
                store.read(key, 0, 1)

    def test_an_object_of_another_program_is_read(self, store: Store, back_door: BackDoor) -> None:
        back_door.put("theirs/1", content(SIZE), {}, BYTES)
        assert store.whole("theirs/1") == content(SIZE)
        assert store.read("theirs/1", 7, 9) == content(SIZE)[7:16]

    def test_what_another_program_replaced_is_read_anew(self, store: Store, back_door: BackDoor) -> None:
        store.put("k", b"ours and long")
        assert store.whole("k") == b"ours and long"
        back_door.put("k", b"theirs", {}, BYTES)
        assert store.whole("k") == b"theirs"
        with store.refuses(RangeError, key="k"):
            store.read("k", 0, 7)

    def test_what_was_read_stays_as_it_is(self, store: Store) -> None:
        size = 600_000  # large enough for a driver that uses its buffers again
        store.put("a", content(size, seed=1))
        store.put("b", content(size, seed=2))
        views = [store.view(key, 0, size) for key in ("a", "b", "a", "b", "a", "b")]
        store.put("a", content(size, seed=3))
        assert differing([bytes(view) for view in views], [content(size, seed) for seed in (1, 2)] * 3) == []

    def test_many_readers_do_not_disturb_each_other(self, store: Store) -> None:
        store.put("k", content(SIZE))

        def read_some(seed: int) -> None:
            for each in _ranges("k", 20, seed):
                expected = content(SIZE)[each.offset : each.end]
                assert store.read("k", each.offset, each.length) == expected

        together([partial(read_some, seed) for seed in range(self.racers)], self.deadline_s)

    def test_many_ranges_come_in_their_order(self, store: Store) -> None:
        store.requires_hook("read_ranges")
        keys = ["a", "b/1", "c"]
        for seed, key in enumerate(keys):
            store.put(key, content(SIZE, seed))
        ranges = [each for key in keys for each in _ranges(key, 34, seed=1)]
        random.Random(0).shuffle(ranges)  # noqa: S311
        expected = [content(SIZE, keys.index(each.key))[each.offset : each.end] for each in ranges]
        assert differing(store.read_ranges(ranges), expected) == []

    def test_many_ranges_may_be_few(self, store: Store) -> None:
        store.requires_hook("read_ranges")
        store.put("k", content(SIZE))
        whole = ByteRange(key="k", offset=0, length=SIZE)
        for count in (1, 2):
            assert differing(store.read_ranges([whole] * count), [content(SIZE)] * count) == []
        assert store.read_ranges([]) == []

    def test_of_many_ranges_neighbours_stay_apart(self, store: Store) -> None:
        store.requires_hook("read_ranges")
        store.put("k", content(SIZE))
        ranges = [ByteRange(key="k", offset=offset, length=100) for offset in range(0, SIZE, 100)]
        expected = [content(SIZE)[each.offset : each.end] for each in ranges]
        assert differing(store.read_ranges(ranges), expected) == []

    @pytest.mark.parametrize("case_place", [0, 5, 9])
    def test_many_ranges_are_all_or_nothing(self, store: Store, case_place: int) -> None:
        store.requires_hook("read_ranges")
        store.put("k", content(SIZE))
        ranges = [ByteRange(key="k", offset=10 * i, length=10) for i in range(9)]
        ranges.insert(case_place, ByteRange(key="k", offset=SIZE - 9, length=10))
        with store.refuses(RangeError, key="k"):
            store.read_ranges(ranges)
        ranges[case_place] = ByteRange(key="nothing", offset=0, length=10)
        with store.refuses(ObjectNotFoundError, key="nothing"):
            store.read_ranges(ranges)

    @pytest.mark.parametrize("case_size", [0, 1, SIZE])
    def test_an_object_is_read_whole_with_its_stat(self, store: Store, case_size: int) -> None:
        store.requires_hook("read_object")
        store.write_index("k", content(case_size), {"topic": "a/b", "role": "index"}, "text/plain")
        whole, stat = store.read_object("k"), store.stat("k")
        assert (whole.data, whole.stat.user_metadata) == (
            content(case_size),
            {"topic": "a/b", "role": "index"},
        )
        assert replace(whole.stat, storage_class=stat.storage_class) == stat

    def test_an_object_that_is_too_large_is_not_read_whole(self, store: Store) -> None:
        store.requires_hook("read_object")
        store.write_index("k", content(SIZE))
        assert store.read_object("k", SIZE).data == content(SIZE)
        for most_bytes in (SIZE - 1, 0):
            with store.refuses(RangeError, key="k"):
                store.read_object("k", most_bytes)

    def test_what_another_program_replaced_is_read_whole_anew(
        self, store: Store, back_door: BackDoor
    ) -> None:
        store.requires_hook("read_object")
        store.write_index("k", b"ours and long", {"by": "us"})
        assert store.read_object("k").data == b"ours and long"
        back_door.put("k", b"theirs", {}, BYTES)
        whole = store.read_object("k")
        assert (whole.data, whole.stat.size_bytes, whole.stat.user_metadata) == (b"theirs", 6, {})

    def test_what_is_not_there_cannot_be_read_whole(self, store: Store) -> None:
        store.requires_hook("read_object")
        store.put("k/1", b"x")
        for key in ("nothing", "k", "k/1x"):
            with store.refuses(ObjectNotFoundError, key=key):
                store.read_object(key)

    def test_many_read_whole_objects(self, store: Store) -> None:
        store.requires_hook("read_object")
        for seed in range(8):
            store.write_index(f"k{seed}", content(SIZE, seed), {"seed": str(seed)})

        def read_some(seed: int) -> None:
            for each in range(8):
                number = (seed + each) % 8
                whole = store.read_object(f"k{number}")
                assert (whole.data, whole.stat.user_metadata["seed"]) == (content(SIZE, number), str(number))

        together([partial(read_some, seed) for seed in range(self.racers)], self.deadline_s)
