"""Listing, counting and recovering on each store: sizes are right, and records come back."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from scenes.rollbacks import put_segment
from tiers import TOPIC, put_broker_objects

from offload_core.maintenance.inventory import By, RowLevel, measure, recorded_ledgers, rows_of
from offload_core.maintenance.record_recovery import recover_records
from offload_core.metadata.catalogue import list_catalogue, open_records
from offload_core.metadata.catalogue.survey import LedgerSurvey
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import MeasuredTier
from offload_hooks.testing import MemoryMetadataStore
from offload_hooks.values import SETTLED_S
from pulsar_offload import scan

pytestmark = pytest.mark.sampled(6)

CLASSES = {"s3": {"STANDARD"}, "gcs": {"STANDARD"}, "azure": {"Hot"}}
"""Storage classes as the test servers name them; other stores have none."""


def test_records_come_back_and_bytes_are_counted(store):
    with store.open_reader() as reader:
        tier = reader.store
        put_broker_objects(tier, ["json"])
        put_segment(tier, 1, (5, 0, 3), (6, 0, 2))
        records = ManagedLedgerRecords(MemoryMetadataStore())
        found = list(recover_records(tier, records, _Nowhere()))
        infos = {each.rebuilt.topic.full: each.rebuilt.info for each in found if each.rebuilt.topic}
        for topic in (TOPIC, "persistent://acme/cold/json"):
            scans = [
                scan(reader, topic, level="entries", records=given).to_table()
                for given in (None, {topic: infos[topic]})
            ]
            assert scans[0] == scans[1]
            assert scans[0].num_rows
        listed = list(tier.list_objects())
        usage = measure(tier, now=datetime.now(UTC))
        assert usage.size_bytes[()] == sum(each.size_bytes for each in listed)
        assert usage.objects[("acme", "cold", "orders")] == 2
        assert {each.storage_class for each in listed} == CLASSES.get(store.name, {None})
        classes = measure(tier, by=By.STORAGE_CLASS, now=datetime.now(UTC))
        assert classes.size_bytes[()] == usage.size_bytes[()]
        with LedgerSurvey() as survey:
            survey.fill(tier)
            (row,) = rows_of(survey.ledgers(), RowLevel.NAMESPACE)
        assert (row.name, row.topics, row.storage_classes) == (
            "acme/cold",
            2,
            tuple({each.storage_class: None for each in listed if each.storage_class}),
        )
        with open_records({TOPIC: infos[TOPIC]}, tier, {}) as source:
            (row,) = rows_of(recorded_ledgers(tier, source), RowLevel.NAMESPACE)
        assert set(row.storage_classes) == {each.storage_class for each in listed if each.storage_class}


def test_a_second_look_asks_for_the_listing_only_where_objects_have_versions(store):
    with store.open_reader() as reader:
        put_broker_objects(reader.store, ["json", "avro"])
        has_versions = {each.version is not None for each in reader.store.list_objects()}
        assert has_versions == {store.name in CLASSES}
        time.sleep(SETTLED_S + 1)
        looks = []
        for _ in range(2):
            measured = MeasuredTier(reader.store)
            looks.append((list_catalogue(measured, cached=True), measured.requests))
        (first, asked), (second, asked_again) = looks
        assert first == second == list_catalogue(reader.store)
        assert bool(asked.heads) != reader.store.reads_whole
        assert asked.gets
        assert asked_again == (
            replace(asked, heads=0, gets=0, read_bytes=0) if True in has_versions else asked
        )


class _Nowhere:
    def record(self, change):
        """Nothing is kept of it."""
