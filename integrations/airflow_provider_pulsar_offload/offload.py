"""An operator that has a topic offloaded by its broker, or by `offload serve`, and waits until that is done.

As `pulsar-admin topics offload -s SIZE -w` does: the newest ledgers are left hot up to that size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator

from airflow_provider_pulsar_offload.hook import DEFAULT_CONNECTION, OffloadHook
from airflow_provider_pulsar_offload.requests import ask_for_offload, topic_paths, wait_for_offload


class OffloadTopicOperator(BaseOperator):  # type: ignore[misc]  # untyped here
    """Has the closed ledgers of a topic offloaded, of all its partitions, to the tier that its policies name.

    The result is, by topic or partition, the first position that was not asked for.

    Args:
        topic: `persistent://tenant/namespace/topic`.
        kept_bytes: leave the newest ledgers hot up to this size.
        timeout_s: how long each may take; an offload goes on after that.
        poll_interval_s: how often its state is asked for.
        offload_conn_id: the connection; its extra says whom to ask (`admin`).
    """

    template_fields: Sequence[str] = ("topic", "kept_bytes", "offload_conn_id")

    def __init__(
        self,
        *,
        topic: str,
        kept_bytes: int | str = 0,
        timeout_s: float = 3600.0,
        poll_interval_s: float = 5.0,
        offload_conn_id: str = DEFAULT_CONNECTION,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.topic = topic
        self.kept_bytes = kept_bytes
        self.timeout_s = timeout_s
        self.poll_interval_s = poll_interval_s
        self.offload_conn_id = offload_conn_id

    def execute(self, context: Any) -> dict[str, str]:
        """Ask for all of it, then wait for all of it."""
        asked: dict[str, str] = {}
        limits = {"timeout_s": self.timeout_s, "poll_interval_s": self.poll_interval_s}
        with OffloadHook(self.offload_conn_id).admin_client() as client:
            for path in topic_paths(client, self.topic):
                stop = ask_for_offload(client, path, int(self.kept_bytes), **limits)
                if stop is None:
                    self.log.info("%s: nothing is to be offloaded", path)
                else:
                    asked[path] = f"{stop}:0"
            for path in asked:
                wait_for_offload(client, path, **limits)
                self.log.info("%s: offloaded", path)
        return asked
