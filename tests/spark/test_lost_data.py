"""Spark over a topic whose data object is gone, and whose index is left: neither 0 rows nor a stream that waits."""

import pytest
from entries import entry, pip17_object
from streams import Query
from tiers import TOPIC, lay_out

from offload_hooks.errors import DataLossError


@pytest.fixture(autouse=True)
def _lost(tmp_path):
    """A tier with the index of one ledger."""
    lay_out(tmp_path, pip17_object([entry(b"value")] * 3, ledger_id=5), parts=["index"])


def test_a_stream_of_a_topic_whose_only_ledger_is_lost_fails(tmp_path):
    asked = {"columns": ("__ledgerId", "__entryId"), "level": "entries"}
    with pytest.raises(DataLossError, match="no data object"):
        Query(tmp_path, **asked).run()
    assert Query(tmp_path, **asked, failOnDataLoss=False).run() == []


@pytest.mark.spark
def test_a_query_of_a_topic_whose_only_ledger_is_lost_fails(spark, tmp_path):
    reader = spark.read.format("pulsar_offload").options(path=str(tmp_path), topic=TOPIC, level="entries")
    with pytest.raises(Exception, match="no data object") as caught:
        reader.load().count()
    (*_, last) = [line for line in str(caught.value).splitlines() if "SQLSTATE" not in line and line.strip()]
    assert last.startswith("offload_hooks.errors.DataLossError: ")
    assert last.endswith("What there is can be read: failOnDataLoss=false.")
    frames = [line for line in str(caught.value).splitlines() if line.strip().startswith("File ")]
    assert [line for line in frames if "offload_" in line and "query_errors.py" not in line] == []
    assert reader.option("failOnDataLoss", "false").load().count() == 0
