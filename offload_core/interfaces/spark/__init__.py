"""Read tiers from Spark: the PySpark data source `pulsar_offload`."""

from offload_core.interfaces.spark.metrics import ReadMetrics, measure_reads
from offload_core.interfaces.spark.source import PulsarOffloadDataSource, explain

__all__ = ["PulsarOffloadDataSource", "ReadMetrics", "explain", "measure_reads"]
