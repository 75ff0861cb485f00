"""The store passes the suite that every ledger store must pass."""

import pytest
from offload_hooks.testing import WritableLedgerStoreConformance

from {{ cookiecutter.module }} import {{ cookiecutter.plugin }}


class Test{{ cookiecutter.plugin }}(WritableLedgerStoreConformance):
    # What opens the store, each time on the same ledgers, none at first. Use a real server of yours. What a
    # kill or a power failure leaves, your store must be tried with in its own way.
    @pytest.fixture
    def make_store(self, tmp_path):
        return lambda: {{ cookiecutter.plugin }}(str(tmp_path / "ledgers.db"))
