"""The settings that an author of a metadata store gives the suite, and the begin of all cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import ClassVar

import pytest

from offload_hooks.errors import OffloadError, VersionConflictError
from offload_hooks.metadata_stores import WritableMetadataStore
from offload_hooks.testing.refusals import expect_refusal

MakeStore = Callable[[], WritableMetadataStore]


class MetadataSuiteBase:
    """A fixture that the author writes, attributes that he may set, and fixtures that the cases use."""

    secrets: ClassVar[tuple[str, ...]] = ()
    """Texts that no error may show: the passwords that the store is given."""

    one_process: ClassVar[bool] = False
    """True if only this process sees the store's content: then cases of several processes are skipped."""

    large_bytes: ClassVar[int] = 500_000
    """The size of the largest value that is stored."""

    many_children: ClassVar[int] = 300
    """Names in the longest answer of `children`."""

    racers: ClassVar[int] = 6
    """Threads, or processes, that do the same thing at once."""

    rounds: ClassVar[int] = 10
    """Times that each of them does it."""

    max_examples: ClassVar[int] = 20
    """Sequences of calls that are compared with a dict; 0 for none."""

    steps: ClassVar[int] = 40
    """The most calls of such a sequence."""

    shrink: ClassVar[bool] = True
    """True if a sequence that fails is made as short as possible, which may take some minutes."""

    deadline_s: ClassVar[float] = 60.0
    """After how many seconds concurrent calls, or a forked child, count as hanging."""

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """To be written by the author: what opens a store, each time the same, which is empty at first."""
        who = type(self).__name__
        what = "what opens a store, each time the same, which is empty at first"
        pytest.fail(
            f"{who} needs a fixture 'make_store': {what} (see docs/metadata-stores.md)", pytrace=False
        )

    @pytest.fixture
    def open_store(self, make_store: MakeStore) -> Iterator[MakeStore]:
        """Opens stores and closes them in the end."""
        with ExitStack() as opened:

            def open_one() -> WritableMetadataStore:
                store = make_store()
                opened.callback(store.close)
                return store

            yield open_one

    @pytest.fixture
    def store(self, open_store: MakeStore) -> WritableMetadataStore:
        """The store."""
        return open_store()

    @pytest.fixture
    def other(self, store: WritableMetadataStore, open_store: MakeStore) -> WritableMetadataStore:
        """The same store, opened once more, as another process does."""
        del store
        return open_store()

    @contextmanager
    def refuses(self, kind: type[OffloadError], path: str | None = None) -> Iterator[None]:
        """Expect this error of the block: one that can be pickled, shows no secret, and names the path."""
        with expect_refusal(kind, secrets=self.secrets) as refusal:
            yield
        if path is not None:
            assert path in (refusal.error.key or ""), "the error must name the path"

    def conflicts(self, path: str) -> AbstractContextManager[None]:
        """As `refuses`, of a version that is not there."""
        return self.refuses(VersionConflictError, path)
