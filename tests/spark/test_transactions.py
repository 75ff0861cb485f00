"""Transactions through Spark: the option `isolation`."""

from collections import Counter

import pytest
from golden import COLUMNS, assert_topic_is_as_expected, sent_in_transactions
from pyspark.errors import PySparkException
from tiers import lay_out_broker_objects

pytestmark = pytest.mark.spark


def test_the_isolation_says_which_messages_are_read(spark, tmp_path):
    tier = tmp_path
    lay_out_broker_objects(tier, ["txn"])
    reader = (
        spark.read.format("pulsar_offload").option("topic", "acme/cold/txn").option("maxPartitionBytes", 1)
    )
    committed = reader.option("columns", ",".join(COLUMNS)).load(str(tier))
    assert_topic_is_as_expected(committed.toArrow().to_pylist(maps_as_pydicts="strict"), "txn")
    everything = reader.option("isolation", "uncommitted").option("columns", "__txnState").load(str(tier))
    states = Counter(row["__txnState"] for row in everything.collect())
    assert states.total() == len(sent_in_transactions())
    assert states.keys() == {None, "committed", "aborted"}
    with pytest.raises(
        PySparkException,
        match="isolation has no such word: expected committed, uncommitted, found serializable",
    ):
        reader.option("isolation", "serializable").load(str(tier)).collect()
