"""Spark over topics of which a filter left out entries: batches and streams give exactly what is left."""

import tempfile
from pathlib import Path

import pytest
from effort import effort
from entries import entry
from hypothesis import given
from hypothesis import strategies as st
from scenes.drawn import DrawnTopic, FilteredLedger, filtered_topics
from streams import Query
from tiers import TOPIC

from offload_core.metadata.records import pack_managed_ledger_info
from pulsar_offload import open_tier

PLACE = ("__ledgerId", "__entryId")


@pytest.mark.long
@effort(0.4)
@given(topic=filtered_topics(["pip17", "streaming"]), data=st.data())
def test_a_stream_over_gaps_gives_each_entry_once_and_comes_to_the_end(topic, data):
    """Object by object, in steps of any size, started anew in between, with a record or without."""
    with_records, limit = data.draw(st.booleans()), data.draw(st.sampled_from([1, 3, 1000]))
    with tempfile.TemporaryDirectory() as folder:
        root, record = Path(folder, "tier"), Path(folder, "record")
        root.mkdir()
        options = {"level": "entries", "maxOffsetsPerTrigger": limit}
        if with_records:
            options["records"] = f"{TOPIC}={record}"
        query = Query(root, columns=PLACE, **options)
        kept: list[tuple[int, int]] = []
        for number, each in enumerate(topic.objects(), start=1):
            with open_tier(root) as tier:
                each.put(tier.store)
            record.write_bytes(pack_managed_ledger_info(topic.info(number)))
            kept += each.kept
            query.run()
            assert query.rows == kept
            if data.draw(st.booleans()):
                query.restart()
        assert not query.trigger(), "nothing is read again"


@pytest.mark.spark
def test_a_query_and_a_stream_of_a_topic_with_gaps(spark, tmp_path):
    values = [entry(b"value %d" % i) for i in range(60)]
    kept = frozenset(i for i in range(60) if not 10 <= i < 25 and i % 3)
    blocks = [[0, 10, 20], [30, 40, 50]]
    topic = DrawnTopic(
        ledgers=[
            FilteredLedger(
                ledger_id=3, layout="pip17", payloads=values, kept=kept, blocks=[[*range(0, 60, 10)]]
            ),
            FilteredLedger(ledger_id=4, layout="pip17", payloads=values, kept=frozenset(), blocks=[[0]]),
            FilteredLedger(ledger_id=5, layout="streaming", payloads=values, kept=kept, blocks=blocks),
        ]
    )
    with open_tier(tmp_path / "tier") as tier:
        for each in topic.objects():
            each.put(tier.store)
    (tmp_path / "record").write_bytes(pack_managed_ledger_info(topic.info()))
    options = {"topic": TOPIC, "records": f"{TOPIC}={tmp_path / 'record'}", "minPartitions": "2"}
    frame = spark.read.format("pulsar_offload").options(**options).load(str(tmp_path / "tier"))
    found = frame.filter("__entryId >= 8 and __entryId < 27 and __ledgerId = 5").select("__entryId")
    assert sorted(row[0] for row in found.collect()) == [8, 25, 26]
    assert frame.filter("__entryId between 11 and 23").count() == 0
    stream = spark.readStream.format("pulsar_offload").options(
        **options, startingOffsets="earliest", maxOffsetsPerTrigger="90"
    )
    writer = stream.load(str(tmp_path / "tier")).select(*PLACE, "value").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query = writer.start(str(tmp_path / "out"))
    try:
        query.awaitTermination(300)
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert {(row["__ledgerId"], row["__entryId"]): bytes(row["value"]) for row in rows} == {
        place: b"value %d" % place[1] for place in topic.kept
    }
    assert len(rows) == len(topic.kept)
