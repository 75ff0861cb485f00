"""An operator that exports topics to Parquet files, an Iceberg or a Delta table: what is new since the last time."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator

from airflow_provider_pulsar_offload.hook import DEFAULT_CONNECTION, OffloadHook
from pulsar_offload import export


class ExportTopicsOperator(BaseOperator):  # type: ignore[misc]  # untyped here
    """Exports topics, each message once, as `offload export` does; rows, files and bytes are the task's result.

    A task that is killed ends when the files under way are committed; the next one goes on.

    Args:
        to: a folder's path or URL, `iceberg:CATALOG/NAMESPACE.TABLE`, or `delta:PATH`.
        topics: their names; or `topics_pattern`, a regular expression for whole names.
        to_conn_id: a connection whose extra has `options` of the target.
        scan: more of what `TierReader.scan` takes: `schemas`, `columns`, `isolation` ….
        offload_conn_id: the connection to the tier.
    """

    template_fields: Sequence[str] = (
        "to",
        "topics",
        "topics_pattern",
        "to_conn_id",
        "scan",
        "offload_conn_id",
    )

    def __init__(
        self,
        *,
        to: str,
        topics: Sequence[str] | str | None = None,
        topics_pattern: str | None = None,
        to_conn_id: str | None = None,
        scan: Mapping[str, Any] | None = None,
        offload_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if (topics is None) == (topics_pattern is None):
            raise ValueError("one of topics and topics_pattern is needed")
        self.to = to
        self.topics = topics
        self.topics_pattern = topics_pattern
        self.to_conn_id = to_conn_id
        self.scan = scan
        self.offload_conn_id = offload_conn_id
        self._ended = threading.Event()

    def execute(self, context: Any) -> dict[str, Any]:
        """Export; what was written."""
        options = {} if self.to_conn_id is None else OffloadHook(self.to_conn_id).settings().options
        chosen: dict[str, Any] = {"topics_pattern": self.topics_pattern}
        if self.topics is not None:
            chosen = {"topics": self.topics}
        with OffloadHook(self.offload_conn_id).open_tier() as tier:
            report = export(tier, self.to, to_options=options, ended=self._ended, **chosen, **self.scan or {})
        return {
            "rows": report.rows,
            "files": report.files,
            "size_bytes": report.size_bytes,
            "complete": report.complete,
        }

    def on_kill(self) -> None:
        """End when the files under way are committed."""
        self._ended.set()
