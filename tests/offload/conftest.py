"""What tests of the verbs share: a hot tier and a cold one in folders of their own."""

import pytest

from offload_core.storage.hot import FileLedgerStore
from pulsar_offload import open_tier


@pytest.fixture
def hot(tmp_path):
    store = FileLedgerStore(tmp_path / "hot", sync="never")
    yield store
    store.close()


@pytest.fixture
def cold(tmp_path):
    with open_tier(tmp_path / "cold") as tier:
        yield tier


@pytest.fixture
def sealed(hot):
    """Makes a sealed ledger of these payloads."""

    def make(payloads):
        writer = hot.create({"component": b"managed-ledger"})
        if payloads:
            writer.append_batch(payloads)
        writer.close()
        return hot.open(writer.ledger_id)

    return make
