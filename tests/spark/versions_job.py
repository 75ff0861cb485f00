"""The job of `test_other_sparks`: reads a tier by a query and by a stream; its rows go to files of Arrow.

Arguments: the tier, and the folder for the files.
"""

import os
import sys
from pathlib import Path

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
tier, folder = sys.argv[1], Path(sys.argv[2])
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.log.level", "ERROR")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    .getOrCreate()
)


def write(name, frame):
    table = frame.toArrow()
    with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)


write("batch.arrow", spark.read.format("pulsar_offload").option("maxPartitionBytes", "50000").load(tier))
stream = spark.readStream.format("pulsar_offload").load(tier).writeStream.format("memory").queryName("rows")
query = stream.trigger(availableNow=True).option("checkpointLocation", str(folder / "checkpoint")).start()
query.awaitTermination()
write("stream.arrow", spark.table("rows"))
print(pyspark.__version__, spark.version)
spark.stop()
