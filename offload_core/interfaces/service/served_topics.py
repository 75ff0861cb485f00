"""Topics of the service, their offloads, and the answers that come from managed ledgers' records.

`internal-info` and `internalStats` are a record as Pulsar's admin REST gives it. Source: the answers of a broker 4.0.8
to records that are known (tests/golden/broker). Of the open ledger a record knows no entries, the hot tier does; a
metadata store has no dates, which are left out, as Pulsar leaves out what it does not know.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from offload_core.interfaces.service.offloader_metrics import OffloaderMetrics
from offload_core.interfaces.service.owned_topics import OwnedTopics, StreamingMetrics
from offload_core.metadata.catalogue.policy_places import namespace_of
from offload_core.metadata.catalogue.topics import TopicName, managed_ledger_of_topic, topic_of_managed_ledger
from offload_core.metadata.records import EntryPosition, LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords, VersionedInfo
from offload_core.storage.clock import system_now_ms
from offload_core.writing.configuration import Configuration
from offload_core.writing.managed_ledger import (
    Environment,
    OffloadedTopic,
    OffloadStatus,
    TenantThreads,
    TopicOffloads,
    TransactionStatus,
    UpkeepLoop,
    complete_streamed,
    first_unoffloaded,
    keep_up,
    look_at_transactions,
    no_tier,
    open_environment,
    owner_of,
    policies_by_name,
    request_completion,
    topic_offloads,
    waits_of,
)
from offload_core.writing.policy_store import PolicyStore, ResolvedPolicies
from offload_hooks.errors import (
    AttemptError,
    FormatError,
    OffloadError,
    OffloadStoppedError,
    OptionError,
    StoreError,
    UnknownTopicError,
)
from offload_hooks.ledger_stores import LedgerStatus
from offload_hooks.metadata_stores import WritableMetadataStore


def info_to_json(record: VersionedInfo, now_ms: int) -> dict[str, Any]:
    """`internal-info`: the record as it is stored; an open ledger's time is that of the question, as Pulsar's."""
    info = record.info
    shown: dict[str, Any] = {
        "version": record.version,
        "ledgers": [_info_of(ledger, now_ms) for ledger in info.ledgers],
    }
    if info.terminated_at is not None:
        at = info.terminated_at
        shown["terminatedPosition"] = {"ledgerId": at.ledger_id, "entryId": at.entry_id}
    shown["cursors"] = {}
    if info.properties:
        shown["properties"] = dict(info.properties)
    return shown


def stats_to_json(info: ManagedLedgerInfo, written: LedgerStatus | None = None) -> dict[str, Any]:
    """`internalStats`: the topic's ledgers in order, and what they hold together.

    Args:
        written: status of the open ledger in the hot tier; None if it is not known. The ledger's own line does not have
            it, as a broker's.
    """
    ledgers = info.in_order
    entries, size = (0, 0) if written is None else (written.entry_count, written.size_bytes)
    return {
        "entriesAddedCounter": 0,
        "numberOfEntries": sum(ledger.info.entries or 0 for ledger in ledgers) + entries,
        "totalSize": sum(ledger.info.size or 0 for ledger in ledgers) + size,
        "currentLedgerEntries": entries,
        "currentLedgerSize": size,
        "waitingCursorsCount": 0,
        "pendingAddEntriesCount": 0,
        "lastConfirmedEntry": _last_entry(info, written),
        "state": _state(info),
        "ledgers": [
            _stats_of(
                ledger.ledger_id,
                ledger.info.entries or 0,
                ledger.info.size or 0,
                offloaded=ledger.is_fully_offloaded,
            )
            for ledger in ledgers
        ],
        "cursors": {},
        "schemaLedgers": [],
        "compactedLedger": _stats_of(-1, -1, -1, offloaded=False),
    }


def _info_of(ledger: LedgerRecord, now_ms: int) -> dict[str, Any]:
    uuid = None if ledger.context is None else ledger.context.uuid
    fields = {
        "ledgerId": ledger.ledger_id,
        "entries": ledger.info.entries,
        "size": ledger.info.size,
        "timestamp": ledger.info.timestamp_ms or now_ms,
        "isOffloaded": ledger.context is not None,
        "offloadedContextUuid": None if uuid is None else str(uuid),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _stats_of(ledger_id: int, entries: int, size: int, *, offloaded: bool) -> dict[str, Any]:
    return {
        "ledgerId": ledger_id,
        "entries": entries,
        "size": size,
        "offloaded": offloaded,
        "underReplicated": False,
    }


def _last_entry(info: ManagedLedgerInfo, written: LedgerStatus | None) -> str:
    if info.terminated_at is not None:
        return f"{info.terminated_at.ledger_id}:{info.terminated_at.entry_id}"
    if written is not None and written.entry_count:
        return f"{written.ledger_id}:{written.entry_count - 1}"
    for ledger in reversed(info.in_order):
        if ledger.info.entries:
            return f"{ledger.ledger_id}:{ledger.info.entries - 1}"
    return f"{info.in_order[0].ledger_id if info.ledgers else -1}:-1"


def _state(info: ManagedLedgerInfo) -> str:
    if info.terminated_at is not None:
        return "Terminated"
    return "LedgerOpened" if info.ledgers and not info.in_order[-1].info.is_closed else "ClosedLedger"


_STATES = {"not run": "NOT_RUN", "running": "RUNNING", "success": "SUCCESS", "error": "ERROR"}


def offload_to_json(status: OffloadStatus, error_text: Callable[[OffloadError], str] = str) -> dict[str, Any]:
    """`offload`: how an offload stands, or how the last one ended; ours are the ledgers that a filter holds back."""
    shown: dict[str, Any] = {
        "status": _STATES[status.state],
        "lastError": "" if status.error is None else error_text(status.error),
    }
    if status.first_unoffloaded is not None:
        first = status.first_unoffloaded
        shown["firstUnoffloadedMessage"] = {
            "ledgerId": first.ledger_id,
            "entryId": first.entry_id,
            "partitionIndex": -1,
        }
    if status.waiting:
        shown["waitingLedgers"] = {str(ledger_id): why for ledger_id, why in status.waiting.items()}
    return shown


def buffer_stats_to_json(status: TransactionStatus) -> dict[str, Any]:
    """`transactionBufferStats`: how a topic's transactions stand; what is only a broker's is left out."""
    stable = status.stable_position
    return {
        "state": status.state.value,
        "maxReadPosition": "-1:-1" if stable is None else str(stable),
        "ongoingTxnSize": len(status.open_transactions),
        "totalAbortedTransactions": status.aborted_count,
    }


log = structlog.get_logger("offload.admin")

_COMPLETION_S = 45.0
"""Seconds that a request waits for a topic's owner to complete its segment; `pulsar-admin` waits for a minute."""

_LAST_WORDS_S = 1.0
"""Seconds that an offload that has ended may take to log that."""


class RecordedTopics:
    """The topics of a service, by their records; offloads run beside the topics' owners, of which it may be one.

    Calls may come from many threads; errors are the metadata store's.

    Args:
        records: the managed ledgers' records.
        environment: with their hot tier and their offloads; None: nothing is offloaded here.
        policies_of: the policies in force of a managed ledger, by its name.
        threads: how many topics of a tenant are offloaded at a time on request; other tenants have one thread more.
        listed: called with the names of all topics whenever they are listed for upkeep.
        owned: the topics that are open here; None for none.
    """

    def __init__(
        self,
        records: ManagedLedgerRecords,
        environment: Environment | None,
        policies_of: Callable[[str], ResolvedPolicies],
        *,
        threads: int = 4,
        listed: Callable[[Iterable[str]], None] = lambda _: None,
        owned: OwnedTopics | None = None,
    ) -> None:
        self._records = records
        self._environment = environment
        self._policies_of = policies_of
        self._listed = listed
        self._owned = owned
        self._lock = threading.Lock()
        self._offloads: dict[str, TopicOffloads] = {}
        self._asked: dict[str, tuple[OffloadedTopic, Future[None]]] = {}
        self._completions: dict[str, OffloadStatus] = {}
        self._pool = TenantThreads(threads, "offload")

    def close(self) -> None:
        """Begin no more offloads, stop those that run, and wait for each of them, some seconds at most."""
        self._pool.shutdown()
        with self._lock:
            offloads, asked = list(self._offloads.values()), list(self._asked.values())
        for each in (*offloads, *(each for each, _ in asked)):
            each.stop_offload()
        for each in offloads:
            each.close()
        wait([ended for _, ended in asked], timeout=_LAST_WORDS_S)

    def for_upkeep(self) -> list[OffloadedTopic]:
        """Return all topics, for their upkeep; forget topics that are gone."""
        names = self._records.names()
        if self._owned is not None:
            self._owned.keep_only(names)
        self._listed(topic_of_managed_ledger(name).full for name in names)
        with self._lock:
            for gone in (self._offloads.keys() | self._asked.keys()) - set(names):
                if not self._is_running(gone):
                    self._offloads.pop(gone, None)
                    self._asked.pop(gone, None)
                    self._completions.pop(gone, None)
        return [self._offloads_of(name) for name in names]

    def names(self, namespace: str | None = None) -> list[TopicName]:
        """The topics of a namespace (`tenant/namespace`), or of all, in order; of partitioned ones the partitions."""
        names = self._records.names(None if namespace is None else [namespace])
        return sorted(topic_of_managed_ledger(name) for name in names)

    def partitions(self, topic: TopicName) -> int:
        """The number of partitions of a topic, by the last one there; 0 for a topic without, and for a partition.

        Raises:
            UnknownTopicError: there is none of this name.
        """
        found = [
            name
            for name in self.names(namespace_of(topic))
            if name.full == topic.full or name.base == topic.full
        ]
        if not found:
            raise _not_found(topic)
        return max(name.partition if name.base == topic.full else -1 for name in found) + 1

    def record(self, topic: TopicName) -> VersionedInfo:
        """The record of a topic, whichever process changed it last.

        Raises:
            UnknownTopicError: there is none of this name.
        """
        found = self._records.read(managed_ledger_of_topic(topic))
        if found is None:
            raise _not_found(topic)
        return found

    def info(self, topic: TopicName) -> dict[str, Any]:
        """`internal-info` of a topic; errors as `record`."""
        return info_to_json(self.record(topic), system_now_ms())

    def internal_stats(self, topic: TopicName) -> dict[str, Any]:
        """`internalStats` of a topic; errors as `record`."""
        info = self.record(topic).info
        return stats_to_json(info, self._written(info))

    def begin_offload(self, topic: TopicName, position: EntryPosition) -> None:
        """Begin to offload all sealed ledgers before a position.

        Of a topic that is streamed the segment is completed, whatever the position; when it returns, all that was
        appended before is in the tier.

        Raises:
            UnknownTopicError: as `record`.
            StoreTimeoutError: its owner did not complete the segment in time.
            AttemptError: an offload of the topic runs.
            OptionError: its policies name no tier, or this service has no hot tier.
        """
        self.record(topic)
        name = managed_ledger_of_topic(topic)
        policies = self._policies_of(name).offload
        if policies.driver is None:
            raise no_tier(topic)
        if policies.is_streamed:
            self._complete_segment(name)
            return
        offloads = self._offloads_of(name)
        with self._lock:
            if self._is_running(name):
                raise AttemptError(f"an offload of {topic} is in progress")
            self._completions.pop(name, None)
            running = self._pool.submit(name.partition("/")[0], partial(_offload, offloads, position))
            self._asked[name] = offloads, running

    def offload_status(self, topic: TopicName) -> OffloadStatus:
        """The state of the offload that runs, or of the last one that ended; errors as `record`."""
        self.record(topic)
        name = managed_ledger_of_topic(topic)
        is_streamed = self._policies_of(name).offload.is_streamed
        with self._lock:
            if self._is_running(name):
                return OffloadStatus(state="running")
            if is_streamed and name in self._completions:
                return self._completions[name]
            known = self._known(name)
            status = OffloadStatus() if known is None else known.offload_status
            if status.state == "not run" and name in self._asked:
                return self._asked[name][0].offload_status  # before the topic was opened, or let go
            return status

    def transactions(self, topic: TopicName) -> TransactionStatus:
        """The state of a topic's transactions by its snapshot and its sealed ledgers, which are read.

        Raises:
            UnknownTopicError: as `record`.
            OptionError: this service has no hot tier.
            FormatError, StoreError: the snapshot or an entry is damaged, or cannot be read.
        """
        self.record(topic)
        return look_at_transactions(self._hot_tier(), managed_ledger_of_topic(topic))

    def _complete_segment(self, name: str) -> None:
        self._completions[name] = OffloadStatus(state="running")
        status = OffloadStatus(state="error")
        try:
            policies = self._policies_of(name).offload
            if self._environment is None:
                info = request_completion(self._records, name, timeout_s=_COMPLETION_S)
            else:
                process = None if self._owned is None else self._owned.process
                info = complete_streamed(self._environment, name, policies, _COMPLETION_S, process=process)
            first, waits_for = first_unoffloaded(info), waits_of(info)
            waiting = {} if waits_for is None else {first.ledger_id: f"waits for {waits_for}"}
            status = OffloadStatus(state="success", first_unoffloaded=first, waiting=waiting)
        except OffloadError as error:
            status = OffloadStatus(state="error", error=error)
            raise
        finally:
            self._completions[name] = status

    def _written(self, info: ManagedLedgerInfo) -> LedgerStatus | None:
        """Status of the open ledger in the hot tier; None if there is none, or it cannot be read."""
        if self._environment is None or not info.ledgers or info.in_order[-1].info.is_closed:
            return None
        try:
            with closing(self._environment.hot.store.open(info.in_order[-1].ledger_id)) as reader:
                return reader.status()
        except (StoreError, FormatError) as error:
            log.warning("an open ledger cannot be read", error=str(error))
            return None

    def _is_running(self, name: str) -> bool:
        """True if an offload that was asked for has not ended, or upkeep offloads; the lock is held."""
        asked, known = self._asked.get(name), self._known(name)
        is_asked = asked is not None and not asked[1].done()
        return is_asked or (known is not None and known.offload_status.state == "running")

    def _known(self, name: str) -> OffloadedTopic | None:
        """A topic's offloads, if there were any; the lock is held."""
        owned = None if self._owned is None else self._owned.get(name)
        return self._offloads.get(name) if owned is None else owned

    def _hot_tier(self) -> Environment:
        if self._environment is None:
            raise OptionError("this service has no hot tier", hint="Set hot_tier.options.path.")
        return self._environment

    def _offloads_of(self, name: str) -> OffloadedTopic:
        environment = self._hot_tier()
        with self._lock:
            known = self._known(name)
            if known is None:
                known = self._offloads[name] = topic_offloads(environment, name)
            return known


def _not_found(topic: TopicName) -> UnknownTopicError:
    return UnknownTopicError(f"Topic {topic} not found")


def _offload(offloads: OffloadedTopic, position: EntryPosition) -> None:
    """Offload in the background; the status has the result."""
    try:
        offloads.offload_prefix(position)
    except OffloadStoppedError:
        log.info("offload stopped", topic=offloads.name)
    except OffloadError as error:
        log.error("offload failed", topic=offloads.name, error=str(error), kind=type(error).__name__)
    except Exception as error:
        log.error("an offload ended by a fault of its own", topic=offloads.name, exc_info=error)
        raise


@contextmanager
def open_topics(
    configuration: Configuration,
    store: WritableMetadataStore,
    policies: PolicyStore,
    registry: CollectorRegistry,
    *,
    stats: OffloaderMetrics,
    take: Collection[TopicName] | None = None,
) -> Iterator[RecordedTopics]:
    """Topics whose records are in a store; with a hot tier they are offloaded by their policies until the block ends.

    Args:
        registry: what `/metrics` shows.
        take: topics that are taken from the owner that they have now, beside all that have none; None owns no topic.

    Raises:
        UnknownTopicError: a topic to take that there is not.
        OptionError: a hot tier that cannot be opened by its options, or none, where topics are owned. Others: those of
            the ledger store.
    """
    records, policies_of = ManagedLedgerRecords(store), policies_by_name(policies)
    service = configuration.service
    if take is None and not configuration.hot_tier.options:
        with closing(RecordedTopics(records, None, policies_of)) as topics:
            yield topics
        return
    with ExitStack() as stack:
        environment = stack.enter_context(open_environment(configuration, store, policies, stats=stats))
        owned = None
        if take is not None:
            names = [managed_ledger_of_topic(topic) for topic in take]
            marks = {name: owner_of(records.require(name).info) for name in names}
            owned = stack.enter_context(closing(OwnedTopics(environment, service.owner, marks)))
            StreamingMetrics(registry, owned.streamed)
        topics = RecordedTopics(
            records, environment, policies_of, threads=service.offload_threads, listed=stats.keep, owned=owned
        )
        stack.enter_context(
            UpkeepLoop(
                topics.for_upkeep,
                policies_of,
                interval_s=service.upkeep_interval_s,
                threads=service.upkeep_threads,
                keep=keep_up if owned is None else owned.keep,
            )
        )
        stack.enter_context(closing(topics))  # which stops the offloads of upkeep as well
        yield topics
