"""Where a driver reads an index with its user metadata by one request, a listing takes one request for each pair."""

from __future__ import annotations

from dataclasses import replace

import pytest
from entries import LedgerPart, pip17_object, streaming_object
from tiers import MemoryDriver, Names, numbered

from offload_core.metadata.catalogue import list_catalogue, listing
from offload_core.reading.scan import read_task
from offload_core.storage.tier import Tier
from offload_hooks import ObjectStat, WholeObject, hookimpl
from offload_hooks.errors import ObjectNotFoundError
from pulsar_offload import TierReader, scan

OBJECTS = [
    *(pip17_object([b"one", b"", b"three"], ledger_id=ledger_id) for ledger_id in (1, 2, 3)),
    streaming_object([LedgerPart(ledger_id=4, blocks=[[b"f"]]), LedgerPart(ledger_id=5, blocks=[[b"g"]])]),
]


class WholeDriver(MemoryDriver):
    """Reads objects whole, and counts its calls."""

    def __init__(self, **metadata):
        super().__init__(numbered(*OBJECTS), metadata=Names().as_metadata("data"), **metadata)
        self.wholes: list[str] = []
        self.stats: list[str] = []

    @hookimpl
    def read_object(self, key, most_bytes):
        self.wholes.append(key)
        assert most_bytes == listing.MOST_INDEX_BYTES
        stat = super().stat(key)
        return WholeObject(stat=stat, data=self.objects[key])

    @hookimpl
    def stat(self, key) -> ObjectStat:
        self.stats.append(key)
        return super().stat(key)


def plain_catalogue(**options):
    return list_catalogue(
        Tier(MemoryDriver(numbered(*OBJECTS), metadata=Names().as_metadata("data"))), **options
    )


@pytest.mark.parametrize("read_indexes", [True, False])
def test_a_pair_is_one_request(read_indexes):
    driver = WholeDriver()
    found = list_catalogue(Tier(driver), read_indexes=read_indexes)
    assert sorted(driver.wholes) == sorted(key for key in driver.objects if "index" in key)
    assert (driver.stats, driver.reads) == ([], [])
    if read_indexes:
        assert found == plain_catalogue()
    else:
        assert [ledger.ledger_id for topic in found.topics for ledger in topic.ledgers] == [1, 2, 3, 4, 5]


def test_tasks_have_the_indexes_that_the_plan_has_read():
    driver = WholeDriver()
    with TierReader(Tier(driver)) as tier:
        planned = scan(tier, level="entries", isolation="uncommitted")
        driver.wholes.clear()
        rows = [batch for task in planned.tasks for batch in read_task(tier.store, task, planned.options)]
    assert sum(each.num_rows for each in rows) == 3 * 3 + 2
    assert (driver.wholes, driver.stats) == ([], [])
    assert all("index" not in key for key, *_ in driver.reads)


def test_an_index_without_names_leaves_them_to_the_data_object():
    class NamesOnDataOnly(WholeDriver):
        @hookimpl
        def read_object(self, key, most_bytes):
            whole = super().read_object(key, most_bytes)
            return replace(whole, stat=replace(whole.stat, user_metadata={}))

    driver = NamesOnDataOnly()
    assert list_catalogue(Tier(driver)) == plain_catalogue()
    assert sorted(driver.stats) == sorted(key for key in driver.objects if "index" not in key)


def test_an_index_that_was_replaced_after_the_listing_is_read_as_it_was_listed():
    class Replaced(WholeDriver):
        @hookimpl
        def read_object(self, key, most_bytes):
            whole = super().read_object(key, most_bytes)
            return replace(whole, stat=replace(whole.stat, version="another"))

    driver = Replaced()
    assert list_catalogue(Tier(driver)) == plain_catalogue()
    assert len(driver.stats) == len(OBJECTS)


def test_a_large_index_is_not_read_for_its_names(monkeypatch):
    monkeypatch.setattr(listing, "MOST_INDEX_BYTES", 10)
    driver = WholeDriver()
    assert list_catalogue(Tier(driver)) == plain_catalogue()
    assert driver.wholes == []


def test_a_pair_whose_index_vanishes_after_the_listing_is_passed_over():
    class Vanishing(WholeDriver):
        @hookimpl
        def read_object(self, key, most_bytes):
            if key == sorted(self.objects)[1]:
                raise ObjectNotFoundError("it is gone", key=key)
            return super().read_object(key, most_bytes)

    found = list_catalogue(Tier(Vanishing()))
    assert [ledger.ledger_id for topic in found.topics for ledger in topic.ledgers] == [2, 3, 4, 5]
