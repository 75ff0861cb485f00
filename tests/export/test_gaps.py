"""Exports of topics of which a filter left out entries: each message that is left once, however often one begins."""

import tempfile
from pathlib import Path

import pyarrow.parquet as pq
from effort import effort
from hypothesis import given
from hypothesis import strategies as st
from scenes.drawn import filtered_topics
from tiers import TOPIC

from pulsar_offload import export, open_tier, scan

PLACE = ["__ledgerId", "__entryId", "__batchIndex"]


@effort(0.3)
@given(topic=filtered_topics(["pip17", "streaming"]), data=st.data())
def test_a_growing_topic_with_gaps_is_exported_once(topic, data):
    with_records = data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as folder, open_tier(Path(folder, "tier")) as tier:
        objects = list(topic.objects())
        for number, each in enumerate(objects, start=1):
            each.put(tier.store)
            if number < len(objects) and data.draw(st.booleans()):
                continue
            records = {TOPIC: topic.info(number)} if with_records else None
            for _ in range(2):
                export(tier, Path(folder, "out"), topics_pattern=".*", records=records, file_bytes=600)
        files = Path(folder, "out").rglob("topic=*/*/*.parquet")
        tables = [pq.read_table(file, columns=PLACE, partitioning=None) for file in files]
        found = [tuple(row.values()) for table in tables for row in table.to_pylist()]
        planned = scan(tier, topics_pattern=".*", columns=PLACE, records={TOPIC: topic.info()})
        wanted = [tuple(row[name] for name in PLACE) for batch in planned for row in batch.to_pylist()]
        assert sorted(found) == wanted
        assert sorted({row[:2] for row in wanted}) == topic.kept
