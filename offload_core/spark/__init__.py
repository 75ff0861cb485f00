"""The PySpark data source `pulsar_offload`."""

from offload_core.spark.source import PulsarOffloadDataSource

__all__ = ["PulsarOffloadDataSource"]
