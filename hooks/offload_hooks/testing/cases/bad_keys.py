# ruff: noqa: D102 (the names of the cases state the promises)
"""Keys that are none, or would leave the tier: refused by every hook, and nothing is written."""

from __future__ import annotations

import pytest

from offload_hooks import ByteRange
from offload_hooks.errors import InvalidKeyError
from offload_hooks.testing.back_door import BackDoor
from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.store import Store

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

    @pytest.mark.parametrize("key", _BAD.values(), ids=_BAD)
    def test_no_key_is_one_that_is(self, store: Store, back_door: BackDoor, key: str) -> None:
        self._is_refused(store, back_door, key)

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
        assert back_door.keys() == before, "nothing is written"
        assert (store.whole("b"), store.whole("x")) == (b"x", b"x")
