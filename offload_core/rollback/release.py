"""The segments of whole topics released in their records, before their objects are deleted.

So no record names an object that is deleted on purpose. What cannot be released keeps its segments, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from offload_core.catalogue import TopicName
from offload_core.catalogue.topics import is_wanted, topic_of_managed_ledger
from offload_core.metadata import LedgerRecord, ManagedLedgerInfo, ManagedLedgerRecords
from offload_core.metadata.segment_release import without_segments
from offload_core.metadata.segment_shares import shares_of
from offload_hooks.errors import AttemptError, UnknownTopicError


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The ledgers of a topic that have no segments any more, and those that keep theirs, and why."""

    ledger_ids: tuple[int, ...]
    kept: Mapping[int, str]


def release_possible(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
    """Release the segments of each ledger that can do without; to be given to `ManagedLedgerRecords.update`."""
    return replace(info, ledgers=tuple(_without_segments(ledger)[0] for ledger in info.ledgers))


def released(before: ManagedLedgerInfo, after: ManagedLedgerInfo) -> Released:
    """What became of a record that was released."""
    whys = {ledger.ledger_id: _without_segments(ledger)[1] for ledger in after.in_order}
    left = _with_segments(after)
    return Released(
        ledger_ids=tuple(each for each in sorted(_with_segments(before)) if each not in left),
        kept={ledger_id: why for ledger_id, why in whys.items() if why is not None},
    )


def _without_segments(ledger: LedgerRecord) -> tuple[LedgerRecord, str | None]:
    """The ledger without segments; or as it is, and why."""
    try:
        return without_segments(ledger), None
    except AttemptError as error:
        return ledger, error.what


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedRecords:
    """All records of a metadata store, and what was released of those that were wanted."""

    infos: Mapping[TopicName, ManagedLedgerInfo]
    topics: Mapping[TopicName, Released]


def release_recorded(
    records: ManagedLedgerRecords, wanted: Sequence[TopicName], *, dry_run: bool
) -> ReleasedRecords:
    """Release all that can be of these topics (of all without any), or in a dry run only say what would be.

    A topic that vanishes meanwhile is left out.

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
        if not is_wanted(topic, wanted):
            continue
        with suppress(UnknownTopicError):
            after = release_possible(known.info) if dry_run else records.update(name, release_possible).info
            infos[topic], topics[topic] = after, released(known.info, after)
    return ReleasedRecords(infos=infos, topics=topics)


def _with_segments(info: ManagedLedgerInfo) -> set[int]:
    return {ledger.ledger_id for ledger in info.ledgers if shares_of(ledger)}
