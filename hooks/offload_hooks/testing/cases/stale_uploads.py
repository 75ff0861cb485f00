# ruff: noqa: D102 (the names of the cases state the promises)
"""Uploads that were begun and abandoned: every process finds them until they have ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.content import content
from offload_hooks.testing.store import Store


class StaleUploadCases(SuiteBase):
    """Promises of a driver that declares `stale_uploads`."""

    def test_an_upload_is_listed_with_its_time(self, store: Store) -> None:
        store.requires("stale_uploads")
        upload = store.begin("k/1", {"role": "data"})
        (found,) = store.uploads()
        assert found.upload == upload
        assert found.started_at.utcoffset() == timedelta(0), "an aware time in UTC"
        assert abs(found.started_at - datetime.now(UTC)) < timedelta(seconds=self.clock_skew_s)

    def test_an_upload_of_another_instance_is_listed_and_dropped(self, store: Store, other: Store) -> None:
        store.requires("stale_uploads")
        upload = store.begin("k/1")
        store.write(upload, 1, 0, content(17))
        (found,) = other.uploads("k/")
        assert found.upload == upload
        assert other.abort(found.upload) is True
        assert store.uploads() == other.uploads() == []

    def test_an_upload_that_ended_is_not_listed(self, store: Store) -> None:
        store.requires("stale_uploads")
        committed, aborted, kept = store.begin("k/1"), store.begin("k/2"), store.begin("k/3")
        store.commit(committed, store.write_all(committed, [b"x"]))
        store.abort(aborted)
        store.write_index("k/4", b"x")
        assert [found.upload for found in store.uploads()] == [kept]

    def test_all_uploads_of_a_key_are_listed(self, store: Store) -> None:
        store.requires("stale_uploads")
        begun = {store.begin("k") for _ in range(3)}
        assert len(begun) == 3
        assert {found.upload for found in store.uploads()} == begun

    def test_uploads_are_listed_by_prefix(self, store: Store) -> None:
        store.requires("stale_uploads")
        keys = ["a/1", "a/2", "a-1", "b/a/1"]
        for key in keys:
            store.begin(key)
        for prefix in ("", "a", "a/", "a/1", "b/", "c"):
            found = sorted(each.upload.key for each in store.uploads(prefix))
            assert found == sorted(key for key in keys if key.startswith(prefix))
