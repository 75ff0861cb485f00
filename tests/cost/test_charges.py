"""Counts times prices, by hand, and what moves and merging save."""

import pytest

from offload_core.maintenance.inventory.charges import money_of, month_of_storage, offload_requests, weigh
from offload_core.maintenance.inventory.prices import Prices, StorageClass
from offload_core.maintenance.inventory.stored_amounts import StoredAmount
from offload_core.storage.tier import Requests
from offload_hooks.errors import OptionError

GB = 1_000_000_000
HOT = StorageClass(storage_per_gb_month=0.02, put_per_1000=5, get_per_1000=0.4, list_per_1000=6)
COLD = StorageClass(
    storage_per_gb_month=0.01,
    put_per_1000=10,
    get_per_1000=1,
    head_per_1000=2,
    retrieval_per_gb=0.5,
    minimum_days=30,
    minimum_object_bytes=100_000,
)


def tariff(name, currency="EUR"):
    told = {"name": "ours", "as_of": "today", "currency": currency, "gb_bytes": GB, "egress_per_gb": 0.1}
    return Prices(**told, default_class="hot", classes={"hot": HOT, "cold": COLD}).tariff(name)


def stored(**changes):
    given = {"copies": 1000, "objects": 2000, "data_bytes": 50 * GB, "other_bytes": 10_000_000, "parts": 1500}
    return StoredAmount(**(given | changes))


def test_small_objects_are_paid_for_as_the_least_in_a_month_of_storage():
    assert month_of_storage(stored(), tariff("hot")) == pytest.approx(50.01 * 0.02)
    lacking = stored(padding={100_000: 2 * GB, 7: 900 * GB})
    assert month_of_storage(lacking, tariff("cold")) == pytest.approx(52.01 * 0.01)
    assert month_of_storage(lacking, tariff("hot")) == pytest.approx(50.01 * 0.02)


def test_writing_takes_the_parts_the_two_ends_of_an_upload_and_the_index():
    assert offload_requests(stored()) == Requests(puts=1500 + 3 * 1000)
    assert offload_requests(stored(mapfiles=1000, parts=1000)) == Requests(puts=2000)
    assert money_of(offload_requests(stored()), tariff("hot")).total == pytest.approx(4.5 * 5)


def test_a_scan_is_paid_by_its_kinds_of_requests():
    scan = Requests(lists=2, heads=1000, gets=3000, read_bytes=10 * GB)
    here = money_of(scan, tariff("hot"))
    # A lookup as a read, where nothing else is said.
    assert (here.requests, here.retrieval, here.egress) == pytest.approx((0.012 + 0.4 + 1.2, 0, 0))
    there = money_of(scan, tariff("cold"), leaves=True)
    assert (there.requests, there.retrieval, there.egress) == pytest.approx((2 + 3, 5, 1))


def test_moving_to_a_cheaper_class():
    move = weigh({"a": stored(data_bytes=500 * GB)}, tariff("hot"), tariff("cold"))
    assert (move.month, move.month_then) == (pytest.approx(500.01 * 0.02), pytest.approx(500.01 * 0.01))
    assert move.writing == pytest.approx(4.5 * 10)
    assert move.reading == pytest.approx((2000 + 500 * GB // (8 << 20) + 1000) * 0.4 / 1000)
    assert (move.egress, move.early, move.objects_then) == (0, 0, 2000)
    assert move.months_to_pay == pytest.approx(move.once / (500.01 * 0.01))


def test_what_is_deleted_early_is_paid_for():
    young = stored(early_byte_days={30: 15 * 50 * GB})
    move = weigh({"a": young}, tariff("cold"), tariff("hot"), leaves=True)
    assert move.early == pytest.approx(50 * 0.01 / 2)
    assert move.egress == pytest.approx(5.001)
    assert move.reading > 25  # retrieval
    assert move.months_to_pay is None


def test_merging_small_ledgers_leaves_fewer_objects_and_no_padding():
    small = stored(data_bytes=20_000_000, parts=1000, padding={100_000: 1000 * 80_000 + 1000 * 90_000})
    scan = Requests(lists=2, heads=1000, gets=2000, read_bytes=30_000_000)
    move = weigh({"a": small, "b": small}, tariff("cold"), tariff("cold"), merge_bytes=10_000_000, scan=scan)
    assert (move.objects, move.objects_then) == (4000, 8)  # two segments a topic
    assert move.month == pytest.approx(2 * (0.03 + 0.17) * 0.01)
    assert move.month_then == pytest.approx(2 * 0.03 * 0.01)
    assert move.scan_then == Requests(lists=1, heads=0, gets=4, read_bytes=30_000_000)
    assert move.scan_cost_then < move.scan_cost
    merged = weigh({"a": stored()}, tariff("hot"), tariff("hot"), merge_bytes=1)
    assert merged.objects_then == 2000, "no more than there are"


def test_currencies_are_not_mixed():
    with pytest.raises(OptionError, match="expected EUR, found USD"):
        weigh({"a": stored()}, tariff("hot"), tariff("hot", "USD"))
    with pytest.raises(OptionError, match="1 byte"):
        weigh({"a": stored()}, tariff("hot"), tariff("hot"), merge_bytes=0)
