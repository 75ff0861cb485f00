# ruff: noqa: D102 (the names of the cases state the promises)
"""User metadata and content types: kept exactly, or refused before anything is stored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Literal

import pytest

from offload_hooks import ObjectStat
from offload_hooks.errors import OptionError
from offload_hooks.testing.back_door import BackDoor
from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.content import content
from offload_hooks.testing.store import BYTES, Store

_How = Literal["data", "index"]
_either = pytest.mark.parametrize("case_how", ["data", "index"])
_AWKWARD = {
    "a value that is not ASCII": {"name": "tenant/köln"},
    "a value that is not Latin": {"name": "租户/😀"},
    "a value with spaces around": {"name": " x "},
    "a value with a line break": {"name": "x\r\ny: z"},
    "a value with quotes and signs": {"name": '"{%41+\\&=?;,}'},
    "a value that looks encoded": {"name": "=?utf-8?q?k=C3=B6ln?="},
    "an empty value": {"name": ""},
    "a long value": {"name": "v" * 20_000},
    "a name with a hyphen": {"first-name": "x"},
    "a name with an underscore": {"first_name": "x"},
    "a name with a dot and a digit": {"1.name": "x"},
    "a name that is not ASCII": {"größe": "x"},
    "a name with a space": {"first name": "x"},
    "an empty name": {"": "x"},
    "many pairs": {f"name{i}": f"value {i}" for i in range(60)},
}


def _store(
    store: Store, how: _How, user_metadata: Mapping[str, str], content_type: str = BYTES, data: bytes = b"x"
) -> ObjectStat:
    if how == "index":
        return store.write_index("k", data, user_metadata, content_type)
    return store.put("k", data, user_metadata=user_metadata, content_type=content_type)


class MetadataCases(SuiteBase):
    """The fields of `stat` besides the size."""

    @_either
    def test_user_metadata_and_content_type_are_kept(self, store: Store, case_how: _How) -> None:
        given = {"role": "data", "managedledgername": "acme/cold/persistent/json", "version": "2"}
        for stat in (_store(store, case_how, given, "text/x-ledger"), store.stat("k")):
            assert (stat.user_metadata, stat.content_type) == (given, "text/x-ledger")

    @_either
    def test_another_instance_sees_them(self, store: Store, other: Store, case_how: _How) -> None:
        _store(store, case_how, {"role": "data"}, "text/x-ledger")
        stat = other.stat("k")
        assert (stat.user_metadata, stat.content_type) == ({"role": "data"}, "text/x-ledger")

    @_either
    def test_names_are_lower_case(self, store: Store, case_how: _How) -> None:
        _store(store, case_how, {"ManagedLedgerName": "Acme/Cold", "ROLE": "Data"})
        assert store.stat("k").user_metadata == {"managedledgername": "Acme/Cold", "role": "Data"}

    @_either
    def test_an_object_stored_without_any_has_none(self, store: Store, case_how: _How) -> None:
        _store(store, case_how, {})
        assert store.stat("k").user_metadata == {}

    @_either
    @pytest.mark.parametrize("case_awkward", _AWKWARD.values(), ids=_AWKWARD)
    def test_kept_exactly_or_refused_is(
        self, store: Store, back_door: BackDoor, case_how: _How, case_awkward: dict[str, str]
    ) -> None:
        store.put("warm", b"up")
        before = back_door.keys()
        try:
            if case_how == "data":
                upload = store.begin("k", case_awkward)
            else:
                store.write_index("k", b"x", case_awkward)
        except OptionError:
            assert not store.exists("k"), "nothing is stored"
            assert back_door.keys() == before, "nothing is stored"
            return
        if case_how == "data":
            store.commit(upload, store.write_all(upload, [b"x"]))
        assert store.stat("k").user_metadata == case_awkward

    @_either
    def test_a_replacement_replaces_them(self, store: Store, case_how: _How) -> None:
        _store(store, case_how, {"a": "old", "b": "old"}, "text/old")
        _store(store, case_how, {"b": "new", "c": "new"}, "text/new")
        stat = store.stat("k")
        assert (stat.user_metadata, stat.content_type) == ({"b": "new", "c": "new"}, "text/new")
        _store(store, case_how, {})
        assert store.stat("k").user_metadata == {}

    @_either
    def test_deleted_and_written_anew_an_object_has_the_new_ones(self, store: Store, case_how: _How) -> None:
        _store(store, case_how, {"a": "old"}, "text/old")
        store.delete("k")
        _store(store, case_how, {"b": "new"}, "text/new")
        stat = store.stat("k")
        assert (stat.user_metadata, stat.content_type) == ({"b": "new"}, "text/new")

    def test_those_of_an_object_by_another_program_are_seen(self, store: Store, back_door: BackDoor) -> None:
        back_door.put("a", b"12345", {"role": "data", "name": "x"}, "text/plain")
        back_door.put("b", b"", {}, BYTES)
        stat = store.stat("a")
        assert (stat.key, stat.size_bytes, stat.content_type) == ("a", 5, "text/plain")
        assert stat.user_metadata == {"role": "data", "name": "x"}
        assert (store.stat("b").size_bytes, store.stat("b").user_metadata) == (0, {})

    def test_they_belong_to_the_upload_and_not_to_the_key(self, store: Store) -> None:
        one, two = store.begin("k", {"who": "one"}), store.begin("k", {"who": "two"})
        store.write_all(two, [b"two"])
        store.commit(one, store.write_all(one, [b"one"]))
        assert (store.whole("k"), store.stat("k").user_metadata) == (b"one", {"who": "one"})

    @_either
    def test_the_time_is_in_utc_and_now(self, store: Store, case_how: _How) -> None:
        skew = timedelta(seconds=self.clock_skew_s)
        for stat in (_store(store, case_how, {}, data=content(17)), store.stat("k")):
            assert stat.modified_at.utcoffset() == timedelta(0), "an aware time in UTC"
            assert abs(stat.modified_at - datetime.now(timezone.utc)) < skew

    def test_an_empty_index_is_an_object(self, store: Store, back_door: BackDoor) -> None:
        assert store.write_index("k", b"", {"role": "index"}).size_bytes == 0
        assert (store.stat("k").size_bytes, store.stat("k").user_metadata) == (0, {"role": "index"})
        assert back_door.get("k") == b""
        assert store.keys() == ["k"]
