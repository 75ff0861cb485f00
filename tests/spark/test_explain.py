"""What a query takes, told without a session, against the query's own partitions and what was counted."""

import pytest
from tiers import lay_out_broker_objects

from offload_core.interfaces.engines.spark.metrics import measure_reads
from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource, explain
from pulsar_offload import explain_scan, open_tier, read_offloaded

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    root = tmp_path_factory.mktemp("broker")
    lay_out_broker_objects(root, {"json", "nobatch", "comp-lz4"})
    return root


def test_as_the_query_would_be_planned(broker):
    options = {"topicsPattern": "acme/cold/.*", "maxPartitionBytes": 300_000, "verifyChecksums": True}
    told = explain(broker, **options)
    with open_tier(broker) as tier:
        assert told == explain_scan(tier, topics_pattern="acme/cold/.*", task_bytes=300_000)
    given = {"path": str(broker), "topicspattern": "acme/cold/.*", "maxpartitionbytes": "300000"}
    source = PulsarOffloadDataSource(given)
    assert told.partitions == len(source.reader(source.schema()).partitions()) > 3


def test_spark_reads_as_many_ranges_as_were_told(spark, broker):
    options = {"topic": "acme/cold/json", "isolation": "uncommitted", "maxPartitionBytes": 100_000}
    told = explain(broker, **options)
    metrics = measure_reads(spark)
    assert spark.read.format("pulsar_offload").options(**options).load(str(broker)).count() > 0
    assert (metrics.tasks, metrics.total.ranges) == (told.partitions, told.reading.gets)


def test_sparks_plan_names_what_is_read_and_no_place(spark, broker, capsys):
    given = {"topics": ["acme/cold/json", "acme/cold/nobatch"], "startingTimestamp": 5}
    frame = read_offloaded(spark, broker, **given)
    frame.where("__entryId > 3").explain()
    plan = capsys.readouterr().out
    assert "pulsar_offload[topics=acme/cold/json,acme/cold/nobatch; startingTimestamp=5]" in plan
    assert str(broker) not in plan
    read_offloaded(spark, broker).explain()
    assert "pulsar_offload[all topics]" in capsys.readouterr().out
