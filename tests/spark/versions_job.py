"""The job of `test_other_sparks`: reads a tier in each way that a Spark has; its rows go to files of Arrow.

Arguments: the tier, the folder for the files, and the URL of a Spark Connect server, if the session shall be one of it.
Before Spark 4.0 there are no Python sources.
"""

import os
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

from pulsar_offload import read_offloaded

os.environ["PYSPARK_PYTHON"] = sys.executable
tier, folder, *servers = sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]
spark = (
    SparkSession.builder.remote(servers[0]).getOrCreate()
    if servers
    else SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.log.level", "ERROR")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    .getOrCreate()
)


def write(name, frame):
    as_3_5 = not hasattr(frame, "toArrow")
    table = pa.Table.from_batches(frame._collect_as_arrow()) if as_3_5 else frame.toArrow()
    with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)


frame = read_offloaded(spark, tier, maxPartitionBytes=50_000)
assert frame.selectExpr("spark_partition_id() AS number").distinct().count() > 5
write("frame.arrow", frame)
if hasattr(spark, "dataSource"):
    reader = spark.read.format("pulsar_offload").option("maxPartitionBytes", "50000")
    write("batch.arrow", reader.load(tier))
    reader = spark.readStream.format("pulsar_offload").option("startingOffsets", "earliest")
    stream = reader.load(tier).writeStream.format("memory")
    stream = stream.queryName("rows").option("checkpointLocation", str(folder / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    write("stream.arrow", spark.table("rows"))
    spark.sql(f"CREATE TABLE tabled USING pulsar_offload OPTIONS (path '{tier}', maxPartitionBytes '50000')")
    write("table.arrow", spark.table("tabled"))
print(pyspark.__version__, spark.version)
spark.stop()
