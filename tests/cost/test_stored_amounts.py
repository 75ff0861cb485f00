"""What is stored, by topic and month: objects, bytes, parts, small objects and young ones."""

from datetime import UTC, datetime
from functools import partial

from entries import LedgerPart, entry, pip17_object, streaming_object
from mapfiles import lay_out_golden
from records import MANAGED_LEDGERS
from tiers import TOPIC, Names, lay_out, lay_out_broker_objects

from offload_core.maintenance.inventory.prices import StorageClass
from offload_core.maintenance.inventory.stored_amounts import by_topic, survey_stored
from offload_core.metadata.catalogue import UNKNOWN_TOPIC, open_records
from offload_core.storage.tier import open_store

PAYLOADS = [entry(b"%05d" % i * 100) for i in range(100)]
MAY, JUNE = datetime(2024, 5, 31, 23, 59, tzinfo=UTC), datetime(2024, 6, 1, tzinfo=UTC)
LARGE = pip17_object(PAYLOADS, ledger_id=1, max_block_bytes=20_000)
SMALL = pip17_object(PAYLOADS[:3], ledger_id=2)
SHARED = streaming_object(
    [LedgerPart(ledger_id=8, blocks=[PAYLOADS[:5]]), LedgerPart(ledger_id=9, blocks=[PAYLOADS])]
)


def test_by_topic_and_month_of_the_offload(tmp_path):
    lay_out(tmp_path, LARGE, attempt=1, modified_at=MAY)
    lay_out(tmp_path, SMALL, attempt=2, modified_at=JUNE)
    lay_out(tmp_path, SHARED, attempt=3, modified_at=JUNE, names=Names(managed_ledger=None))
    with open_store(tmp_path) as tier:
        found = survey_stored(tier)
        only = survey_stored(tier, topics=[TOPIC])
    assert list(found) == [(UNKNOWN_TOPIC, "2024-06", ""), (TOPIC, "2024-05", ""), (TOPIC, "2024-06", "")]
    assert list(only) == [(TOPIC, "2024-05", ""), (TOPIC, "2024-06", "")]
    may = found[TOPIC, "2024-05", ""]
    assert (may.copies, may.objects) == (1, 2)
    assert (may.data_bytes, may.other_bytes) == (len(LARGE.data), len(LARGE.index))
    assert may.parts == -(-len(LARGE.data) // 20_000) > 2
    assert found[UNKNOWN_TOPIC, "2024-06", ""].parts == 2
    together = by_topic(found)[TOPIC]
    assert together.copies == 2
    assert together.total_bytes == sum(len(each.data) + len(each.index) for each in (LARGE, SMALL))


def test_small_and_young_objects(tmp_path):
    lay_out(tmp_path, SMALL, modified_at=JUNE)
    strict = StorageClass(storage_per_gb_month=1, minimum_object_bytes=5_000, minimum_days=40)
    lax = StorageClass(storage_per_gb_month=1, minimum_days=10)
    with open_store(tmp_path) as tier:
        now = datetime(2024, 6, 16, tzinfo=UTC)
        found = survey_stored(tier, classes=(strict, lax), now=lambda: now)[TOPIC, "2024-06", ""]
    data, index = len(SMALL.data), len(SMALL.index)
    assert found.padding == {5_000: 5_000 - data + 5_000 - index}
    assert found.early_byte_days == {40: 25 * (data + index), 10: 0}


def test_what_is_broken_or_half_there_is_paid_for_too(tmp_path):
    key = lay_out(tmp_path, LARGE, attempt=1, parts=("data",))
    other = lay_out(tmp_path, SMALL, attempt=2)
    (tmp_path / f"{other}-index").write_bytes(b"nothing of the kind")
    with open_store(tmp_path) as tier:
        (found,) = by_topic(survey_stored(tier)).values()
    assert found.data_bytes == (tmp_path / key).stat().st_size + len(SMALL.data)
    assert (found.copies, found.parts, found.other_bytes) == (2, 2, 19)


def test_mapfiles_have_files_of_checksums(tmp_path):
    lay_out_golden(tmp_path)
    sizes = [path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()]
    with open_store(tmp_path) as tier:
        found = survey_stored(tier)
    assert sum(each.total_bytes for each in found.values()) == sum(sizes)
    assert sum(each.objects for each in found.values()) == len(sizes)
    assert all(each.mapfiles == each.copies == each.parts for each in found.values())


def test_records_say_the_same_as_the_bucket(tmp_path):
    lay_out_broker_objects(tmp_path)
    with open_store(tmp_path) as tier:
        listed = by_topic(survey_stored(tier))
        recorded = by_topic(survey_stored(tier, records=partial(open_records, MANAGED_LEDGERS, tier, {})))
    assert {topic: recorded[topic] for topic in listed} == listed
