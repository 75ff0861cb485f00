"""The conformance suite of ledger stores: all that the contract promises, as tests that an author subclasses.

    class TestMyStore(LedgerStoreConformance):
        @pytest.fixture
        def make_store(self, tmp_path):
            return lambda: MyStore(tmp_path)

See docs/hot-tier.md.
"""

from __future__ import annotations

from offload_hooks.testing.ledger_cases.appending import AppendingCases
from offload_hooks.testing.ledger_cases.fencing import FencingCases
from offload_hooks.testing.ledger_cases.racing import RacingCases
from offload_hooks.testing.ledger_cases.reading import LedgerReadingCases
from offload_hooks.testing.ledger_cases.sequences import LedgerSequenceCases


class LedgerStoreConformance(
    LedgerSequenceCases, RacingCases, FencingCases, LedgerReadingCases, AppendingCases
):
    """Subclass it, with a name that begins with `Test`, and write the fixture `make_store`.

    The attributes of `LedgerSuiteBase` may be set: `racers`, `max_examples`, `steps`, `shrink`, `deadline_s`.
    """
