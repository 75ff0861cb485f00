"""The ledgers of managed ledgers' records with their copies, some topics at a time, by topic and id."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from offload_core.catalogue import Records, TopicName, record_catalogues
from offload_core.catalogue.survey import FoundLedger
from offload_core.catalogue.topics import managed_ledger_of_topic
from offload_core.executors import Executor
from offload_core.tier import Tier

_TOPICS_AT_ONCE = 64


def recorded_ledgers(
    tier: Tier,
    records: Records,
    *,
    prefix: str = "",
    wanted: Callable[[TopicName | None], bool] = lambda _: True,
    executor: Executor | None = None,
) -> Iterator[FoundLedger]:
    """What `record_catalogue` has, of the wanted topics; memory depends on some topics' records only.

    Args:
        executor: who looks copies up; None for this process.

    Raises:
        StoreError, FormatError: of the records or the tier.
    """
    topics = sorted((each for each in records.topics() if wanted(each)), key=lambda each: each.full)
    starts = range(0, len(topics), _TOPICS_AT_ONCE)
    parts = (records.read(topics[start : start + _TOPICS_AT_ONCE]) for start in starts)
    for catalogue in record_catalogues(tier, parts, prefix=prefix, executor=executor):
        for topic in catalogue.topics:
            name = None if topic.name is None else managed_ledger_of_topic(topic.name)
            for ledger in topic.ledgers:
                yield FoundLedger(managed_ledger=name, cluster=topic.cluster, ledger=ledger)
