"""Offloaded topics in SQL: a view over a tier, and a query that reads only the blocks of its range of time.

Run it with the URL of a tier: `python examples/batch_sql.py file:///data/offloaded`. Settings of the session (master,
memory) are `spark-submit`'s, or those of the environment.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession

BUSIEST = """
    SELECT __topic AS topic,
           date_trunc('minute', __publishTime) AS minute,
           count(*) AS messages,
           sum(octet_length(value)) AS payload_bytes
    FROM messages
    GROUP BY ALL
    ORDER BY messages DESC, topic, minute
    LIMIT 10
"""


def messages(spark: SparkSession, url: str, **options: object) -> DataFrame:
    """The messages of a tier; `options` are those of docs/spark.md."""
    reader = spark.read.format("pulsar_offload")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(url)


def busiest_minutes(spark: SparkSession, url: str, **options: object) -> DataFrame:
    """The ten minutes of a topic in which most was published. Only the columns that the query uses are decoded."""
    columns = "__topic,__publishTime,value"
    messages(spark, url, columns=columns, **options).createOrReplaceTempView("messages")
    return spark.sql(BUSIEST)


def main(url: str) -> None:
    """Print the busiest minutes, and then what was published in the last hour of them."""
    spark = SparkSession.builder.getOrCreate()
    busiest_minutes(spark, url).show(truncate=False)
    last = messages(spark, url, columns="__publishTime").selectExpr("max(__publishTime) AS time").first()
    if last is not None and last.time is not None:
        since = int(last.time.timestamp() * 1000) - 3_600_000
        messages(spark, url, startingTime=since).groupBy("__topic").count().show(truncate=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
