"""Release segments of whole topics in their records, then delete streaming objects that were judged.

So no record names an object that is deleted on purpose. A segment that cannot be released is kept, with the reason. For
each ledger a line goes to the audit log, then the index is deleted, then the data. Before each index, and before the
data, the records are read again: an object stays if a ledger that it was judged by has another record by now, or a new
record names it. If its index is gone by then, that is put back.

A crash leaves some data objects without their indexes, which no reader needs and which the next call finds again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from offload_core.format.codec.object_format import ObjectKey
from offload_core.maintenance.rollback.streaming_objects import Allowed, JudgedObject
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.catalogue.topics import (
    UNKNOWN_TOPIC,
    is_chosen,
    managed_ledger_of_topic,
    topic_of_managed_ledger,
)
from offload_core.metadata.records import LedgerRecord, ManagedLedgerInfo, OtherRole, other_copies
from offload_core.metadata.records.ledger_changes import without_segments
from offload_core.metadata.records.segments import shares_of
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Deletion
from offload_core.writing.offload.attempt_objects import abort_uploads, delete_unless
from offload_hooks.bounded_map import bounded_map
from offload_hooks.errors import AttemptError, UnknownTopicError, placed

DEFAULT_AT_ONCE = 16
"""Objects that are deleted at once: a deletion waits for a store far away several times."""

ReadRecords = Callable[[Sequence[TopicName]], Mapping[TopicName, ManagedLedgerInfo]]
"""Returns the records of topics as they are now, without topics that have none."""


def delete_judged(
    tier: Tier,
    judged: Iterable[JudgedObject],
    audit: AuditLog,
    *,
    allowed: Allowed,
    read_again: ReadRecords | None = None,
    listener: Callable[[JudgedObject], None] = lambda _: None,
    at_once: int = DEFAULT_AT_ONCE,
) -> None:
    """Delete the objects that are allowed, some at once; after a failure no further deletion is begun.

    Args:
        tier: where the objects lie.
        judged: the objects, as `judge_tier` judged them.
        audit: records each deletion before it is made.
        allowed: objects that may be deleted besides those that are not needed.
        read_again: None if no other process writes the records.
        listener: gets each object that was deleted; may be called from several threads.
        at_once: objects that are deleted at a time.

    Raises:
        StoreError: of the tier, with the object, or of the audit log; it can be called again.
    """

    def delete(each: JudgedObject) -> None:
        key, is_kept = each.object.key, False

        @contextmanager
        def needed() -> Iterator[Collection[ObjectKey]]:
            nonlocal is_kept
            is_kept = not is_as_judged(each)
            yield (key,) if is_kept else ()

        if not is_as_judged(each):
            return
        for deletion in _deletions(each):
            audit.record(deletion)
        with placed(key=key.data_key):
            abort_uploads(tier, key)
            delete_unless(tier, [key], needed)
        if not is_kept:
            listener(each)

    def is_as_judged(each: JudgedObject) -> bool:
        return read_again is None or _is_as_judged(each, read_again(each.topics))

    due = (each for each in judged if allowed.allows(each.verdict))
    for _ in bounded_map(delete, due, at_once=at_once, ahead=at_once, name="offload-rollback"):
        pass


def _is_as_judged(judged: JudgedObject, infos: Mapping[TopicName, ManagedLedgerInfo]) -> bool:
    """Return whether the records of an object are those that it was judged by."""
    uuid, known = judged.object.key.uuid, {each.ledger_id for each in judged.ledgers}
    for each in judged.ledgers:
        info = None if each.topic is None else infos.get(each.topic)
        if (None if info is None else info.ledger(each.ledger_id)) != each.record:
            return False
    named = [
        share.uuid
        for info in infos.values()
        for ledger in info.ledgers
        if ledger.ledger_id not in known
        for share in shares_of(ledger)
    ]
    named += [
        copy.uuid
        for info in infos.values()
        for copy in other_copies(info)
        if copy.role is OtherRole.REPLACEMENT and not copy.is_abandoned
    ]
    return uuid not in named


def _deletions(judged: JudgedObject) -> Iterable[Deletion]:
    uuid = judged.object.key.uuid
    why = f"streaming objects are rolled back; {judged.why}"
    if not judged.ledgers:
        topic = judged.topics[0] if judged.topics else None
        yield Deletion(managed_ledger=_name(topic), ledger_id=None, copy="cold", why=why, uuid=uuid)
    for ledger in judged.ledgers:
        yield Deletion(
            managed_ledger=_name(ledger.topic),
            ledger_id=ledger.ledger_id,
            copy="cold",
            why=why,
            uuid=uuid,
            entries=None if ledger.record is None else ledger.record.info.entries,
            size_bytes=None if ledger.record is None else ledger.record.info.size,
        )


def _name(topic: TopicName | None) -> str:
    return UNKNOWN_TOPIC if topic is None else managed_ledger_of_topic(topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The ledgers of a topic that have no segments any more, and those that keep theirs, with the reason."""

    ledger_ids: tuple[int, ...]
    kept: Mapping[int, str]


def release_possible(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
    """Release the segments of each ledger that does not need them; a step for `ManagedLedgerRecords.update`."""
    return replace(info, ledgers=tuple(_without_segments(ledger)[0] for ledger in info.ledgers))


def released(before: ManagedLedgerInfo, after: ManagedLedgerInfo) -> Released:
    """Compare a record before and after its release."""
    whys = {ledger.ledger_id: _without_segments(ledger)[1] for ledger in after.in_order}
    left = _with_segments(after)
    return Released(
        ledger_ids=tuple(each for each in sorted(_with_segments(before)) if each not in left),
        kept={ledger_id: why for ledger_id, why in whys.items() if why is not None},
    )


def _without_segments(ledger: LedgerRecord) -> tuple[LedgerRecord, str | None]:
    """Return the ledger without segments; or as it is, with the reason."""
    try:
        return without_segments(ledger), None
    except AttemptError as error:
        return ledger, error.what


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedRecords:
    """All records of a metadata store, and the released ledgers of the topics that were asked for."""

    infos: Mapping[TopicName, ManagedLedgerInfo]
    topics: Mapping[TopicName, Released]


def release_recorded(
    records: ManagedLedgerRecords, wanted: Sequence[TopicName], *, dry_run: bool
) -> ReleasedRecords:
    """Release all segments of these topics that can be (of all without any), or in a dry run only report them.

    A topic that vanishes meanwhile is skipped.

    Raises:
        StoreError, FormatError: of the metadata; it can be called again.
    """
    infos: dict[TopicName, ManagedLedgerInfo] = {}
    topics: dict[TopicName, Released] = {}
    for name in sorted(records.names()):
        topic, known = topic_of_managed_ledger(name), records.read(name)
        if known is None:
            continue
        infos[topic] = known.info
        if not is_chosen(topic, wanted):
            continue
        with suppress(UnknownTopicError):
            after = release_possible(known.info) if dry_run else records.update(name, release_possible).info
            infos[topic], topics[topic] = after, released(known.info, after)
    return ReleasedRecords(infos=infos, topics=topics)


def _with_segments(info: ManagedLedgerInfo) -> set[int]:
    return {ledger.ledger_id for ledger in info.ledgers if shares_of(ledger)}
