"""Arrow's types of our columns as Spark's."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as spark

_PLAIN: dict[pa.DataType, spark.DataType] = {
    pa.binary(): spark.BinaryType(),
    pa.bool_(): spark.BooleanType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.string(): spark.StringType(),
    pa.timestamp("us", tz="UTC"): spark.TimestampType(),
}


def spark_type(data_type: pa.DataType) -> spark.DataType:
    """The Spark type of an Arrow type that a column of ours has."""
    if pa.types.is_map(data_type):
        return spark.MapType(spark_type(data_type.key_type), spark_type(data_type.item_type))
    if pa.types.is_list(data_type):
        return spark.ArrayType(spark_type(data_type.value_type))
    if pa.types.is_struct(data_type):
        return spark_schema(pa.schema(list(data_type)))
    return _PLAIN[data_type]


def spark_schema(schema: pa.Schema) -> spark.StructType:
    """The Spark schema of an Arrow schema of ours; every column is nullable."""
    return spark.StructType([spark.StructField(field.name, spark_type(field.type)) for field in schema])
