"""A tier that is followed into a Delta table, each message once: `python stream_to_delta.py URL TABLE CHECKPOINT`.

Spark plans and reads the micro-batches; deltalake writes them, so that no jar is needed. A micro-batch that Spark
repeats after a crash has a number that the table knows already, and is left out.
"""

from __future__ import annotations

import sys

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

APPLICATION = "pulsar-offload-example"


def append_once(batch: DataFrame, number: int, table: str) -> None:
    """Append micro-batch `number`, unless the table has it."""
    known = DeltaTable(table).transaction_version(APPLICATION) if DeltaTable.is_deltatable(table) else None
    if known is not None and known >= number:
        return
    write_deltalake(
        table,
        batch.toArrow(),
        mode="append",
        commit_properties=CommitProperties(app_transactions=[Transaction(APPLICATION, number)]),
    )


def follow(spark: SparkSession, url: str, table: str, checkpoint: str, **options: object) -> StreamingQuery:
    """Start a query that appends what arrives in the tier to a Delta table."""
    reader = spark.readStream.format("pulsar_offload").option("startingOffsets", "earliest")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    columns = ("__topic", "__publishTime", "__key", "value", "__ledgerId", "__entryId", "__batchIndex")
    writer = reader.option("columns", ",".join(columns)).load(url).writeStream
    return (
        writer.foreachBatch(lambda batch, number: append_once(batch, number, table))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def main(url: str, table: str, checkpoint: str) -> None:
    """Append what is new, and end; a timer may call this again and again."""
    spark = SparkSession.builder.getOrCreate()
    follow(spark, url, table, checkpoint).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
