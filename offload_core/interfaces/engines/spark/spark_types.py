"""Arrow types of our columns as Spark types.

Spark has no plain type for a time of day: it gets the number, as from its own `from_avro`.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as spark

_PLAIN: dict[pa.DataType, spark.DataType] = {
    pa.binary(): spark.BinaryType(),
    pa.bool_(): spark.BooleanType(),
    pa.date32(): spark.DateType(),
    pa.float32(): spark.FloatType(),
    pa.float64(): spark.DoubleType(),
    pa.int8(): spark.ByteType(),
    pa.int16(): spark.ShortType(),
    pa.int32(): spark.IntegerType(),
    pa.int64(): spark.LongType(),
    pa.null(): spark.NullType(),
    pa.string(): spark.StringType(),
    pa.timestamp("us", tz="UTC"): spark.TimestampType(),
    pa.timestamp("us"): spark.TimestampNTZType(),
}


def spark_type(data_type: pa.DataType) -> spark.DataType:
    """The Spark type of an Arrow type that a column of ours has."""
    if pa.types.is_map(data_type):
        return spark.MapType(spark_type(data_type.key_type), spark_type(data_type.item_type))
    if pa.types.is_list(data_type):
        return spark.ArrayType(spark_type(data_type.value_type))
    if pa.types.is_struct(data_type):
        return spark_schema(pa.schema(list(data_type)))
    if pa.types.is_decimal(data_type):
        return spark.DecimalType(data_type.precision, data_type.scale)
    return _PLAIN[arrow_type(data_type)]


def spark_schema(schema: pa.Schema) -> spark.StructType:
    """The Spark schema of an Arrow schema of ours; every column is nullable."""
    return spark.StructType([spark.StructField(field.name, spark_type(field.type)) for field in schema])


def arrow_type(data_type: pa.DataType) -> pa.DataType:
    """The Arrow type that Spark is handed: times of day as numbers of their unit."""
    if pa.types.is_time(data_type):
        return pa.int32() if data_type.bit_width == 32 else pa.int64()
    if pa.types.is_map(data_type):
        return pa.map_(arrow_type(data_type.key_type), arrow_type(data_type.item_type))
    if pa.types.is_list(data_type):
        return pa.list_(arrow_type(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(arrow_type(field.type)) for field in data_type])
    return data_type


def spark_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the types that Spark is handed; nothing is copied."""
    types = [arrow_type(field.type) for field in batch.schema]
    if types == batch.schema.types:
        return batch
    arrays = [
        array if array.type == data_type else array.view(data_type)
        for array, data_type in zip(batch.columns, types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
