"""Any sequence of calls of a metadata store against a dict: a Hypothesis state machine.

Calls go to several stores that are open on the same values, as of several processes. Each example has a folder of its
own, so one place serves them all.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from offload_hooks.errors import VersionConflictError
from offload_hooks.metadata_stores import WritableMetadataStore

_PATHS = ["/a", "/a/b", "/a/b/c", "/a/b/d", "/a/b-c", "/e/f", "/e/f0"]
_paths = st.sampled_from(_PATHS)
_parents = st.sampled_from(["", "/a", "/a/b", "/a/b/c", "/e", "/e/f", "/z"])
_values = st.binary(max_size=20)
_who = st.integers(0, 7)


class MetadataMachine(RuleBasedStateMachine):
    """Calls of stores, checked against a dict; made ready by `metadata_state_machine`."""

    stores: ClassVar[Sequence[WritableMetadataStore]]
    rooms: ClassVar[Iterator[str]]

    def __init__(self) -> None:
        super().__init__()
        self.room = next(self.rooms)
        self.records: dict[str, tuple[bytes, int]] = {}
        self.gone: dict[str, set[int]] = {}
        """The versions that a path had and has no more."""

    @rule(who=_who, path=_paths, value=_values)
    def put(self, who: int, path: str, value: bytes) -> None:
        """Write with the right version, or for the first time."""
        path = self.room + path
        _, known = self.records.get(path, (b"", None))
        version = self._store(who).put(path, value, known)
        assert isinstance(version, int)
        assert version != known
        assert version not in self.gone.get(path, set()), "a version has come back"
        self._forget(path)
        self.records[path] = (value, version)

    @rule(who=_who, path=_paths)
    def delete(self, who: int, path: str) -> None:
        """Delete with the right version."""
        path = self.room + path
        if path in self.records:
            self._store(who).delete(path, self.records[path][1])
            self._forget(path)

    @rule(who=_who, path=_paths, value=_values, which=st.integers(0, 9), deletes=st.booleans())
    def write_with_a_wrong_version(
        self, who: int, path: str, value: bytes, which: int, deletes: bool
    ) -> None:
        """Write with a version that was, or never was, or none where there is a value."""
        path = self.room + path
        present = {self.records[path][1]} if path in self.records else set()
        wrong: list[int | None] = [*sorted(self.gone.get(path, set())), max(present, default=5) + 1]
        version = (wrong if not present or deletes else [None, *wrong])[which % len(wrong)]
        store = self._store(who)
        if deletes and version is not None:
            with pytest.raises(VersionConflictError):
                store.delete(path, version)
        else:
            with pytest.raises(VersionConflictError):
                store.put(path, value, version)

    @rule(who=_who, path=_paths)
    def get(self, who: int, path: str) -> None:
        """Read what may be there."""
        assert self._store(who).get(self.room + path) == self.records.get(self.room + path)

    @rule(who=_who, parent=_parents)
    def children(self, who: int, parent: str) -> None:
        """List the paths below."""
        self._check_children(self._store(who), self.room + parent)

    def teardown(self) -> None:
        """Compare the stores with the dict at the end, and delete all values."""
        for store in self.stores:
            for path in _PATHS:
                assert store.get(self.room + path) == self.records.get(self.room + path)
                self._check_children(store, self.room + path)
        for path, (_, version) in self.records.items():
            self.stores[0].delete(path, version)
        assert list(self.stores[-1].children(self.room)) == []

    def _store(self, who: int) -> WritableMetadataStore:
        return self.stores[who % len(self.stores)]

    def _check_children(self, store: WritableMetadataStore, path: str) -> None:
        below = (known.removeprefix(f"{path}/") for known in self.records if known.startswith(f"{path}/"))
        found = list(store.children(path))
        assert len(set(found)) == len(found), "a name stands twice among the children"
        assert set(found) == {name.partition("/")[0] for name in below}

    def _forget(self, path: str) -> None:
        if path in self.records:
            self.gone.setdefault(path, set()).add(self.records.pop(path)[1])


def metadata_state_machine(stores: Sequence[WritableMetadataStore]) -> type[MetadataMachine]:
    """A state machine of these stores, for `hypothesis.stateful.run_state_machine_as_test` or as `.TestCase`.

    Args:
        stores: open on the same place, which they go on using after the machine is done.
    """
    run = uuid.uuid4().hex[:8]
    rooms = (f"/machine-{run}/{i}" for i in itertools.count())
    return type("MetadataMachine", (MetadataMachine,), {"stores": list(stores), "rooms": rooms})
