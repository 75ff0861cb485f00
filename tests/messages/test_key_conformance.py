"""The key provider that is built in does what providers promise."""

from __future__ import annotations

import pytest
from scenes.messages import wrapped, write_keys

from offload_core.format.messages.pem_keys import PemKeyProvider
from offload_hooks.testing import KeyProviderConformance

KEYS = {"orders": bytes(range(32)), "payments": b"p" * 32}


class TestPemFolder(KeyProviderConformance):
    @pytest.fixture
    def make_provider(self):
        return PemKeyProvider

    @pytest.fixture
    def options(self, tmp_path):
        return {"directory": str(write_keys(tmp_path / "keys", *KEYS))}

    @pytest.fixture
    def data_keys(self):
        return {name: (wrapped(key, name), key) for name, key in KEYS.items()}

    @pytest.fixture
    def metadata(self):
        return {"version": "1"}


class TestPemDefault(TestPemFolder):
    any_name = True

    @pytest.fixture
    def options(self, tmp_path):
        return {"default_private_key": str(write_keys(tmp_path / "keys", "orders") / "orders.pem")}

    @pytest.fixture
    def data_keys(self):
        return {"orders": (wrapped(KEYS["orders"], "orders"), KEYS["orders"])}

    @pytest.fixture
    def unreachable(self, tmp_path):
        return {"default_private_key": str(tmp_path / "missing.pem")}
