"""Pulsar's official client where it consumes: in a process of its own, made anew when the client crashes.

The client's C++ library was seen to die by a segmentation fault in `unsubscribe`, once in some thousand calls. It would
take the whole run of tests with it. Reading a topic can be done again, so a crash costs a second and no test.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pulsar
import stamina
from pulsar_topics import Place, Read, consume

_ATTEMPTS = 3


class ConsumerProcess:
    """Consumes topics of the broker at this address; the process is started by the first call.

    Use it as a context, which ends the process.
    """

    def __init__(self, service_url: str) -> None:
        self._service_url = service_url
        self._pool: ProcessPoolExecutor | None = None

    def consume(self, topic: str, sent: Mapping[Place, int]) -> list[Read]:
        """See `pulsar_topics.consume`."""
        for attempt in stamina.retry_context(on=BrokenProcessPool, attempts=_ATTEMPTS, wait_initial=0.1):
            with attempt:
                try:
                    return self._started().submit(_consume, self._service_url, topic, dict(sent)).result()
                except BrokenProcessPool:
                    self._pool = None
                    raise
        raise AssertionError("stamina's loop ends by an answer or an error")

    def __enter__(self) -> ConsumerProcess:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            spawned = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(max_workers=1, mp_context=spawned)
        return self._pool


def _consume(service_url: str, topic: str, sent: Mapping[Place, int]) -> list[Read]:
    client = pulsar.Client(service_url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        return consume(client, topic, sent)
    finally:
        client.close()
