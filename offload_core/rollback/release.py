"""The segments of whole topics released in their records, before their objects are deleted.

So no record ever names an object that is deleted on purpose. What cannot be released keeps its segments, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from offload_core.catalogue import TopicName
from offload_core.catalogue.topics import topic_of_managed_ledger
from offload_core.metadata import ManagedLedgerInfo, ManagedLedgerRecords
from offload_core.metadata.segment_release import release_segments
from offload_hooks.errors import AttemptError


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """A topic's record after its segments were released, and of which ledgers.

    Attributes:
        kept: the ledgers that keep their segments, and why.
    """

    info: ManagedLedgerInfo
    ledger_ids: tuple[int, ...]
    kept: Mapping[int, str]


def release_possible(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
    """Release the segments of each ledger that can do without; to be given to `ManagedLedgerRecords.update`."""
    for ledger in info.in_order:
        with suppress(AttemptError):
            info = release_segments(info, ledger.ledger_id)
    return info


def released(before: ManagedLedgerInfo, after: ManagedLedgerInfo) -> Released:
    """What became of a record that was released."""
    kept: dict[int, str] = {}
    for ledger in after.in_order:
        try:
            release_segments(after, ledger.ledger_id)
        except AttemptError as error:
            kept[ledger.ledger_id] = error.what
    left = _with_segments(after)
    return Released(
        info=after,
        ledger_ids=tuple(each for each in sorted(_with_segments(before)) if each not in left),
        kept=kept,
    )


def release_recorded(
    records: ManagedLedgerRecords, topics: Iterable[TopicName], *, dry_run: bool
) -> dict[TopicName, Released]:
    """Release all that can be of these topics, or in a dry run only say what would be. A topic that is gone is left out.

    Raises:
        StoreError, FormatError: of the metadata; it can be called again.
    """
    wanted, done = set(topics), {}
    for name in sorted(records.names()):
        topic = topic_of_managed_ledger(name)
        known = records.read(name) if topic in wanted else None
        if known is None:
            continue
        after = release_possible(known.info) if dry_run else records.update(name, release_possible).info
        done[topic] = released(known.info, after)
    return done


def _with_segments(info: ManagedLedgerInfo) -> set[int]:
    return {
        ledger.ledger_id
        for ledger in info.ledgers
        if ledger.context is not None and ledger.context.segments
    }
