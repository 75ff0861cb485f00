"""Metadata stores that lie, each in one way, and the cases of their suite that must find it out."""

from __future__ import annotations

import time

import pytest

from offload_hooks.errors import StoreError, VersionConflictError
from offload_hooks.testing import MemoryMetadata, MemoryMetadataStore, MetadataStoreConformance

SEQUENCES = "test_any_sequence_of_calls_matches_a_dict"

FAULTS: dict[type, tuple[str, ...]] = {}


def caught_by(*cases):
    """The store below is found out by these cases."""

    def planted(store):
        FAULTS[store] = cases
        return store

    return planted


@caught_by(
    "test_of_threads_that_create_the_same_exactly_one_wins", "test_threads_of_one_store_lose_no_increment"
)
class LooksThenWrites(MemoryMetadataStore):
    def put(self, path, value, expected_version):
        self._expect(path, expected_version)
        time.sleep(0.002)
        with self.metadata.lock:
            version = next(self.metadata.versions)
            self.metadata.records[path] = (bytes(value), version)
            return version


@caught_by("test_a_version_does_not_come_back_after_a_deletion")
class BeginsVersionsAnew(MemoryMetadataStore):
    """As ZooKeeper does."""

    def put(self, path, value, expected_version):
        with self.metadata.lock:
            self._expect(path, expected_version)
            version = 0 if expected_version is None else expected_version + 1
            self.metadata.records[path] = (bytes(value), version)
            return version


@caught_by("test_each_write_has_a_version_of_its_own", SEQUENCES)
class TakesEqualValuesForNoWrite(MemoryMetadataStore):
    def put(self, path, value, expected_version):
        found = self.get(path)
        if found is not None and found == (value, expected_version):
            return expected_version
        return super().put(path, value, expected_version)


@caught_by("test_what_must_not_exist_is_not_replaced", SEQUENCES)
class ReplacesWhatMustNotExist(MemoryMetadataStore):
    def put(self, path, value, expected_version):
        found = self.get(path)
        return super().put(path, value, expected_version or (found and found[1]))


@caught_by("test_another_version_is_neither_replaced_nor_deleted", SEQUENCES)
class DeletesAnyVersion(MemoryMetadataStore):
    def delete(self, path, expected_version):
        found = self.get(path)
        super().delete(path, expected_version if found is None else found[1])


@caught_by("test_what_is_not_there_has_no_version")
class DeletesWhatIsNotThere(MemoryMetadataStore):
    def delete(self, path, expected_version):
        if self.get(path) is not None:
            super().delete(path, expected_version)


@caught_by("test_a_value_may_have_others_below_it_in_any_order", SEQUENCES)
class DeletesWhatIsBelow(MemoryMetadataStore):
    def delete(self, path, expected_version):
        super().delete(path, expected_version)
        for below in [known for known in self.metadata.records if known.startswith(f"{path}/")]:
            del self.metadata.records[below]


@caught_by("test_where_nothing_was_written_there_is_nothing", SEQUENCES)
class HasValuesOfParents(MemoryMetadataStore):
    def get(self, path):
        found = super().get(path)
        return (b"", 0) if found is None and self.children(path) else found


@caught_by("test_a_value_is_read_as_it_was_written[b'']", SEQUENCES)
class TakesEmptyForNothing(MemoryMetadataStore):
    def get(self, path):
        found = super().get(path)
        return None if found is not None and not found[0] else found


@caught_by("test_children_are_the_names_directly_below", SEQUENCES)
class ListsBeginningsOfNames(MemoryMetadataStore):
    def children(self, path):
        below = [known.removeprefix(path) for known in self.metadata.records if known.startswith(path)]
        return list(dict.fromkeys(rest.strip("/").partition("/")[0] for rest in below if rest.strip("/")))


@caught_by("test_many_names_are_all_there")
class ListsOnePage(MemoryMetadataStore):
    def children(self, path):
        return super().children(path)[:100]


@caught_by("test_what_was_written_is_there_for_everybody", SEQUENCES)
class RemembersWhatItRead(MemoryMetadataStore):
    def __init__(self, metadata):
        super().__init__(metadata)
        self.seen = {}

    def get(self, path):
        return self.seen.setdefault(path, super().get(path))

    def put(self, path, value, expected_version):
        self.seen.pop(path, None)
        return super().put(path, value, expected_version)


@caught_by("test_other_paths_are_refused['/a/../b']")
class TakesAnyPath(MemoryMetadataStore):
    def put(self, *_):
        return next(self.metadata.versions)


@caught_by("test_what_must_not_exist_is_not_replaced")
class SaysAnotherError(MemoryMetadataStore):
    def put(self, path, value, expected_version):
        try:
            return super().put(path, value, expected_version)
        except VersionConflictError as error:
            raise StoreError(error.what, key=error.key) from None


@caught_by("test_what_must_not_exist_is_not_replaced")
class NamesNoPath(MemoryMetadataStore):
    def put(self, path, value, expected_version):
        try:
            return super().put(path, value, expected_version)
        except VersionConflictError as error:
            raise VersionConflictError(error.what) from None


def _suite(kind):
    class Suite(MetadataStoreConformance):
        one_process = True
        shrink = False

        @pytest.fixture
        def make_store(self):
            metadata = MemoryMetadata()
            return lambda: kind(metadata)

    return Suite


for _store in FAULTS:
    globals()[f"Test{_store.__name__}"] = _suite(_store)
