"""The filter passes the suite that every filter must pass."""

import pytest
from offload_hooks.testing import FilterConformance
from pulsar_offload import NewMessage, pack_entry

from {{ cookiecutter.module }} import {{ cookiecutter.plugin }}


def sent_by(producer):
    """An entry as Pulsar's clients send it."""
    message = NewMessage(key="ada", value=b"an order")
    return pack_entry([message], producer_name=producer, sequence_id=0, publish_time_ms=1_700_000_000_000)


class Test{{ cookiecutter.plugin }}(FilterConformance):
    @pytest.fixture
    def make_filter(self):
        return {{ cookiecutter.plugin }}

    @pytest.fixture
    def options(self):
        return {"producer": "monitor"}

    # Each entry with the cause for which it is dropped; None for one that is kept. Think of those that are
    # easily taken for another.
    @pytest.fixture
    def entries(self):
        return [
            (sent_by("shop"), None),
            (sent_by("monitor"), "producer monitor"),
            (sent_by("monitor-2"), None),
            (sent_by("x" * 300), None),
            (sent_by(""), None),
        ]

    # Entries that must not be decided on.
    @pytest.fixture
    def malformed(self):
        return [b"", sent_by("shop")[:12], b"\x00\x00\x00\x02\x0a\x07"]
