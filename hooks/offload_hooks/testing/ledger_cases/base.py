"""The settings that an author of a ledger store gives the suite, and the begin of all cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import ClassVar

import pytest

from offload_hooks.errors import OffloadError
from offload_hooks.ledger_stores import LedgerReader, LedgerStore, LedgerWriter, WritableLedgerStore
from offload_hooks.testing.content import content
from offload_hooks.testing.refusals import expect_refusal


class LedgerSuiteBase:
    """A fixture that the author writes, attributes that he may set, and fixtures that the cases use."""

    racers: ClassVar[int] = 8
    """Threads that do the same thing at once."""

    max_examples: ClassVar[int] = 30
    """Sequences of calls that are compared with a list; 0 for none."""

    steps: ClassVar[int] = 40
    """The most calls of such a sequence."""

    shrink: ClassVar[bool] = True
    """True if a sequence that fails is made as short as possible, which may take some minutes."""

    deadline_s: ClassVar[float] = 60.0
    """After how many seconds concurrent calls, or a forked child, count as hanging."""

    @pytest.fixture
    def make_store(self) -> Callable[[], LedgerStore]:
        """To be written by the author: what makes a store, each time on the same ledgers, none at first."""
        pytest.fail(
            f"{type(self).__name__} needs a fixture 'make_store': what makes a ledger store, each time on the same "
            "ledgers, of which there are none at first (see docs/hot-tier.md)",
            pytrace=False,
        )

    @pytest.fixture
    def make_ledger(self) -> Callable[[Sequence[bytes]], int]:
        """For a store that is only read, to be written by the author: what makes a ledger with these payloads."""
        pytest.fail(
            f"{type(self).__name__} needs a fixture 'make_ledger': what writes and seals a ledger with some payloads, "
            "and answers its id (see docs/hot-tier.md)",
            pytrace=False,
        )

    @pytest.fixture
    def open_store(self, make_store: Callable[[], LedgerStore]) -> Iterator[Callable[[], LedgerStore]]:
        """Makes stores and closes them in the end."""
        with ExitStack() as opened:

            def open_one() -> LedgerStore:
                store = make_store()
                opened.callback(store.close)
                return store

            yield open_one

    @pytest.fixture
    def store(self, open_store: Callable[[], LedgerStore]) -> LedgerStore:
        """The store."""
        return open_store()

    @pytest.fixture
    def other(self, store: LedgerStore, open_store: Callable[[], LedgerStore]) -> LedgerStore:
        """Another store on the same ledgers, as another process has one."""
        del store
        return open_store()


def payloads(count: int, seed: int = 0) -> list[bytes]:
    """Payloads of 0 bytes and more, no two alike but the empty ones."""
    return [content(i * 37 % 500, seed * 10_000 + i) for i in range(count)]


def written(store: WritableLedgerStore, entries: Sequence[bytes]) -> LedgerWriter:
    """The writer of a ledger that has these entries."""
    writer = store.create({})
    if entries:
        writer.append_batch(entries)
    return writer


def all_of(reader: LedgerReader, max_bytes: int = 1 << 20) -> list[bytes]:
    """All entries, by as many reads as it takes."""
    count, found = reader.status().entry_count, list[bytes]()
    while len(found) < count:
        batch = reader.read(len(found), count - 1, max_bytes)
        assert batch.first_entry_id == len(found)
        assert len(batch) >= 1
        found.extend(map(bytes, batch))
    return found


@contextmanager
def refuses(*kinds: type[OffloadError], ledger_id: int | None = None) -> Iterator[None]:
    """Expect one of these errors of the block: one that can be pickled, and names the ledger."""
    with expect_refusal(*kinds) as refusal:
        yield
    if ledger_id is not None:
        assert refusal.error.ledger_id == ledger_id, "the error must name the ledger"
