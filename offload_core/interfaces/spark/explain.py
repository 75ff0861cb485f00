"""What a query of the data source takes, before it runs: requests, bytes, partitions."""

from __future__ import annotations

import os

from offload_core.interfaces.spark.source import PulsarOffloadDataSource
from offload_core.reading.scan import ScanEstimate


def explain(path: str | os.PathLike[str] | None = None, **options: object) -> ScanEstimate:
    """What `spark.read.format("pulsar_offload").options(**options).load(path)` takes if all of it is read.

    Needs no session: it plans as Spark's driver would. Options have their names of docs/spark.md; those with a dot,
    such as `storage.region`, are given by `**{"storage.region": "eu-west-1"}`.

    Raises:
        As the query itself.
    """
    given = {name.lower(): _text(value) for name, value in options.items()}  # as Spark hands them over
    if path is not None:
        given["path"] = os.fspath(path)
    source = PulsarOffloadDataSource(given)
    return source.batch_reader(source.schema()).explain()


def _text(value: object) -> str:
    """A value as Spark hands it to a data source."""
    return str(value).lower() if isinstance(value, bool) else str(value)
