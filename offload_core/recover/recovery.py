"""Records of managed ledgers from a bucket alone, into a metadata store that lacks them.

A record that is there is never changed: one that says the same is left, and one that says something else is left, too,
and told. What is written is written whole, and only if nothing is there: a recovery that was killed is made again.
Before, a placeholder is written, and the objects that the record will name are looked up: a garbage collection that
deletes them takes the placeholder's place, and one that comes later finds the record.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from offload_core.audit import AuditLog, Change, ChangeAction
from offload_core.catalogue import TopicName, concurrently, recorded_copies
from offload_core.catalogue.listing import look_up
from offload_core.catalogue.survey import LedgerSurvey
from offload_core.codec.object_format import ObjectKey
from offload_core.executors import Executor
from offload_core.metadata import ManagedLedgerInfo, ManagedLedgerRecords, VersionedInfo
from offload_core.metadata.deletion_claim import is_claim, placeholder
from offload_core.metadata.live_pulsar import refuse_live_pulsar
from offload_core.metadata.record_paths import record_path
from offload_core.metadata.segment_shares import as_written
from offload_core.offload.clock import system_now_ms
from offload_core.recover.topics import RebuiltTopic, rebuild_topics
from offload_core.tier import Tier
from offload_hooks.errors import VersionConflictError


class Outcome(enum.Enum):
    """What became of a topic's record."""

    NEW = "new"
    """The store has none: it is written, or would be."""
    SAME = "same"
    """The store has this record already."""
    OTHER = "other"
    """The store has another record, which stays as it is."""
    NONE = "none"
    """There is no record to be made of what lies there."""
    GONE = "gone"
    """Objects that it would name were deleted meanwhile: it is not written, and to be recovered once more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """A topic, and what became of its record."""

    rebuilt: RebuiltTopic
    outcome: Outcome


def recover_records(
    tier: Tier,
    records: ManagedLedgerRecords | None,
    audit: AuditLog | None,
    *,
    wanted: Callable[[TopicName | None], bool] | None = None,
    cluster: str | None = None,
    executor: Executor | None = None,
    listener: Callable[[int], None] = lambda _: None,
) -> Iterator[Recovered]:
    """Rebuild the records of a tier's topics, and write those that are missing; one after another, by topic.

    Args:
        records: where they are written; None to see only what they would be.
        audit: where each record is told of before it is written; None writes none, and shows what would be.
        wanted: whether a topic's record is rebuilt, None for all; it is asked None of objects that name no topic.
        cluster: see `rebuild_topics`.
        executor: who reads objects; None for this process. Records are written here.
        listener: told how many pairs of objects were looked at.

    Raises:
        OptionError: the metadata store is a live Pulsar's, also if nothing is to be written.
        StoreError, FormatError: of the tier or the metadata; what was written stays, and it can be called again.
    """
    if records is not None:
        refuse_live_pulsar(records.store)
    with LedgerSurvey() as survey:
        survey.fill(tier, wanted=wanted, executor=executor, listener=listener)
        for rebuilt in rebuild_topics(tier, survey, cluster=cluster, executor=executor):
            yield Recovered(rebuilt=rebuilt, outcome=_write(records, rebuilt, tier, audit))


def _write(
    records: ManagedLedgerRecords | None, rebuilt: RebuiltTopic, tier: Tier, audit: AuditLog | None
) -> Outcome:
    name, info = rebuilt.name, rebuilt.info
    if name is None or info is None:
        return Outcome.NONE
    if records is None:
        return Outcome.NEW
    there = _compared(records, name, info)
    if there is not Outcome.NEW or audit is None:
        return there
    audit.record(
        Change(
            action=ChangeAction.RECORD,
            why=f"its record is rebuilt from the objects in {tier.describe().location}",
            managed_ledger=name,
            key=record_path(name),
            after=f"{len(info.ledgers)} ledgers, {sum(each.info.entries or 0 for each in info.ledgers)} entries",
        )
    )
    try:
        claim = records.write(name, placeholder(system_now_ms()), _known_claim(records, name))
        if not _are_there(tier, rebuilt):
            records.delete(name, claim)
            return Outcome.GONE
        records.write(name, info, claim)
    except VersionConflictError:  # somebody else made one since, or objects are deleted
        there = _compared(records, name, info)
        return Outcome.GONE if there is Outcome.NEW else there
    return Outcome.NEW


def _compared(records: ManagedLedgerRecords, name: str, info: ManagedLedgerInfo) -> Outcome:
    known = records.read(name)
    if known is None or is_claim(known.info):
        return Outcome.NEW
    return Outcome.SAME if as_written(known.info) == as_written(info) else Outcome.OTHER


def _known_claim(records: ManagedLedgerRecords, name: str) -> VersionedInfo | None:
    """The placeholder of a deletion, which finds that another took its place."""
    known = records.read(name)
    return known if known is not None and is_claim(known.info) else None


def _are_there(tier: Tier, rebuilt: RebuiltTopic) -> bool:
    """Whether both objects of all copies that a record will name are there."""
    topic = rebuilt.topic
    assert topic is not None
    assert rebuilt.info is not None
    keys = list(
        dict.fromkeys(copy.key for ledger in rebuilt.info.ledgers for copy in recorded_copies(topic, ledger))
    )

    def is_there(key: ObjectKey) -> bool:
        return all(look_up(tier, each) is not None for each in (key.index_key, key.data_key))

    return all(concurrently(is_there, keys))
