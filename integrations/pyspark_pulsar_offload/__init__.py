"""Found by Spark because of its name (`pyspark_*`): registers the data source `pulsar_offload` by itself.

Spark imports all such modules together: an error of one would hide the sources of all. So a source that cannot be
imported is replaced by one that raises the reason when it is used.
"""

from pyspark.sql.datasource import DataSource

try:
    from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource as DefaultSource
except Exception as error:
    _REASON = error

    class DefaultSource(DataSource):  # type: ignore[no-redef]
        """The source in its place."""

        def __init__(self, options: object) -> None:  # noqa: ARG002 - Spark's
            raise ImportError(f"the data source pulsar_offload cannot be imported: {_REASON}") from _REASON

        @classmethod
        def name(cls) -> str:
            """The name for `format(…)`."""
            return "pulsar_offload"


__all__ = ["DefaultSource"]
