"""Found by Spark because of its name (`pyspark_*`): registers the data source `pulsar_offload` by itself."""

from offload_core.interfaces.spark import PulsarOffloadDataSource as DefaultSource

__all__ = ["DefaultSource"]
