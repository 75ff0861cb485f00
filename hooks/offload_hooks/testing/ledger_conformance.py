# ruff: noqa: D102 (the names of the cases state the promises)
"""The conformance suites of ledger stores: all that the contract promises, as tests that an author subclasses.

    class TestMyStore(WritableLedgerStoreConformance):
        @pytest.fixture
        def make_store(self, tmp_path):
            return lambda: MyStore(tmp_path)

For a store that is only read, `LedgerStoreConformance` has its part of them. See docs/hot-tier.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from offload_hooks.ledger_stores import WritableLedgerStore
from offload_hooks.testing.ledger_cases.appending import AppendingCases
from offload_hooks.testing.ledger_cases.base import LedgerSuiteBase, written
from offload_hooks.testing.ledger_cases.fencing import FencingCases
from offload_hooks.testing.ledger_cases.racing import RacingCases
from offload_hooks.testing.ledger_cases.reading import GrowingLedgerCases, LedgerReadingCases
from offload_hooks.testing.ledger_machine import ledger_state_machine
from offload_hooks.testing.sequences import run_sequences


class LedgerSequenceCases(LedgerSuiteBase):
    """The state machine; the same sequences in every run."""

    def test_any_sequence_of_calls_matches_lists(self, make_store: Callable[[], WritableLedgerStore]) -> None:
        run_sequences(ledger_state_machine(make_store), self)


class LedgerStoreConformance(LedgerReadingCases):
    """Reading. Subclass it, with a name that begins with `Test`, and write `make_store` and `make_ledger`.

    The attributes of `LedgerSuiteBase` may be set.
    """


class WritableLedgerStoreConformance(
    LedgerSequenceCases, RacingCases, FencingCases, GrowingLedgerCases, LedgerStoreConformance, AppendingCases
):
    """Reading and writing. Subclass it, with a name that begins with `Test`, and write the fixture `make_store`."""

    @pytest.fixture(params=[False, True], ids=["open", "sealed"])
    def make_ledger(
        self, request: pytest.FixtureRequest, store: WritableLedgerStore
    ) -> Callable[[Sequence[bytes]], int]:
        """Makes a ledger with some payloads, and seals it or not."""

        def make(entries: Sequence[bytes]) -> int:
            writer = written(store, entries)
            if request.param:
                writer.close()
            return writer.ledger_id

        return make
