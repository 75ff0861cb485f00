# ruff: noqa: D102 (the names of the cases state the promises)
"""The end of an upload: a commit that is right or refused, or an abort."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from offload_hooks import BlockReceipt, ObjectStat, Upload
from offload_hooks.errors import UploadError
from offload_hooks.testing.back_door import BackDoor
from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.content import blocks_of, content
from offload_hooks.testing.store import Store

_NO_OBJECT: dict[str, list[tuple[int, int]]] = {
    "none": [],
    "out of order": [(2, 0), (1, 0)],
    "one twice": [(1, 0), (1, 0)],
    "without the first": [(2, 0)],
    "with a hole": [(1, 0), (2, 1)],
    "overlapping": [(1, 0), (2, -1)],
}
"""Parts of an object of two, and by how many bytes their offsets are moved."""


def _alike(one: ObjectStat, two: ObjectStat) -> bool:
    """True if two stats are of the same object; some stores round its time to seconds, or omit its class or version."""
    near = abs(one.modified_at - two.modified_at) <= timedelta(seconds=2)
    storage_class = one.storage_class or two.storage_class
    version = one.version or two.version
    alike = replace(one, modified_at=two.modified_at, storage_class=storage_class, version=version)
    return near and alike == two


class CommittingCases(SuiteBase):
    """`commit_data` and `abort_data`."""

    def test_a_commit_answers_what_stat_would(self, store: Store) -> None:
        answer = store.put("k", content(17), user_metadata={"Role": "data"}, content_type="text/plain")
        assert _alike(answer, store.stat("k"))

    def test_write_index_answers_what_stat_would(self, store: Store) -> None:
        answer = store.write_index("k", content(17), {"Role": "index"}, "text/plain")
        assert _alike(answer, store.stat("k"))

    @pytest.mark.parametrize("case_parts", _NO_OBJECT.values(), ids=_NO_OBJECT)
    def test_a_commit_is_refused_with_receipts(self, store: Store, case_parts: list[tuple[int, int]]) -> None:
        upload = store.begin("k")
        receipts = store.write_all(upload, [b"one", b"two"])
        wrong = [
            replace(receipts[part - 1], offset=receipts[part - 1].offset + moved)
            for part, moved in case_parts
        ]
        with store.refuses(UploadError, key="k"):
            store.commit(upload, wrong)
        assert not store.exists("k")

    def test_blocks_that_are_large_enough_are_refused_with_a_hole_or_overlap(self, store: Store) -> None:
        first, last = blocks_of([store.block_bytes, 17])
        upload = store.begin("k")
        one = store.write(upload, 1, 0, first)
        for place in (-1, 1):
            two = replace(one, part_number=2, offset=len(first) + place, length=len(last))
            with store.refuses(UploadError, key="k"):
                store.commit(upload, [one, two])
        assert not store.exists("k")

    def test_receipts_that_are_not_in_the_order_of_their_parts_are_refused(self, store: Store) -> None:
        store.requires_not("ordered_parts")
        first, last = blocks_of([store.block_bytes, 17])
        upload = store.begin("k")
        receipts = [store.write(upload, 2, 0, first), store.write(upload, 1, len(first), last)]
        with store.refuses(UploadError, key="k"):
            store.commit(upload, receipts)
        assert not store.exists("k")

    def test_receipts_of_parts_whose_numbers_have_a_gap_are_refused(self, store: Store) -> None:
        store.requires_not("ordered_parts")
        first, last = blocks_of([store.block_bytes, 17])
        upload = store.begin("k")
        receipts = [store.write(upload, 1, 0, first), store.write(upload, 3, len(first), last)]
        with store.refuses(UploadError, key="k"):
            store.commit(upload, receipts)
        assert not store.exists("k")

    def test_receipts_of_another_upload_are_refused(self, store: Store) -> None:
        one, two = store.begin("k"), store.begin("k")
        receipts = store.write_all(one, [content(17)])
        with store.refuses(UploadError, key="k"):
            store.commit(two, receipts)
        assert not store.exists("k")

    def test_an_upload_cannot_be_committed_twice(self, store: Store) -> None:
        upload = store.begin("k")
        receipts = store.write_all(upload, [b"first"])
        store.commit(upload, receipts)
        store.put("k", b"second")
        with store.refuses(UploadError, key="k"):
            store.commit(upload, receipts)
        assert store.whole("k") == b"second"

    def test_an_aborted_upload_cannot_be_committed(self, store: Store, back_door: BackDoor) -> None:
        upload = store.begin("k")
        receipts = store.write_all(upload, [content(17)])
        assert store.abort(upload) is True
        with store.refuses(UploadError, key="k"):
            store.commit(upload, receipts)
        assert not store.exists("k")
        assert back_door.get("k") is None

    def test_an_upload_that_never_was_cannot_be_committed(self, store: Store) -> None:
        upload = Upload(key="k", upload_id="no-such-upload")
        with store.refuses(UploadError, key="k"):
            store.commit(upload, [BlockReceipt(part_number=1, offset=0, length=1, tag="none")])
        assert not store.exists("k")

    def test_a_block_of_an_upload_that_is_gone_is_refused_or_lost(self, store: Store) -> None:
        upload = store.begin("k")
        receipts = store.write_all(upload, [b"old"])
        store.abort(upload)
        try:
            receipts = store.write_all(upload, [b"new"])
        except UploadError:
            return
        with store.refuses(UploadError, key="k"):
            store.commit(upload, receipts)
        assert not store.exists("k")

    def test_an_upload_belongs_to_its_key(self, store: Store) -> None:
        upload = store.begin("a")
        receipts = store.write_all(upload, [content(17)])
        with store.refuses(UploadError, key="b"):
            store.commit(replace(upload, key="b"), receipts)
        assert not store.exists("b")

    def test_an_abort_says_whether_there_was_something_to_drop(self, store: Store) -> None:
        upload = store.begin("k")
        store.write(upload, 1, 0, content(17))
        assert [store.abort(upload) for _ in range(3)] == [True, False, False]
        assert store.abort(Upload(key="k", upload_id="no-such-upload")) is False

    def test_an_abort_after_the_commit_leaves_the_object(self, store: Store) -> None:
        upload = store.begin("k", {"role": "data"})
        store.commit(upload, store.write_all(upload, [content(17)]))
        assert store.abort(upload) is False
        assert store.whole("k") == content(17)
        assert store.stat("k").user_metadata == {"role": "data"}

    def test_an_abort_leaves_other_uploads_of_the_key_alone(self, store: Store) -> None:
        one, two = store.begin("k"), store.begin("k")
        store.write(one, 1, 0, b"one")
        receipts = store.write_all(two, [b"two"])
        assert store.abort(one) is True
        store.commit(two, receipts)
        assert store.whole("k") == b"two"

    def test_another_instance_can_abort_an_upload(self, store: Store, other: Store) -> None:
        store.requires("stale_uploads")
        upload = store.begin("k")
        receipts = store.write_all(upload, [content(17)])
        assert [other.abort(upload), store.abort(upload)] == [True, False]
        with store.refuses(UploadError, key="k"):
            store.commit(upload, receipts)

    def test_an_aborted_upload_leaves_nothing_in_the_store(self, store: Store, back_door: BackDoor) -> None:
        store.put("warm", b"up")
        before = back_door.keys()
        upload = store.begin("k", {"role": "data"})
        store.write_all(upload, [content(17)])
        store.abort(upload)
        assert back_door.keys() == before

    def test_a_data_object_replaces_the_one_that_was_there(self, store: Store, back_door: BackDoor) -> None:
        store.put("k", b"old, and longer than the new one")
        store.put("k", b"new")
        assert store.whole("k") == back_door.get("k") == b"new"
        assert store.stat("k").size_bytes == 3

    def test_an_index_replaces_the_one_that_was_there(self, store: Store, back_door: BackDoor) -> None:
        store.write_index("k", b"old, and longer than the new one")
        store.write_index("k", b"new")
        assert store.whole("k") == back_door.get("k") == b"new"

    def test_of_two_uploads_of_a_key_the_last_commit_wins(self, store: Store) -> None:
        store.requires_not("exclusive_uploads")
        one, two = store.begin("k", {"who": "one"}), store.begin("k", {"who": "two"})
        ones, twos = store.write_all(one, [b"one"]), store.write_all(two, [b"two"])
        store.commit(two, twos)
        store.commit(one, ones)
        assert store.whole("k") == b"one"
        assert store.stat("k").user_metadata == {"who": "one"}

    def test_a_commit_ends_the_other_uploads_of_the_key(self, store: Store) -> None:
        store.requires("exclusive_uploads")
        one, two = store.begin("k", {"who": "one"}), store.begin("k", {"who": "two"})
        ones, twos = store.write_all(one, [b"one"]), store.write_all(two, [b"two"])
        store.commit(two, twos)
        with store.refuses(UploadError, key="k"):
            store.commit(one, ones)
        assert store.whole("k") == b"two"
        assert store.stat("k").user_metadata == {"who": "two"}
