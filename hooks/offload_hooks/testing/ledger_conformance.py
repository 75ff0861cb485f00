# ruff: noqa: D102 (the names of the cases state the promises)
"""The conformance suite of ledger stores: all that the contract promises, as tests that an author subclasses.

    class TestMyStore(LedgerStoreConformance):
        @pytest.fixture
        def make_store(self, tmp_path):
            return lambda: MyStore(tmp_path)

See docs/hot-tier.md.
"""

from __future__ import annotations

from collections.abc import Callable

from offload_hooks.ledger_stores import LedgerStore
from offload_hooks.testing.ledger_cases.appending import AppendingCases
from offload_hooks.testing.ledger_cases.base import LedgerSuiteBase
from offload_hooks.testing.ledger_cases.fencing import FencingCases
from offload_hooks.testing.ledger_cases.racing import RacingCases
from offload_hooks.testing.ledger_cases.reading import LedgerReadingCases
from offload_hooks.testing.ledger_machine import ledger_state_machine
from offload_hooks.testing.sequences import run_sequences


class LedgerSequenceCases(LedgerSuiteBase):
    """The state machine; the same sequences in every run."""

    def test_any_sequence_of_calls_matches_lists(self, make_store: Callable[[], LedgerStore]) -> None:
        run_sequences(ledger_state_machine(make_store), self)


class LedgerStoreConformance(
    LedgerSequenceCases, RacingCases, FencingCases, LedgerReadingCases, AppendingCases
):
    """Subclass it, with a name that begins with `Test`, and write the fixture `make_store`.

    The attributes of `LedgerSuiteBase` may be set: `racers`, `max_examples`, `steps`, `shrink`, `deadline_s`.
    """
