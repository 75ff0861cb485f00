"""The job of `test_cluster`: counts a tier's messages on `local-cluster`, in an executor of its own."""

import os
import sys

from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
builder = (
    SparkSession.builder.master("local-cluster[1,1,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.log.level", "ERROR")
    .config("spark.sql.shuffle.partitions", "2")
)
if "EXECUTORS_PYTHONPATH" in os.environ:
    builder = builder.config("spark.executorEnv.PYTHONPATH", os.environ["EXECUTORS_PYTHONPATH"])
spark = builder.getOrCreate()
frame = spark.read.format("pulsar_offload").option("minPartitions", "6").load(sys.argv[1])
print("partitions", frame.rdd.getNumPartitions())
for row in frame.groupBy("__topic").count().orderBy("__topic").collect():
    print(row["__topic"], row["count"])
spark.stop()
