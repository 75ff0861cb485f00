"""The filters that are built in, and the example of a third party, do what filters promise."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scenes.transactions import ONE, OTHER, PLAIN, abort, commit, of

from offload_core.format.messages.entry import NewMessage, pack_entry
from offload_core.writing.offload_filters import OffloadFilterDisable
from offload_core.writing.transaction_filter import TransactionOffloadFilter
from offload_hooks.filters import SettledTransactions
from offload_hooks.testing import FilterConformance

EXAMPLE = Path(__file__).parents[2] / "examples" / "third_party_filter"


def damaged(payload):
    return payload[:-1] + bytes([payload[-1] ^ 1])


class TestTransactions(FilterConformance):
    @pytest.fixture
    def make_filter(self):
        return TransactionOffloadFilter

    @pytest.fixture
    def settled(self):
        return SettledTransactions(stop=(9, 0), aborted={ONE}, waits_for="transaction (0,9)")

    @pytest.fixture
    def entries(self):
        events = [PLAIN, of(ONE), of(OTHER), PLAIN, of(ONE), abort(ONE), commit(OTHER)]
        aborted = f"aborted ({ONE[0]},{ONE[1]})"
        causes = [None, aborted, None, None, aborted, "marker", "marker"]
        return [(event.pack(i), cause) for i, (event, cause) in enumerate(zip(events, causes, strict=True))]

    @pytest.fixture
    def malformed(self):
        return [b"", b"not an entry", damaged(of(ONE).pack(0)), PLAIN.pack(0)[:20]]


class TestDisabled(FilterConformance):
    @pytest.fixture
    def make_filter(self):
        return OffloadFilterDisable

    @pytest.fixture
    def entries(self):
        return [(PLAIN.pack(0), None), (b"", None)]


def sent(**properties):
    message = NewMessage(value=b"x" * 50, properties=properties)
    return pack_entry([message], producer_name="shop", sequence_id=0, publish_time_ms=1)


class TestThirdParty(FilterConformance):
    @pytest.fixture
    def make_filter(self, monkeypatch):
        monkeypatch.syspath_prepend(EXAMPLE)
        from offload_property_filter import PropertyFilter

        yield PropertyFilter
        sys.modules.pop("offload_property_filter", None)

    @pytest.fixture
    def options(self):
        return {"name": "level", "value": "debug"}

    @pytest.fixture
    def entries(self):
        sorts = [({"level": "debug"}, "property level=debug"), ({"level": "info"}, None), ({}, None)]
        return [(sent(**properties), cause) for properties, cause in sorts]

    @pytest.fixture
    def malformed(self):
        return [b"", b"not an entry", damaged(sent(level="debug"))]
