"""Losses of a rollback: ledgers in streaming segments, and the step that each of them needs before.

An old version reads a ledger from BookKeeper, or from the one object that its record names; it ignores segments. Where
segments make a record complete, it searches for an object that does not exist, and takes the hot copy for one that can
be deleted. So a ledger is safe when its record lists no segments any more; that is possible as long as it has a hot
copy. Source: docs/rollback.md; docs/compatibility.md.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.maintenance.rollback.streaming_objects import (
    Coverage,
    coverage_of,
    how_it_begins,
    is_under_way,
    streamed_entries,
)
from offload_core.metadata.catalogue import (
    Ledger,
    Problem,
    StoredObject,
    Topic,
    TopicName,
    list_catalogue,
    record_catalogue,
)
from offload_core.metadata.records import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.records.segments import covered_stop, shares_of
from offload_core.storage.tier import Tier
from offload_hooks.errors import ObjectNotFoundError


class Need(enum.Enum):
    """Step that a ledger with segments needs before an old version may have it."""

    NOTHING = "nothing"
    RELEASE = "release"
    FINISH = "finish"
    ONLY_COPY = "only-copy"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLedger:
    """A ledger with streaming segments.

    Attributes:
        coverage: how much of it lies in segments, by its record; None without one.
        is_closed: None without a record.
        hot_copy: it is in the hot tier, by its record; None without one.
        one_object: the tier also has a one-object copy of it; only searched without records.
        entries, size_bytes: of the ledger, its payloads; None if they are not recorded (while it is open).
        streamed_entries: number of entries in complete segments; None without a record.
        streamed_bytes: bytes of their blocks in the tier.
        unseen_entries: number of entries that an old version would not find now; None if that is not known.
        problems: of segments that are complete by its record, and not as they should be in the tier.
    """

    ledger_id: int
    coverage: Coverage | None
    is_closed: bool | None
    hot_copy: bool | None
    one_object: bool
    entries: int | None
    size_bytes: int | None
    streamed_entries: int | None
    streamed_bytes: int
    unseen_entries: int | None
    need: Need
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic:
    """A topic, and its ledgers with streaming segments, in order. `name` is None if objects name none."""

    name: TopicName | None
    cluster: str | None
    ledger_count: int
    streamed: tuple[PlannedLedger, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackPlan:
    """All topics with their ledgers. Without records it is not known which are hot.

    Attributes:
        unread: number of streaming objects that cannot be read, with unknown ledgers; only without records.
    """

    topics: tuple[PlannedTopic, ...]
    knows_records: bool
    unread: int = 0

    def of(self, need: Need) -> tuple[PlannedLedger, ...]:
        """Return the ledgers that need this."""
        return tuple(ledger for topic in self.topics for ledger in topic.streamed if ledger.need is need)

    @property
    def loses_nothing(self) -> bool:
        """True if it is known that an old version finds every entry and keeps it."""
        return not self.unread and all(
            ledger.need is Need.NOTHING for topic in self.topics for ledger in topic.streamed
        )


def plan_rollback(
    tier: Tier, records: Mapping[TopicName, ManagedLedgerInfo] | None = None, *, prefix: str = ""
) -> RollbackPlan:
    """Plan a rollback of these topics, or without records of all in the tier: find what it would lose.

    `prefix` is the folder in the tier that the objects lie in.

    Raises:
        StoreError: the tier cannot be read.
    """
    if records is None:
        catalogue = list_catalogue(tier, prefix=prefix, read_indexes=False)
        topics = [_from_bucket(topic) for topic in catalogue.topics]
        unread = [each for each in catalogue.strays if _is_streaming(tier, each)]
        return RollbackPlan(topics=tuple(topics), knows_records=False, unread=len(unread))
    catalogue = record_catalogue(tier, records, prefix=prefix, read_indexes=False)
    return RollbackPlan(topics=tuple(_from_records(topic) for topic in catalogue.topics), knows_records=True)


def _from_records(topic: Topic) -> PlannedTopic:
    return PlannedTopic(
        name=topic.name,
        cluster=topic.cluster,
        ledger_count=len(topic.ledgers),
        streamed=tuple(
            _recorded(ledger, ledger.record)
            for ledger in topic.ledgers
            if ledger.record is not None and shares_of(ledger.record)
        ),
    )


def _recorded(ledger: Ledger, record: LedgerRecord) -> PlannedLedger:
    need, coverage = _need(record), coverage_of(record)
    is_complete = record.context is not None and record.context.complete
    unseen = record.info.entries
    if coverage is Coverage.CONDEMNED or (record.has_hot_copy and not is_complete):
        unseen = 0
    return PlannedLedger(
        ledger_id=ledger.ledger_id,
        coverage=coverage,
        is_closed=record.info.is_closed,
        hot_copy=record.has_hot_copy,
        one_object=False,
        entries=record.info.entries,
        size_bytes=record.info.size,
        streamed_entries=streamed_entries(record),
        streamed_bytes=ledger.data_bytes,
        unseen_entries=unseen,
        need=need,
        problems=tuple(_problems(ledger, record, coverage)),
    )


def _problems(ledger: Ledger, record: LedgerRecord, coverage: Coverage) -> Iterator[str]:
    for stored in ledger.attempts:
        if stored.problem not in (None, Problem.UNFINISHED):
            yield f"{stored.key.data_key}: {stored.detail}"
    if coverage is Coverage.PARTIAL and not record.has_hot_copy:
        yield f"by its record entries from {covered_stop(record)} on are in no copy"


def _need(record: LedgerRecord) -> Need:
    if coverage_of(record) is Coverage.CONDEMNED:
        return Need.NOTHING
    if not record.has_hot_copy:
        return Need.ONLY_COPY
    return Need.FINISH if is_under_way(record) or not record.info.is_closed else Need.RELEASE


def _is_streaming(tier: Tier, stored: StoredObject) -> bool:
    try:
        return how_it_begins(tier, stored) is None
    except ObjectNotFoundError:
        return False


def _from_bucket(topic: Topic) -> PlannedTopic:
    return PlannedTopic(
        name=topic.name,
        cluster=topic.cluster,
        ledger_count=len(topic.ledgers),
        streamed=tuple(
            _listed(ledger)
            for ledger in topic.ledgers
            if any(each.key.object_format is ObjectFormat.STREAMING for each in ledger.attempts)
        ),
    )


def _listed(ledger: Ledger) -> PlannedLedger:
    blocks = [
        block
        for stored in ledger.attempts
        if stored.index is not None and stored.key.object_format is ObjectFormat.STREAMING
        for each in stored.index.ledgers
        if each.ledger_id == ledger.ledger_id
        for block in each.blocks
    ]
    return PlannedLedger(
        ledger_id=ledger.ledger_id,
        coverage=None,
        is_closed=None,
        hot_copy=None,
        one_object=any(
            stored.is_complete and stored.key.object_format is not ObjectFormat.STREAMING
            for stored in ledger.attempts
        ),
        entries=None,
        size_bytes=None,
        streamed_entries=None,
        streamed_bytes=sum(block.length for block in blocks),
        unseen_entries=None,
        need=Need.UNKNOWN,
    )
