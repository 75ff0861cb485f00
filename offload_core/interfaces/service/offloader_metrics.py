"""`OffloaderStats` for Prometheus, by Pulsar's names: `brk_ledgeroffloader_…`.

Names, labels and units are those that a broker 4.0.8 exposes with `exposeTopicLevelMetricsInPrometheus`; summaries have
their sum and count, without quantiles. Fallbacks of reads are counted by a name of our own.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Summary
from prometheus_client.core import GaugeMetricFamily, Metric

TOPIC_LABELS = ("namespace", "topic")
_DELETION_STATUSES = ("succeed", "failed")
RATE_WINDOW_S = 60.0
"""Over how long a rate is taken; a broker's default."""


class OffloaderMetrics:
    """Counts into a registry; see `OffloaderStats`.

    Args:
        registry: where they are collected from.
        clock: seconds that never go back.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        def counter(name: str, what: str, labels: tuple[str, ...] = TOPIC_LABELS) -> Counter:
            return Counter(f"brk_ledgeroffloader_{name}", what, labels, registry=registry)

        def summary(name: str, what: str) -> Summary:
            return Summary(f"brk_ledgeroffloader_{name}", what, TOPIC_LABELS, registry=registry)

        self._offload_error = counter("offload_error", "Failed offloads of ledgers")
        self._write_error = counter("write_storage_error", "Failed writes to the tier")
        self._read_error = counter("read_offload_error", "Failed reads from the tier")
        self._read_bytes = counter("read_bytes", "Bytes read from the tier")
        self._deletions = counter("delete_offload_ops", "Deletions of cold copies", (*TOPIC_LABELS, "status"))
        self._ledger_latency = summary(
            "read_ledger_latency", "Reads of the hot tier for offloads, microseconds"
        )
        self._index_latency = summary("read_offload_index_latency", "Reads of indexes, microseconds")
        self._data_latency = summary("read_offload_data_latency", "Reads of data, microseconds")
        self._fallbacks = Counter(
            "pulsar_offload_read_fallbacks",
            "Copies of ledgers that could not be read, so that the other one was tried",
            ("copy", "reason"),
            registry=registry,
        )
        self._topics: set[str] = set()
        self._kept: dict[str, frozenset[str]] = {}
        self._offload_rate = _Rates(clock)
        self._read_rate = _Rates(clock)
        self._by_topic = (
            *(self._offload_error, self._write_error, self._read_error, self._read_bytes),
            *(self._ledger_latency, self._index_latency, self._data_latency),
        )
        registry.register(self)

    def count_offload_error(self, topic: str) -> None:
        """See `OffloaderStats`."""
        self._offload_error.labels(*self._labels(topic)).inc()

    def count_offloaded(self, topic: str, size_bytes: int) -> None:
        """See `OffloaderStats`."""
        self._topics.add(topic)
        self._offload_rate.add(topic, size_bytes)

    def count_write_error(self, topic: str) -> None:
        """See `OffloaderStats`."""
        self._write_error.labels(*self._labels(topic)).inc()

    def time_ledger_read(self, topic: str, seconds: float) -> None:
        """See `OffloaderStats`."""
        self._ledger_latency.labels(*self._labels(topic)).observe(seconds * 1e6)

    def count_read_error(self, topic: str) -> None:
        """See `OffloaderStats`."""
        self._read_error.labels(*self._labels(topic)).inc()

    def count_read(self, topic: str, size_bytes: int) -> None:
        """See `OffloaderStats`."""
        self._read_bytes.labels(*self._labels(topic)).inc(size_bytes)
        self._read_rate.add(topic, size_bytes)

    def time_index_read(self, topic: str, seconds: float) -> None:
        """See `OffloaderStats`."""
        self._index_latency.labels(*self._labels(topic)).observe(seconds * 1e6)

    def time_data_read(self, topic: str, seconds: float) -> None:
        """See `OffloaderStats`."""
        self._data_latency.labels(*self._labels(topic)).observe(seconds * 1e6)

    def count_deletion(self, topic: str, *, succeeded: bool) -> None:
        """See `OffloaderStats`."""
        self._deletions.labels(*self._labels(topic), _DELETION_STATUSES[0 if succeeded else 1]).inc()

    def count_fallback(self, copy: str, reason: str) -> None:
        """See `OffloaderStats`."""
        self._fallbacks.labels(copy, reason).inc()

    def keep(self, topics: Iterable[str], *, of: str = "") -> None:
        """Forget all topics but these, and those that others keep: they are not there any more.

        Args:
            of: who keeps them, where there are several.
        """
        self._kept[of] = frozenset(topics)
        gone = set(self._topics)  # a copy at once: others count meanwhile
        gone.difference_update(*self._kept.values())
        for topic in gone:
            self._topics.discard(topic)
            for metric in self._by_topic:
                metric.remove(*labels_of(topic))
            for status in _DELETION_STATUSES:
                self._deletions.remove(*labels_of(topic), status)
            self._offload_rate.forget(topic)
            self._read_rate.forget(topic)

    def _labels(self, topic: str) -> tuple[str, str]:
        self._topics.add(topic)
        return labels_of(topic)

    def collect(self) -> Iterator[Metric]:
        """The rates, for the registry."""
        for name, what, rates in (
            ("offload_rate", "Bytes offloaded a second", self._offload_rate),
            ("read_offload_rate", "Bytes read from the tier a second", self._read_rate),
        ):
            family = GaugeMetricFamily(f"brk_ledgeroffloader_{name}", what, labels=TOPIC_LABELS)
            for topic, rate in rates.now():
                family.add_metric(labels_of(topic), rate)
            yield family


class _Rates:
    """Bytes a second of each topic over the last `RATE_WINDOW_S`, to the second."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seconds: dict[str, deque[tuple[int, int]]] = {}

    def add(self, topic: str, size_bytes: int) -> None:
        second = int(self._clock())
        with self._lock:
            seconds = self._seconds.setdefault(topic, deque())
            so_far = seconds.pop()[1] if seconds and seconds[-1][0] == second else 0
            seconds.append((second, so_far + size_bytes))
            _forget(seconds, second)

    def forget(self, topic: str) -> None:
        with self._lock:
            self._seconds.pop(topic, None)

    def now(self) -> list[tuple[str, float]]:
        second = int(self._clock())
        with self._lock:
            for seconds in self._seconds.values():
                _forget(seconds, second)
            return [(t, sum(size for _, size in s) / RATE_WINDOW_S) for t, s in self._seconds.items()]


def _forget(seconds: deque[tuple[int, int]], now: int) -> None:
    while seconds and seconds[0][0] <= now - RATE_WINDOW_S:
        seconds.popleft()


def labels_of(topic: str) -> tuple[str, str]:
    """The values of `TOPIC_LABELS` for `persistent://tenant/namespace/topic`."""
    return "/".join(topic.removeprefix("persistent://").split("/")[:2]), topic
