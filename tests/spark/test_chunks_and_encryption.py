"""Chunked and encrypted messages through Spark, and the latest value of each key by the documentation's query."""

import re
from pathlib import Path

import pytest
from entries import entry, pip17_object
from pyspark.errors import PySparkException
from scenes.messages import SentMessage, interleaved, write_keys
from tiers import lay_out

pytestmark = [pytest.mark.spark, pytest.mark.sampled(12)]

SPARK_PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
MESSAGES = [
    SentMessage(
        producer=producer,
        number=number,
        value=f"{producer}{number} ".encode() * 90,
        chunks=5,
        key_name="orders",
    )
    for number in range(4)
    for producer in "ab"
]


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    """Messages of five chunks each, of two producers in turns, encrypted, over three ledgers."""
    root = tmp_path_factory.mktemp("tier")
    stored = [each.payload for each in interleaved(MESSAGES, [0, 1] * 40)]
    for ledger_id, (start, stop) in enumerate([(0, 7), (7, 22), (22, 40)]):
        written = pip17_object(stored[start:stop], ledger_id=ledger_id, max_block_bytes=2000)
        lay_out(root, written, attempt=ledger_id)
    return root


def read(spark, tier, **options):
    options = {"columns": "__ledgerId,__entryId,value", **options}
    return spark.read.format("pulsar_offload").options(**options).load(str(tier))


def test_partitions_join_what_begins_in_others(spark, tier, tmp_path):
    keys = write_keys(tmp_path / "keys", "orders")
    frame = read(spark, tier, keyProvider=f"pem:directory={keys}", maxPartitionBytes=2000)
    assert frame.rdd.getNumPartitions() > 5
    found = [bytes(row.value) for row in frame.orderBy("__ledgerId", "__entryId").collect()]
    assert sorted(found) == sorted(message.value for message in MESSAGES)


def test_what_cannot_be_decrypted_is_an_error_that_names_the_key(spark, tier, tmp_path):
    with pytest.raises(PySparkException, match="'orders'"):
        read(spark, tier, cryptoFailureAction="fail").collect()
    keys = write_keys(tmp_path / "keys", "payments")
    with pytest.raises(PySparkException, match="'orders'"):
        read(spark, tier, keyProvider=f"pem:directory={keys}").collect()
    assert read(spark, tier, cryptoFailureAction="discard").count() == 0
    assert read(spark, tier).count() == 40


def test_the_query_for_compacted_topics_gives_the_latest_value_of_each_key(spark, tmp_path):
    written = [("a", b"1"), ("b", b"1"), (None, b"no key"), ("a", b"2"), ("c", b"1"), ("b", None), ("c", b"")]
    entries = [
        entry(value or b"", null_value=value is None, **({} if key is None else {"partition_key": key}))
        for key, value in written
    ]
    for ledger_id, part in enumerate([entries[:3], entries[3:]]):
        lay_out(tmp_path, pip17_object(part, ledger_id=ledger_id), attempt=ledger_id)
    section = SPARK_PAGE.read_text().partition("## Compacted topics")[2]
    example = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    names = {"spark": spark, "messages": spark.read.format("pulsar_offload").load(str(tmp_path))}
    exec(example[1], names)
    rows = names["latest"].collect()
    assert {bytes(row[0]): bytes(row[1]) for row in rows} == {b"a": b"2"}
