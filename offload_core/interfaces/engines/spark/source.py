"""`spark.read.format("pulsar_offload")`: offloaded topics as DataFrames, read by the executors without a broker.

Source: docs/spark.md.
"""

from __future__ import annotations

import os

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from offload_core.interfaces.engines.spark.query_errors import explained
from offload_core.interfaces.engines.spark.reader import OffloadReader
from offload_core.interfaces.engines.spark.source_options import (
    open_source,
    option_texts,
    parse_options,
    read_options,
)
from offload_core.interfaces.engines.spark.spark_types import spark_schema
from offload_core.interfaces.engines.spark.stream import OffloadStreamReader
from offload_core.interfaces.engines.spark.tables import keep_options, options_of_read, options_of_table
from offload_core.reading.scan import Report, ScanEstimate


def explain(path: str | os.PathLike[str] | None = None, **options: object) -> ScanEstimate:
    """Estimate the cost of `spark.read.format("pulsar_offload").options(**options).load(path)` if all of it is read.

    Needs no session: it plans as Spark's driver would. Options have their names of docs/spark.md; those with a dot,
    such as `storage.region`, are given by `**{"storage.region": "eu-west-1"}`.

    Raises:
        OffloadError: as the query itself.
    """
    source = PulsarOffloadDataSource(option_texts(path, options))
    return source.reader(source.schema()).tasks.explain()


class PulsarOffloadDataSource(DataSource):
    """The data source `pulsar_offload`; its options are in docs/spark.md.

    Attributes:
        report: an object, no function, that is called with the metrics of each task where it is read; None for none.
    """

    report: Report | None = None

    @classmethod
    def name(cls) -> str:
        """The name for `format(…)`."""
        return "pulsar_offload"

    @explained
    def schema(self) -> StructType:
        """The schema of a query that gives none: the default columns of its level, or those of `columns`."""
        table = options_of_table(self.options)
        options = parse_options(self.options if table is None else table)
        read = read_options(options, options.scan.columns, lambda: open_source(options))
        schema = spark_schema(read.schema)
        return schema if table is None else keep_options(schema, table)

    @explained
    def reader(self, schema: StructType) -> OffloadReader:
        """The reader of a batch query."""
        return OffloadReader(parse_options(options_of_read(self.options, schema)), schema, self.report)

    @explained
    def streamReader(self, schema: StructType) -> OffloadStreamReader:  # noqa: N802 - Spark's name
        """The reader of a streaming query."""
        return OffloadStreamReader(parse_options(options_of_read(self.options, schema)), schema, self.report)
