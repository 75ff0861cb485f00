# ruff: noqa: D102 (the names of the cases state the promises)
"""Deleting: gone for everybody, with all that belongs to it, and as often as one likes."""

from __future__ import annotations

from functools import partial

from offload_hooks.errors import ObjectNotFoundError
from offload_hooks.testing.back_door import BackDoor
from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.content import content
from offload_hooks.testing.store import BYTES, Store
from offload_hooks.testing.threads import together


class DeletingCases(SuiteBase):
    """`delete`."""

    def test_a_deleted_object_is_gone(self, store: Store, back_door: BackDoor) -> None:
        store.put("a/1", b"x")
        store.put("a/2", b"x")
        assert store.delete("a/1") == 1
        assert store.keys() == ["a/2"]
        assert back_door.get("a/1") is None
        with store.refuses(ObjectNotFoundError, key="a/1"):
            store.stat("a/1")
        with store.refuses(ObjectNotFoundError, key="a/1"):
            store.read("a/1", 0, 1)
        assert store.whole("a/2") == b"x"

    def test_it_is_gone_for_other_instances(self, store: Store, other: Store) -> None:
        store.put("k", b"x")
        assert other.whole("k") == b"x"
        store.delete("k")
        assert not other.exists("k")

    def test_many_are_deleted_at_once(self, store: Store, back_door: BackDoor) -> None:
        keys = [f"k/{i}" for i in range(25)]
        for key in [*keys, "kept"]:
            store.write_index(key, b"x", {"role": "index"})
        assert store.delete(*keys) == 25
        assert store.keys() == ["kept"]
        assert [key for key in keys if back_door.get(key) is not None] == []

    def test_deleting_is_idempotent(self, store: Store) -> None:
        store.put("k", b"x")
        assert [store.delete("k"), store.delete("k")] == [1, 1]

    def test_what_was_not_there_counts_as_gone(self, store: Store) -> None:
        store.put("a/b", b"x")
        assert store.delete("nothing", "a/b", "a/b/c", "a/x", "a/b") == 5
        assert store.keys() == []

    def test_deleting_nothing_deletes_nothing(self, store: Store) -> None:
        store.put("k", b"x")
        assert store.delete() == 0
        assert store.keys() == ["k"]

    def test_deleting_what_begins_other_keys_leaves_these(self, store: Store) -> None:
        store.put("a/b/c", b"x")
        assert store.delete("a", "a/b") == 2
        assert store.keys() == ["a/b/c"]

    def test_a_deleted_object_leaves_nothing_in_the_store(self, store: Store, back_door: BackDoor) -> None:
        store.put("warm", b"up")
        before = back_door.keys()
        store.put("k", content(store.block_bytes), content(17), user_metadata={"role": "data"})
        store.write_index("k-index", b"x", {"role": "index"})
        store.delete("k", "k-index")
        assert back_door.keys() == before

    def test_an_object_of_another_program_is_deleted(self, store: Store, back_door: BackDoor) -> None:
        before = back_door.keys()
        back_door.put("theirs", b"x", {"role": "data"}, BYTES)
        assert store.delete("theirs") == 1
        assert back_door.get("theirs") is None
        assert not {key for key in back_door.keys() - before if key.startswith("theirs")}

    def test_an_upload_of_the_key_outlives_the_object(self, store: Store) -> None:
        store.requires_not("exclusive_uploads")
        store.write_index("k", b"old")
        upload = store.begin("k")
        receipts = store.write_all(upload, [b"new"])
        store.delete("k")
        store.commit(upload, receipts)
        assert store.whole("k") == b"new"

    def test_many_may_delete_the_same(self, store: Store) -> None:
        keys = [f"k/{i}" for i in range(10)]
        for key in keys:
            store.write_index(key, b"x")
        deletes = [partial(store.delete, *keys)] * self.racers
        assert together(deletes, self.deadline_s) == [10] * self.racers
        assert store.keys() == []
