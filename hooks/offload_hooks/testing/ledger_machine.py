"""Any sequence of calls against lists: a Hypothesis state machine over several stores on the same ledgers.

A writer may be left without being closed, as a killed process leaves it, and its ledger is then recovered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from offload_hooks.errors import (
    LedgerClosedError,
    LedgerFencedError,
    OffloadError,
    RangeError,
    UnknownLedgerError,
)
from offload_hooks.ledger_stores import LedgerReader, LedgerWriter, WritableLedgerStore
from offload_hooks.testing.content import content
from offload_hooks.testing.ledger_cases.base import refuses

_STORES = 2
_sizes = st.one_of(st.integers(0, 50), st.integers(0, 3000))
_which = st.integers(0, 1 << 16)


@dataclass(slots=True)
class ExpectedLedger:
    """A ledger as it must be found; `ended` is the error that its writer must raise."""

    writer: LedgerWriter
    readers: list[LedgerReader]
    entries: list[bytes] = field(default_factory=list)
    sealed: bool = False
    deleted: bool = False
    ended: type[OffloadError] | None = None


class LedgerMachine(RuleBasedStateMachine):
    """Calls of stores, checked against lists; made ready by `ledger_state_machine`."""

    make_store: ClassVar[Callable[[], WritableLedgerStore]]

    def __init__(self) -> None:
        super().__init__()
        self.stores = [type(self).make_store() for _ in range(_STORES)]
        self.before = set(self.stores[0].ledger_ids())
        self.ledgers: list[ExpectedLedger] = []
        self.seed = 0

    def teardown(self) -> None:
        """Delete the ledgers, so that the next example finds few."""
        for ledger in self.ledgers:
            self.stores[0].delete(ledger.writer.ledger_id)
        for store in self.stores:
            store.close()

    def _one(self, which: int) -> ExpectedLedger:
        return self.ledgers[which % len(self.ledgers)]

    def _payloads(self, sizes: list[int]) -> list[bytes]:
        self.seed += 1
        return [content(size, self.seed * 100 + i) for i, size in enumerate(sizes)]

    # --- writing ---------------------------------------------------------------------------------

    @precondition(lambda self: len(self.ledgers) < 6)
    @rule(which=_which)
    def create(self, which: int) -> None:
        """Create a ledger, and open it everywhere."""
        writer = self.stores[which % _STORES].create({"which": b"%d" % which})
        assert all(writer.ledger_id > ledger.writer.ledger_id for ledger in self.ledgers)
        readers = [store.open(writer.ledger_id) for store in self.stores]
        self.ledgers.append(ExpectedLedger(writer, readers))

    @precondition(lambda self: self.ledgers)
    @rule(which=_which, sizes=st.lists(_sizes, min_size=1, max_size=8), one_by_one=st.booleans())
    def append(self, which: int, sizes: list[int], one_by_one: bool) -> None:
        """Append, to a ledger whose writer may be fenced."""
        ledger, payloads = self._one(which), self._payloads(sizes)
        if ledger.ended is not None:
            with refuses(ledger.ended, ledger_id=ledger.writer.ledger_id):
                ledger.writer.append_batch(payloads)
        elif one_by_one:
            for payload in payloads:
                assert ledger.writer.append(payload) == len(ledger.entries)
                ledger.entries.append(payload)
        else:
            assert ledger.writer.append_batch(payloads) == len(ledger.entries)
            ledger.entries += payloads

    @precondition(lambda self: self.ledgers)
    @rule(which=_which)
    def sync(self, which: int) -> None:
        """Make it durable."""
        ledger = self._one(which)
        if ledger.ended is None:
            ledger.writer.sync()

    @precondition(lambda self: self.ledgers)
    @rule(which=_which)
    def close(self, which: int) -> None:
        """Seal a ledger, or find that another did."""
        ledger = self._one(which)
        if ledger.ended not in (None, LedgerClosedError):
            with refuses(ledger.ended, ledger_id=ledger.writer.ledger_id):
                ledger.writer.close()
            return
        assert ledger.writer.close().entry_count == len(ledger.entries)
        ledger.sealed, ledger.ended = True, LedgerClosedError

    # --- taking away -----------------------------------------------------------------------------

    @precondition(lambda self: self.ledgers)
    @rule(which=_which, by=_which)
    def recover(self, which: int, by: int) -> None:
        """Take a ledger from its writer."""
        ledger, store = self._one(which), self.stores[by % _STORES]
        if ledger.deleted:
            with refuses(UnknownLedgerError, ledger_id=ledger.writer.ledger_id):
                store.recover(ledger.writer.ledger_id)
            return
        recovered = store.recover(ledger.writer.ledger_id)
        assert (recovered.status.sealed, recovered.lost_entry_count) == (True, 0)
        assert recovered.status.entry_count == len(ledger.entries)
        ledger.sealed, ledger.ended = True, ledger.ended or LedgerFencedError

    @precondition(lambda self: self.ledgers)
    @rule(which=_which, by=_which)
    def delete(self, which: int, by: int) -> None:
        """Delete a ledger."""
        ledger = self._one(which)
        assert self.stores[by % _STORES].delete(ledger.writer.ledger_id) is not ledger.deleted
        ledger.deleted, ledger.ended = True, ledger.ended or LedgerFencedError

    @rule(which=_which)
    def reopen(self, which: int) -> None:
        """Close a store, which leaves its ledgers open, make another in its place, and recover what is open."""
        place = which % _STORES
        self.stores[place].close()
        self.stores[place] = type(self).make_store()
        for ledger in self.ledgers:
            if not ledger.deleted:
                self.stores[place].recover(ledger.writer.ledger_id)
                ledger.readers[place] = self.stores[place].open(ledger.writer.ledger_id)
                ledger.sealed = True
            if ledger.ended is not LedgerClosedError:
                ledger.ended = OffloadError  # closed with its store, or fenced

    # --- looking ---------------------------------------------------------------------------------

    @precondition(lambda self: self.ledgers)
    @rule(
        which=_which,
        by=_which,
        first=st.integers(-1, 60),
        count=st.integers(0, 60),
        most=st.integers(1, 9000),
    )
    def read(self, which: int, by: int, first: int, count: int, most: int) -> None:
        """Read a range that may be there."""
        ledger, last = self._one(which), first + count - 1
        reader = ledger.readers[by % _STORES]
        if ledger.deleted:  # its readers are not made anew
            with refuses(UnknownLedgerError, LedgerClosedError):
                reader.read(first, last, most)
        elif not 0 <= first <= last < len(ledger.entries):
            with refuses(RangeError, ledger_id=ledger.writer.ledger_id):
                reader.read(first, last, most)
        else:
            found = [bytes(entry) for entry in reader.read(first, last, most)]
            assert found == ledger.entries[first : first + len(found)]
            size, asked = sum(map(len, found)), ledger.entries[first : last + 1]
            assert len(found) == 1 or size <= most
            assert len(found) == len(asked) or size + len(asked[len(found)]) > most

    @precondition(lambda self: self.ledgers)
    @rule(which=_which, by=_which)
    def look(self, which: int, by: int) -> None:
        """Compare the states of a ledger."""
        ledger = self._one(which)
        if not ledger.deleted:
            status = ledger.readers[by % _STORES].status()
            expected = (len(ledger.entries), sum(map(len, ledger.entries)), ledger.sealed)
            assert (status.entry_count, status.size_bytes, status.sealed) == expected
            assert self.stores[by % _STORES].verify(ledger.writer.ledger_id) == status

    @rule(by=_which)
    def list_ledgers(self, by: int) -> None:
        """Compare the listings."""
        expected = [ledger.writer.ledger_id for ledger in self.ledgers if not ledger.deleted]
        assert sorted(set(self.stores[by % _STORES].ledger_ids()) - self.before) == expected


def ledger_state_machine(make_store: Callable[[], WritableLedgerStore]) -> type[LedgerMachine]:
    """The state machine of a store, to be run by Hypothesis."""
    return type("LedgerMachine", (LedgerMachine,), {"make_store": staticmethod(make_store)})
