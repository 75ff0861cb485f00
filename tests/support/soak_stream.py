"""The job of `test_live_soak`: follows a topic on executors of its own, and keeps the rows of each batch in a file.

A query that fails is started again, from its checkpoint.

`python soak_stream.py FOLDER` reads the options of the source from `FOLDER/options.json`, and ends when there is a file
`FOLDER/stop`.
"""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

NAME_BYTES = 11
"""Each value begins with its name, of so many bytes."""
MOST_FAILURES = 100
"""Times that the query may fail: on a busy machine Python does not start in the ten seconds that Spark gives it."""


def keep(folder, batch, number):
    """Store a batch, again if it is given again: each number is one file."""
    import pyarrow.parquet as pq

    path = folder / f"{number:08}.parquet"
    pq.write_table(batch.toArrow(), path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


def main(folder):
    """See the module."""
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession, functions

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.deploy.maxExecutorRetries", "-1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "WARN")
        .getOrCreate()
    )
    (folder / "rows").mkdir(exist_ok=True)
    reader = spark.readStream.format("pulsar_offload").options(
        **json.loads((folder / "options.json").read_text())
    )
    name = functions.substring("value", 1, NAME_BYTES).alias("name")
    started = (
        reader.load()
        .select("__ledgerId", "__entryId", "__batchIndex", name)
        .writeStream.foreachBatch(partial(keep, folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="2 seconds")
        .start
    )
    query, failures = started(), 0
    while not (folder / "stop").exists():
        try:
            query.awaitTermination(1)
        except StreamingQueryException:
            failures += 1
            if failures > MOST_FAILURES:
                raise
            time.sleep(2)
            query = started()  # from its checkpoint, as who runs it would
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
