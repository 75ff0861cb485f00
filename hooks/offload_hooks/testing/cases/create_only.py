# ruff: noqa: D102 (the names of the cases state the promises)
"""Create-only: an object that is there stays as it is, and of many writers at once exactly one makes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest

from offload_hooks import ObjectStat
from offload_hooks.errors import ObjectExistsError, UploadError
from offload_hooks.testing.back_door import BackDoor
from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.content import content
from offload_hooks.testing.store import Store
from offload_hooks.testing.threads import outcomes

_How = Literal["data", "index"]
_either = pytest.mark.parametrize("case_how", ["data", "index"])


def _writer(store: Store, how: _How, key: str, data: bytes, name: str) -> Callable[[], ObjectStat]:
    """All is ready for the last call, which is this function's answer."""
    if how == "index":
        return partial(store.write_index, key, data, {"who": name}, create_only=True)
    upload = store.begin(key, {"who": name})
    return partial(store.commit, upload, store.write_all(upload, [data]), create_only=True)


class CreateOnlyCases(SuiteBase):
    """Promises of a driver that declares `create_only`."""

    @_either
    def test_create_only_makes_an_object_that_was_not_there(self, store: Store, case_how: _How) -> None:
        store.requires("create_only")
        _writer(store, case_how, "k", b"made", "me")()
        assert store.whole("k") == b"made"
        assert store.stat("k").user_metadata == {"who": "me"}

    @_either
    def test_create_only_leaves_an_object_as_it_is(
        self, store: Store, back_door: BackDoor, case_how: _How
    ) -> None:
        store.requires("create_only")
        store.put("k", b"first", user_metadata={"who": "first"}, content_type="text/first")
        with store.refuses(ObjectExistsError, key="k"):
            _writer(store, case_how, "k", b"second one", "second")()
        assert store.whole("k") == back_door.get("k") == b"first"
        stat = store.stat("k")
        assert (stat.size_bytes, stat.content_type, stat.user_metadata) == (5, "text/first", {"who": "first"})

    @_either
    def test_create_only_leaves_an_object_of_another_program_as_it_is(
        self, store: Store, back_door: BackDoor, case_how: _How
    ) -> None:
        store.requires("create_only")
        back_door.put("k", b"theirs", {"who": "they"}, "text/plain")
        with store.refuses(ObjectExistsError, key="k"):
            _writer(store, case_how, "k", b"ours", "we")()
        assert store.whole("k") == b"theirs"
        assert store.stat("k").user_metadata == {"who": "they"}

    @_either
    def test_create_only_makes_an_object_that_was_deleted(self, store: Store, case_how: _How) -> None:
        store.requires("create_only")
        store.put("k", b"old", user_metadata={"who": "old", "more": "x"})
        store.delete("k")
        _writer(store, case_how, "k", b"new", "new")()
        assert store.stat("k").user_metadata == {"who": "new"}

    def test_of_two_uploads_the_first_create_only_commit_wins(self, store: Store) -> None:
        store.requires("create_only")
        one, two = _writer(store, "data", "k", b"one", "one"), _writer(store, "data", "k", b"two", "two")
        two()
        exclusive = store.capabilities.exclusive_uploads
        with store.refuses(ObjectExistsError, *([UploadError] if exclusive else []), key="k"):
            one()
        assert store.whole("k") == b"two"

    def test_an_upload_whose_create_only_commit_failed_can_be_aborted(self, store: Store) -> None:
        store.requires("create_only")
        store.write_index("k", b"first")
        upload = store.begin("k")
        receipts = store.write_all(upload, [b"second"])
        with store.refuses(ObjectExistsError, key="k"):
            store.commit(upload, receipts, create_only=True)
        store.abort(upload)
        assert store.abort(upload) is False
        assert store.whole("k") == b"first"

    @pytest.mark.parametrize("case_hows", [["data"], ["index"], ["data", "index"]], ids="-and-".join)
    def test_of_racing_create_only_writers_exactly_one_wins(
        self, store: Store, back_door: BackDoor, case_hows: list[_How]
    ) -> None:
        store.requires("create_only")
        lost = (ObjectExistsError, UploadError) if store.capabilities.exclusive_uploads else ObjectExistsError
        for race in range(self.races):
            key = f"race/{race}"
            datas = [content(1000 + i, seed=i) for i in range(self.racers)]
            writers = [
                _writer(store, case_hows[i % len(case_hows)], key, data, f"writer-{i}")
                for i, data in enumerate(datas)
            ]
            ends = outcomes(writers, self.deadline_s)
            winners = [i for i, end in enumerate(ends) if isinstance(end, ObjectStat)]
            assert len(winners) == 1, f"{len(winners)} of {self.racers} writers were told that they made it"
            odd = [end for end in ends if not isinstance(end, (ObjectStat, lost))]
            assert odd == [], "the others are told that the object exists"
            assert store.whole(key) == back_door.get(key) == datas[winners[0]]
            assert store.stat(key).user_metadata == {"who": f"writer-{winners[0]}"}
