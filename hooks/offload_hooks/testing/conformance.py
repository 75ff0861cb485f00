# ruff: noqa: D102 (the names of the cases state the promises)
"""The conformance suite: all that a driver promises by the hooks, as tests that its author subclasses.

    class TestMyDriver(DriverConformance):
        @pytest.fixture
        def make_driver(self, bucket):
            return lambda: MyDriver(bucket=bucket)

        @pytest.fixture
        def back_door(self, bucket):
            return MyBackDoor(bucket)

The cases call through pluggy, as the program does. A capability that the driver declares is judged; one that it does
not declare is skipped by name. See docs/conformance.md.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from urllib.parse import urlsplit

import pytest

from offload_hooks import HOOK_SPEC_VERSION, ByteRange
from offload_hooks.errors import InvalidKeyError
from offload_hooks.testing.back_door import BackDoor
from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.cases.committing import CommittingCases
from offload_hooks.testing.cases.create_only import CreateOnlyCases
from offload_hooks.testing.cases.deleting import DeletingCases
from offload_hooks.testing.cases.listing import ListingCases
from offload_hooks.testing.cases.metadata import MetadataCases
from offload_hooks.testing.cases.reading import ReadingCases
from offload_hooks.testing.cases.uploading import UploadingCases
from offload_hooks.testing.content import content
from offload_hooks.testing.forks import CAN_FORK, in_forked_child
from offload_hooks.testing.sequences import run_sequences
from offload_hooks.testing.state_machine import driver_state_machine
from offload_hooks.testing.store import Store
from offload_hooks.testing.threads import together


class SequenceCases(SuiteBase):
    """The state machine; the same sequences in every run."""

    def test_any_sequence_of_calls_matches_a_dict(
        self, make_driver: Callable[[], object], back_door: BackDoor
    ) -> None:
        run_sequences(driver_state_machine(make_driver, back_door), self)


def _all_verbs(store: Store, name: str) -> None:
    """Write, list, read and delete objects that only `name` knows."""
    data = content(1000, seed=len(name))
    store.put(f"{name}/data", data, user_metadata={"who": name})
    store.write_index(f"{name}/index", data[:10], {"who": name})
    assert store.keys(f"{name}/") == [f"{name}/data", f"{name}/index"]
    assert store.read(f"{name}/data", 100, 200) == data[100:300]
    assert store.stat(f"{name}/index").user_metadata == {"who": name}
    assert store.abort(store.begin(f"{name}/data")) is True
    assert store.delete(f"{name}/data", f"{name}/index") == 2
    assert store.keys(f"{name}/") == []


class ProcessCases(SuiteBase):
    """Calls from several processes."""

    def test_calls_may_come_from_many_threads_at_once(self, store: Store) -> None:
        together([partial(_all_verbs, store, f"thread-{i}") for i in range(self.racers)], self.deadline_s)
        assert store.keys("thread") == []

    def test_a_driver_works_in_a_forked_child(self, store: Store) -> None:
        if not CAN_FORK:
            pytest.skip("this system has no fork")
        _all_verbs(store, "parent")
        store.put("k", content(1000))

        def work() -> None:
            assert store.whole("k") == content(1000)
            _all_verbs(store, "child")

        in_forked_child(work, self.deadline_s)
        _all_verbs(store, "parent")
        assert store.whole("k") == content(1000)

    def test_a_driver_can_be_used_after_it_was_closed(self, store: Store) -> None:
        if not callable(getattr(store.driver, "close", None)):
            pytest.skip("the driver has no close()")
        store.put("k", content(1000))
        for _ in range(2):
            store.close()
            store.close()
            assert store.whole("k") == content(1000)
            _all_verbs(store, "again")


class StaleUploadCases(SuiteBase):
    """Promises of a driver that declares `stale_uploads`."""

    def test_an_upload_is_listed_with_its_time(self, store: Store) -> None:
        store.requires("stale_uploads")
        upload = store.begin("k/1", {"role": "data"})
        (found,) = store.uploads()
        assert found.upload == upload
        assert found.started_at.utcoffset() == timedelta(0), "an aware time in UTC"
        assert abs(found.started_at - datetime.now(timezone.utc)) < timedelta(seconds=self.clock_skew_s)

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


_BAD = {
    "empty": "",
    "absolute": "/etc/x",
    "a slash": "/",
    "the parent": "..",
    "above the root": "../x",
    "above the root in the end": "a/../../x",
    "by way of the parent": "a/../b",
    "the parent in the end": "a/..",
    "the root": ".",
    "by way of the folder itself": "./a",
    "with an empty part": "a//b",
    "with a slash at the end": "a/",
    "with NUL": "a\0b",
    "not UTF-8": "a\ud800b",
}


class BadKeyCases(SuiteBase):
    """`InvalidKeyError`."""

    @pytest.mark.parametrize("case_key", _BAD.values(), ids=_BAD)
    def test_no_key_is_one_that_is(self, store: Store, back_door: BackDoor, case_key: str) -> None:
        self._is_refused(store, back_door, case_key)

    def test_the_drivers_own_names_are_no_keys(self, store: Store, back_door: BackDoor) -> None:
        if not self.own_keys:
            pytest.skip("the suite was given no own_keys")
        for key in self.own_keys:
            self._is_refused(store, back_door, key)

    def _is_refused(self, store: Store, back_door: BackDoor, key: str) -> None:
        store.write_index("b", b"x")
        store.write_index("x", b"x")
        before = back_door.keys()
        with store.refuses(InvalidKeyError):
            store.begin(key)
        with store.refuses(InvalidKeyError):
            store.write_index(key, b"bad")
        with store.refuses(InvalidKeyError):
            store.read(key, 0, 1)
        with store.refuses(InvalidKeyError):
            store.stat(key)
        with store.refuses(InvalidKeyError):
            store.delete(key)
        if store.implements("read_ranges"):
            with store.refuses(InvalidKeyError):
                store.read_ranges([ByteRange(key=key, offset=0, length=1)])
        if store.implements("read_object"):
            with store.refuses(InvalidKeyError):
                store.read_object(key)
        assert back_door.keys() == before, "nothing is written"
        assert (store.whole("b"), store.whole("x")) == (b"x", b"x")


_SECRETIVE = ("secret", "password", "passwd", "token", "credential", "signature")


class DescribingCases(SuiteBase):
    """`describe`, and what can be seen of a driver without a call."""

    def test_the_class_declares_the_version_of_the_hooks(self, store: Store) -> None:
        version = getattr(type(store.driver), "hook_spec_version", None)
        assert type(version) is int
        assert 1 <= version <= HOOK_SPEC_VERSION

    def test_every_required_hook_is_implemented(self, store: Store) -> None:
        assert store.missing_hooks() == []

    def test_list_uploads_is_implemented_if_and_only_if_stale_uploads_is_declared(self, store: Store) -> None:
        assert store.implements("list_uploads") == store.capabilities.stale_uploads

    def test_describe_names_the_driver_and_its_place(self, store: Store) -> None:
        description = store.describe()
        assert description.name
        assert urlsplit(description.location).scheme, "the location is a URL"

    def test_every_instance_describes_itself_alike(self, store: Store, other: Store) -> None:
        assert store.describe() == store.describe() == other.describe()

    def test_describe_shows_no_credentials(self, store: Store) -> None:
        description = store.describe()
        place = urlsplit(description.location)
        assert not place.username
        assert not place.password
        shown = f"{description!r} {store.driver!r} {store.driver}"
        assert not [secret for secret in self.secrets if secret in shown]

    def test_driver_metadata_is_text_without_secrets(self, store: Store) -> None:
        metadata = store.describe().driver_metadata
        assert all(isinstance(text, str) for pair in metadata.items() for text in pair)
        assert not [name for name in metadata if any(word in name.lower() for word in _SECRETIVE)]

    def test_the_limits_make_sense(self, store: Store) -> None:
        limits = store.capabilities
        assert 1 <= limits.min_block_bytes <= limits.max_block_bytes
        assert limits.max_blocks >= 1
        assert limits.range_bytes >= 1
        assert limits.ranges_ahead >= 0
        assert limits.user_metadata in ("native", "sidecar")


class DriverConformance(
    SequenceCases,
    ProcessCases,
    StaleUploadCases,
    BadKeyCases,
    DeletingCases,
    ListingCases,
    ReadingCases,
    MetadataCases,
    CreateOnlyCases,
    CommittingCases,
    UploadingCases,
    DescribingCases,
):
    """Subclass it, with a name that begins with `Test`, and write the fixtures `make_driver` and `back_door`.

    The attributes of `SuiteBase` may be set: `secrets`, `own_keys`, `many_keys`, `racers`, `races`, `max_examples`,
    `steps`, `shrink`, `deadline_s`, `clock_skew_s`.
    """
