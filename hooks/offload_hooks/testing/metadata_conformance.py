# ruff: noqa: D102 (the names of the cases state the promises)
"""The conformance suite of metadata stores: what `WritableMetadataStore` promises, as tests that an author subclasses.

    class TestMyStore(MetadataStoreConformance):
        @pytest.fixture
        def make_store(self, folder):
            return lambda: MyStore(f"my:{folder}")

See docs/metadata-stores.md.
"""

from __future__ import annotations

import pytest

from offload_hooks.errors import InvalidKeyError
from offload_hooks.metadata_stores import WritableMetadataStore
from offload_hooks.testing.metadata_cases.base import MakeStore, MetadataSuiteBase
from offload_hooks.testing.metadata_cases.concurrency import ConcurrencyCases
from offload_hooks.testing.metadata_cases.values import ValueCases
from offload_hooks.testing.metadata_machine import metadata_state_machine
from offload_hooks.testing.sequences import run_sequences


class MetadataSequenceCases(MetadataSuiteBase):
    """The state machine; the same sequences in every run."""

    def test_any_sequence_of_calls_matches_a_dict(self, open_store: MakeStore) -> None:
        run_sequences(metadata_state_machine([open_store(), open_store()]), self)


BAD_PATHS = ["", "a", "/", "//a", "/a/", "/a//b", "/a/../b", "/a/.", "/a\x00b", "/a\n", "/a\ud800", "/\ufffd"]
UNUSUAL_PATHS = ["/a b/c%2Fd", "/-=:._~%", "/ä/日本", "/_/%/*?[a]", "/...", "/'\"\\;--", "/A", "/a"]


class PathCases(MetadataSuiteBase):
    """Many paths."""

    def test_children_are_the_names_directly_below(self, store: WritableMetadataStore) -> None:
        for path in ("/a/b", "/a/b/c", "/a/b/d/e", "/a/b-c", "/a/f/g", "/ab", "/a0"):
            store.put(path, b"x", None)
        assert sorted(store.children("/a")) == ["b", "b-c", "f"]
        assert sorted(store.children("/a/b")) == ["c", "d"]
        assert sorted(store.children("/a/f")) == ["g"]
        for path in ("/a/b/c", "/none", "/a/b/d/e/f"):
            assert list(store.children(path)) == []

    def test_a_value_may_have_others_below_it_in_any_order(self, store: WritableMetadataStore) -> None:
        below = store.put("/a/b/c", b"below", None)
        assert store.get("/a/b") is None
        above = store.put("/a/b", b"above", None)
        assert store.get("/a/b") == (b"above", above)
        store.delete("/a/b", above)
        assert store.get("/a/b") is None
        assert store.get("/a/b/c") == (b"below", below)
        again = store.put("/a/b", b"again", None)
        store.delete("/a/b/c", below)
        assert store.get("/a/b") == (b"again", again)
        assert list(store.children("/a/b")) == []
        assert list(store.children("/a")) == ["b"]

    def test_names_that_led_to_deleted_values_only_are_gone(self, store: WritableMetadataStore) -> None:
        versions = {path: store.put(path, b"x", None) for path in ("/a/b/c/d", "/a/b/e", "/f/g")}
        store.delete("/a/b/c/d", versions["/a/b/c/d"])
        assert list(store.children("/a/b")) == ["e"]
        store.delete("/a/b/e", versions["/a/b/e"])
        assert list(store.children("/a")) == []
        assert store.get("/f/g") == (b"x", versions["/f/g"])
        store.put("/a/b/c/d", b"y", None)
        assert list(store.children("/a/b/c")) == ["d"]

    def test_many_names_are_all_there(self, store: WritableMetadataStore) -> None:
        names = [f"topic-{i}" for i in range(self.many_children)]
        for name in names:
            store.put(f"/t/{name}", b"", None)
        found = list(store.children("/t"))
        assert sorted(found) == sorted(names)

    def test_unusual_paths_are_as_good_as_others(self, store: WritableMetadataStore) -> None:
        written = {path: store.put(path, path.encode(), None) for path in UNUSUAL_PATHS}
        assert {path: store.get(path) for path in UNUSUAL_PATHS} == {
            path: (path.encode(), version) for path, version in written.items()
        }
        assert list(store.children("/a b")) == ["c%2Fd"]
        assert list(store.children("/ä")) == ["日本"]
        for path, version in written.items():
            store.delete(path, version)
        assert [store.get(path) for path in UNUSUAL_PATHS] == [None] * len(UNUSUAL_PATHS)

    @pytest.mark.parametrize("case_path", BAD_PATHS, ids=ascii)
    def test_other_paths_are_refused(self, store: WritableMetadataStore, case_path: str) -> None:
        with self.refuses(InvalidKeyError):
            store.put(case_path, b"x", None)
        with self.refuses(InvalidKeyError):
            store.delete(case_path, 1)


class MetadataStoreConformance(MetadataSequenceCases, ConcurrencyCases, PathCases, ValueCases):
    """Subclass it, with a name that begins with `Test`, and write the fixture `make_store`.

    The attributes of `MetadataSuiteBase` may be set: `secrets`, `one_process`, `large_bytes`, `many_children`,
    `racers`, `rounds`, `max_examples`, `steps`, `shrink`, `deadline_s`.
    """
