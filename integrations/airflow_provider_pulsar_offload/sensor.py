"""A sensor: a topic is offloaded up to a position, or up to a time.

Only the record is asked. A task that waits takes no worker, by the sensor's mode `reschedule`, which is the default
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from airflow.sdk import BaseSensorOperator

from airflow_provider_pulsar_offload.hook import DEFAULT_CONNECTION, OffloadHook
from airflow_provider_pulsar_offload.progress import is_offloaded_until, parse_position, parse_time_ms
from offload_core.writing.managed_ledger import first_unoffloaded
from offload_hooks.errors import OptionError


class OffloadedSensor(BaseSensorOperator):  # type: ignore[misc]  # untyped here
    """Waits until all partitions of a topic are offloaded so far.

    Args:
        topic: `persistent://tenant/namespace/topic`, a partition, or a partitioned topic.
        position: `ledger:entry`; that entry and all before it. Only of a topic or a partition.
        time: a `datetime` with a zone, or ISO 8601: all that was appended before.
        offload_conn_id: the connection; its extra says where the records are (`records`, else `admin`).
    """

    template_fields: Sequence[str] = ("topic", "position", "time", "offload_conn_id")

    def __init__(
        self,
        *,
        topic: str,
        position: str | None = None,
        time: datetime | str | None = None,
        offload_conn_id: str = DEFAULT_CONNECTION,
        mode: str = "reschedule",
        **kwargs: Any,
    ) -> None:
        super().__init__(mode=mode, **kwargs)
        if (position is None) == (time is None):
            raise ValueError("one of position and time is needed")
        self.topic = topic
        self.position = position
        self.time = time
        self.offload_conn_id = offload_conn_id

    def poke(self, context: Any) -> bool:
        """Return whether the topics are offloaded."""
        infos = OffloadHook(self.offload_conn_id).read_topic(self.topic)
        if self.position is not None:
            if len(infos) > 1:
                raise OptionError(
                    "a position is one of a partition", expected="a partition as topic", found=self.topic
                )
            wanted = parse_position(self.position)
            behind = {
                name: first for name, info in infos.items() if (first := first_unoffloaded(info)) <= wanted
            }
        else:
            stop_ms = parse_time_ms(self.time)
            behind = {
                name: first_unoffloaded(info)
                for name, info in infos.items()
                if not is_offloaded_until(info, stop_ms)
            }
        for name, first in behind.items():
            self.log.info("%s: %s is the first position that is not offloaded", name, first)
        return not behind
