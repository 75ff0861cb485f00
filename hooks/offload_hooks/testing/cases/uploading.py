# ruff: noqa: D102 (the names of the cases state the promises)
"""Data objects: begun, written block by block, committed."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial

import pytest

from offload_hooks import ReadableBuffer
from offload_hooks.errors import UploadError
from offload_hooks.testing.back_door import BackDoor
from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.content import blocks_of, content
from offload_hooks.testing.store import Store
from offload_hooks.testing.threads import together

_KINDS: dict[str, Callable[[bytes], ReadableBuffer]] = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": lambda data: memoryview(bytearray(data)),
    "read-only memoryview": memoryview,
    "memoryview of a part": lambda data: memoryview(b"before" + data + b"after")[6:-5],
}
_every_kind = pytest.mark.parametrize("case_kind", _KINDS.values(), ids=_KINDS)


class UploadingCases(SuiteBase):
    """`begin_data`, `write_block`, `commit_data`."""

    def test_blocks_become_one_object(self, store: Store, back_door: BackDoor) -> None:
        blocks = blocks_of([store.block_bytes, store.block_bytes, 17])
        stat = store.put("tenant/ledger-1", *blocks)
        assert (stat.key, stat.size_bytes) == ("tenant/ledger-1", len(b"".join(blocks)))
        assert store.whole("tenant/ledger-1") == b"".join(blocks)
        assert back_door.get("tenant/ledger-1") == b"".join(blocks)

    def test_an_object_may_have_one_small_block(self, store: Store, back_door: BackDoor) -> None:
        store.put("k", b"x")
        assert store.whole("k") == back_door.get("k") == b"x"

    def test_a_large_block_arrives_whole(self, store: Store, back_door: BackDoor) -> None:
        limits = store.capabilities
        data = content(min(max(limits.min_block_bytes, 1 << 20) + 4321, limits.max_block_bytes))
        store.put("k", data)
        assert back_door.get("k") == data

    def test_the_receipt_repeats_part_offset_and_length(self, store: Store) -> None:
        first, last = blocks_of([store.block_bytes, 17])
        receipts = store.write_all(store.begin("k"), [first, last])
        assert [(r.part_number, r.offset, r.length) for r in receipts] == [
            (1, 0, len(first)),
            (2, len(first), 17),
        ]

    def test_blocks_may_come_in_any_order(self, store: Store, back_door: BackDoor) -> None:
        store.requires_not("ordered_parts")
        size = store.block_bytes
        blocks = blocks_of([size, size, 17])
        upload = store.begin("k")
        receipts = [store.write(upload, i + 1, i * size, blocks[i]) for i in (2, 0, 1)]
        store.commit(upload, sorted(receipts, key=lambda receipt: receipt.part_number))
        assert back_door.get("k") == b"".join(blocks)

    def test_blocks_may_come_all_at_once(self, store: Store, back_door: BackDoor) -> None:
        store.requires_not("ordered_parts")
        size = store.block_bytes
        blocks = blocks_of([size, size, size, 17])
        upload = store.begin("k")
        writes = [partial(store.write, upload, i + 1, i * size, block) for i, block in enumerate(blocks)]
        store.commit(upload, together(writes, self.deadline_s))
        assert back_door.get("k") == b"".join(blocks)

    def test_the_parts_in_the_store_are_exactly_the_blocks(self, store: Store, back_door: BackDoor) -> None:
        part_sizes = getattr(back_door, "part_sizes", None)
        if part_sizes is None:
            pytest.skip("the back door has no part_sizes")
        size = store.block_bytes
        lengths = [min(size + 13, store.capabilities.max_block_bytes), size, 17]
        store.put("k", *blocks_of(lengths))
        found = part_sizes("k")
        if found is None:
            pytest.skip("the back door cannot tell the sizes of parts")
        assert found == lengths

    def test_of_a_block_written_twice_the_last_counts(self, store: Store, back_door: BackDoor) -> None:
        first, wrong, right = content(store.block_bytes), content(17, seed=1), content(17, seed=2)
        upload = store.begin("k")
        receipt = store.write(upload, 1, 0, first)
        store.write(upload, 2, len(first), wrong)
        store.commit(upload, [receipt, store.write(upload, 2, len(first), right)])
        assert back_door.get("k") == first + right

    def test_nothing_is_visible_before_the_commit(self, store: Store, back_door: BackDoor) -> None:
        store.write_index("z", b"z")
        upload = store.begin("k/1")
        receipts = store.write_all(upload, [content(17)])
        assert not store.exists("k/1")
        assert store.keys() == ["z"]
        assert back_door.get("k/1") is None
        assert "k/1" not in back_door.keys()  # noqa: SIM118
        store.commit(upload, receipts)
        assert store.keys() == ["k/1", "z"]
        assert "k/1" in back_door.keys()  # noqa: SIM118

    def test_other_instances_see_nothing_before_the_commit_and_all_after(
        self, store: Store, other: Store
    ) -> None:
        upload = store.begin("k", {"role": "data"})
        receipts = store.write_all(upload, [content(17)])
        assert not other.exists("k")
        assert store.commit(upload, receipts).size_bytes == other.stat("k").size_bytes == 17
        assert other.whole("k") == content(17)

    def test_an_object_stays_as_it_was_until_the_commit_that_replaces_it(self, store: Store) -> None:
        store.put("k", b"old")
        upload = store.begin("k")
        receipts = store.write_all(upload, [b"the new one"])
        assert store.whole("k") == b"old"
        store.commit(upload, receipts)
        assert store.whole("k") == b"the new one"

    def test_another_instance_can_go_on_with_an_upload(
        self, store: Store, other: Store, back_door: BackDoor
    ) -> None:
        first, last = blocks_of([store.block_bytes, 17])
        upload = store.begin("k", {"role": "data"})
        receipt = store.write(upload, 1, 0, first)
        upload, receipt = pickle.loads(pickle.dumps((upload, receipt)))  # noqa: S301
        stat = other.commit(upload, [receipt, other.write(upload, 2, len(first), last)])
        assert back_door.get("k") == first + last
        assert stat.user_metadata == store.stat("k").user_metadata == {"role": "data"}

    @_every_kind
    def test_a_block_may_be(
        self, store: Store, back_door: BackDoor, case_kind: Callable[[bytes], ReadableBuffer]
    ) -> None:
        upload = store.begin("k")
        receipt = store.write(upload, 1, 0, case_kind(content(1000)))
        assert receipt.length == 1000
        store.commit(upload, [receipt])
        assert back_door.get("k") == content(1000)

    @_every_kind
    def test_an_index_may_be(
        self, store: Store, back_door: BackDoor, case_kind: Callable[[bytes], ReadableBuffer]
    ) -> None:
        assert store.write_index("k", case_kind(content(1000))).size_bytes == 1000
        assert back_door.get("k") == content(1000)

    def test_the_callers_buffer_is_not_kept(self, store: Store, back_door: BackDoor) -> None:
        buffer = bytearray(content(1000))
        upload = store.begin("data")
        receipt = store.write(upload, 1, 0, buffer)
        store.write_index("index", buffer)
        buffer[:] = bytes(1000)  # a caller that uses it again
        store.commit(upload, [receipt])
        assert back_door.get("data") == content(1000)
        assert back_door.get("index") == content(1000)

    def test_more_blocks_than_the_store_takes_are_refused(self, store: Store) -> None:
        limit = store.capabilities.max_blocks
        if limit == 2**31 - 1:
            pytest.skip("the driver declares no limit max_blocks")
        upload = store.begin("k")
        with store.refuses(UploadError, key="k"):
            store.write(upload, limit + 1, store.block_bytes * limit, b"x")

    def test_a_block_that_is_larger_than_the_store_takes_is_refused(self, store: Store) -> None:
        limit = store.capabilities.max_block_bytes
        if limit > 8 << 20:
            pytest.skip("blocks of max_block_bytes are too large to try")
        upload = store.begin("k")
        with store.refuses(UploadError, key="k"):
            store.write(upload, 1, 0, bytes(limit + 1))

    def test_blocks_that_are_too_small_are_refused_at_the_commit(self, store: Store) -> None:
        least = store.capabilities.min_block_bytes
        if least == 1:
            pytest.skip("the driver declares no limit min_block_bytes")
        upload = store.begin("k")
        receipts = store.write_all(upload, [content(least - 1), b"x"])
        with store.refuses(UploadError, key="k"):
            store.commit(upload, receipts)
        assert not store.exists("k")
