"""What tests of the verbs share: a hot tier and a cold one in folders of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from offload_core.storage.hot import FileLedgerStore
from offload_hooks.ledger_stores import LedgerReader
from pulsar_offload import TierReader, open_tier

Sealed = Callable[[Sequence[bytes]], LedgerReader]


@pytest.fixture
def hot(tmp_path: Path) -> Iterator[FileLedgerStore]:
    store = FileLedgerStore(tmp_path / "hot", sync="never")
    yield store
    store.close()


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[TierReader]:
    with open_tier(tmp_path / "cold") as tier:
        yield tier


@pytest.fixture
def sealed(hot: FileLedgerStore) -> Sealed:
    """Makes a sealed ledger of these payloads."""

    def make(payloads: Sequence[bytes]) -> LedgerReader:
        writer = hot.create({"component": b"managed-ledger"})
        if payloads:
            writer.append_batch(payloads)
        writer.close()
        return hot.open(writer.ledger_id)

    return make
