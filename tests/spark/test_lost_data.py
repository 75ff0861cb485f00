"""Spark over a topic whose data object is gone, and whose index is left: neither 0 rows nor a stream that waits."""

import pytest
from entries import LedgerPart, entry, pip17_object, streaming_object
from streams import Query
from tiers import TOPIC, lay_out

from offload_hooks.errors import DataLossError

PLACE = ("__ledgerId", "__entryId")
VALUES = [entry(b"value %d" % i) for i in range(3)]


def lay(root, layout, number, *parts):
    """Ledger 5."""
    ledger = LedgerPart(ledger_id=5, blocks=[VALUES])
    written = pip17_object(VALUES, ledger_id=5) if layout == "pip17" else streaming_object([ledger])
    lay_out(root, written, attempt=number, parts=parts)


@pytest.mark.parametrize("layout", ["pip17", "streaming"])
def test_a_stream_of_a_topic_whose_only_ledger_is_lost_fails(tmp_path, layout):
    lay(tmp_path, layout, 1, "index")
    with pytest.raises(DataLossError, match="no data object"):
        Query(tmp_path, columns=PLACE, level="entries").run()
    query = Query(tmp_path, columns=PLACE, level="entries", failOnDataLoss=False)
    query.run()
    assert query.rows == []


@pytest.mark.spark
def test_a_query_of_a_topic_whose_only_ledger_is_lost_fails(spark, tmp_path):
    lay(tmp_path, "pip17", 1, "index")
    reader = spark.read.format("pulsar_offload").options(path=str(tmp_path), topic=TOPIC, level="entries")
    with pytest.raises(Exception, match="no data object"):
        reader.load().count()
    assert reader.option("failOnDataLoss", "false").load().count() == 0
