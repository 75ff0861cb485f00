"""A topic is deleted with what it says: after any failure of the metadata the same call again leaves nothing of it."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace

import pytest
from managed_ledgers import NAME

from offload_core.metadata.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.writing.managed_ledger import Environment, delete_managed_ledger, open_managed_ledger
from offload_core.writing.settings import PolicyStore
from offload_hooks.errors import StoreError
from offload_hooks.testing import FaultyMetadataStore, MemoryMetadataStore

TOPIC = topic_of_managed_ledger(NAME)


@pytest.mark.parametrize("fault", ["unavailable", "unknown-before", "unknown-after"])
def test_whichever_call_of_the_metadata_fails(environment: Environment, fault: str) -> None:
    for number in itertools.count():
        store = FaultyMetadataStore(MemoryMetadataStore())
        policies = PolicyStore(store)
        changed = replace(
            environment,
            records=ManagedLedgerRecords(store),
            forget=lambda name, policies=policies: policies.forget_topic(topic_of_managed_ledger(name)),
        )
        open_managed_ledger(changed, NAME).close()
        policies.change_topic(TOPIC, lambda level: level.with_fields(max_threads=3))
        failing = len(store.calls) + 1 + number
        store.choose = lambda call, failing=failing: fault if call.number == failing else None
        with suppress(StoreError):
            delete_managed_ledger(changed, NAME)
        is_over = len(store.calls) < failing
        store.choose = lambda _: None
        delete_managed_ledger(changed, NAME)
        assert list(store.children("/admin/topic-policies/acme/cold/persistent")) == []
        assert list(store.children("/managed-ledgers/acme/cold/persistent")) == []
        if is_over:
            break
    assert number >= 7
