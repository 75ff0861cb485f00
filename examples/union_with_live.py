"""Cold and live data of a topic in one frame: what was offloaded, and what a live read of the broker gives.

Names and types of our columns are those of streamnative/pulsar-spark, so a live frame of its source fits. A message
that is in both, since it was offloaded a moment ago, is there once: its message id says so.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

LIVE_COLUMNS = (
    "value",
    "__key",
    "__topic",
    "__messageId",
    "__publishTime",
    "__eventTime",
    "__messageProperties",
)
"""What pulsar-spark's source gives of a topic without a schema."""


def union_with_live(cold: DataFrame, live: DataFrame) -> DataFrame:
    """All messages of both frames, each once, with the columns that the live one has."""
    columns = [name for name in LIVE_COLUMNS if name in live.columns]
    both = cold.select(*columns).unionByName(live.select(*columns))
    return both.dropDuplicates(["__topic", "__messageId"])
