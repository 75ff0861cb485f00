"""A program of its own that streams a tier to Parquet until it is killed: `python streamed.py TIER OUT CHECKPOINT`."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

WRITER = Path(__file__)


def main(tier: str, out: str, checkpoint: str) -> None:
    """Micro-batches of a few entries, as fast as they come."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    reader = (
        spark.readStream.format("pulsar_offload")
        .option("level", "entries")
        .option("startingOffsets", "earliest")
    )
    frame = reader.option("maxOffsetsPerTrigger", "30").option("refreshIntervalMs", "1").load(tier)
    stream = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    stream.start(out).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
