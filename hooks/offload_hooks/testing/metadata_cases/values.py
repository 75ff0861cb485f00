# ruff: noqa: D102 (the names of the cases state the promises)
"""Values, their versions, and compare-and-set."""

from __future__ import annotations

import pytest

from offload_hooks.metadata_stores import WritableMetadataStore
from offload_hooks.testing.content import content
from offload_hooks.testing.metadata_cases.base import MetadataSuiteBase

PATH = "/managed-ledgers/acme/cold/persistent/orders"


class ValueCases(MetadataSuiteBase):
    """One path at a time."""

    def test_where_nothing_was_written_there_is_nothing(self, store: WritableMetadataStore) -> None:
        assert store.get(PATH) is None
        store.put(PATH, b"x", None)
        for path in ("/managed-ledgers", PATH[:-1], f"{PATH}s", f"{PATH}/below"):
            assert store.get(path) is None

    @pytest.mark.parametrize("case_value", [b"", b"\x00", bytes(range(256)), b"Gx\x00"], ids=repr)
    def test_a_value_is_read_as_it_was_written(self, store: WritableMetadataStore, case_value: bytes) -> None:
        version = store.put(PATH, case_value, None)
        assert store.get(PATH) == (case_value, version)
        version = store.put(PATH, case_value * 2, version)
        assert store.get(PATH) == (case_value * 2, version)

    def test_a_large_value_is_read_as_it_was_written(self, store: WritableMetadataStore) -> None:
        value = content(self.large_bytes)
        version = store.put(PATH, value, None)
        assert store.get(PATH) == (value, version)

    def test_what_was_written_is_there_for_everybody(
        self, store: WritableMetadataStore, other: WritableMetadataStore
    ) -> None:
        assert other.get(PATH) is None
        for value in (b"one", b"two"):
            known = store.get(PATH)
            written = store.put(PATH, value, None if known is None else known[1])
            assert other.get(PATH) == (value, written)
        found = other.get(PATH)
        assert found is not None
        other.delete(PATH, found[1])
        assert store.get(PATH) is None

    def test_what_must_not_exist_is_not_replaced(self, store: WritableMetadataStore) -> None:
        version = store.put(PATH, b"first", None)
        for value in (b"second", b"first"):
            with self.conflicts(PATH):
                store.put(PATH, value, None)
        assert store.get(PATH) == (b"first", version)

    def test_what_is_not_there_has_no_version(self, store: WritableMetadataStore) -> None:
        for version in (0, 1, -1):
            with self.conflicts(PATH):
                store.put(PATH, b"x", version)
            with self.conflicts(PATH):
                store.delete(PATH, version)
        assert store.get(PATH) is None
        assert list(store.children("/managed-ledgers")) == []

    def test_another_version_is_neither_replaced_nor_deleted(self, store: WritableMetadataStore) -> None:
        first = store.put(PATH, b"one", None)
        second = store.put(PATH, b"two", first)
        for version in (first, second + 1, -1):
            with self.conflicts(PATH):
                store.put(PATH, b"three", version)
            with self.conflicts(PATH):
                store.delete(PATH, version)
        assert store.get(PATH) == (b"two", second)

    def test_each_write_has_a_version_of_its_own(self, store: WritableMetadataStore) -> None:
        versions = [store.put(PATH, b"same", None)]
        for _ in range(4):
            versions.append(store.put(PATH, b"same", versions[-1]))
        assert len(set(versions)) == 5

    def test_a_version_does_not_come_back_after_a_deletion(self, store: WritableMetadataStore) -> None:
        seen = set()
        for _ in range(3):
            version = store.put(PATH, b"one", None)
            seen |= {version, store.put(PATH, b"two", version)}
            found = store.get(PATH)
            assert found is not None
            store.delete(PATH, found[1])
        assert len(seen) == 6
        now = store.put(PATH, b"new", None)
        for version in seen:
            with self.conflicts(PATH):
                store.put(PATH, b"stale", version)
            with self.conflicts(PATH):
                store.delete(PATH, version)
        assert store.get(PATH) == (b"new", now)

    def test_a_deleted_value_is_gone_and_can_be_written_again(self, store: WritableMetadataStore) -> None:
        store.delete(PATH, store.put(PATH, b"one", None))
        assert store.get(PATH) is None
        assert list(store.children("/managed-ledgers/acme/cold/persistent")) == []
        version = store.put(PATH, b"two", None)
        assert store.get(PATH) == (b"two", version)

    def test_other_paths_are_left_alone(self, store: WritableMetadataStore) -> None:
        others = {f"{PATH}-{i}": store.put(f"{PATH}-{i}", b"%d" % i, None) for i in range(3)}
        version = store.put(PATH, b"x", None)
        store.delete(PATH, store.put(PATH, b"y", version))
        assert [store.get(path) for path in others] == [
            (b"%d" % i, version) for i, version in enumerate(others.values())
        ]

    def test_it_may_be_closed_twice(self, store: WritableMetadataStore) -> None:
        store.put(PATH, b"x", None)
        store.close()
        store.close()

    def test_what_was_written_outlives_the_store(
        self, store: WritableMetadataStore, other: WritableMetadataStore
    ) -> None:
        version = store.put(PATH, b"x", None)
        store.close()
        assert other.get(PATH) == (b"x", version)
        assert other.put(PATH, b"y", version) != version
