"""Maintain a tier that `open_tier` opened: `verify`, `gc`, `repair`, `recover`, `relocate`.

Records are named as `scan` names them. `recover` and `relocate` make their changes while you iterate over them;
`gc` and `repair` change nothing before a method of their result is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from offload_core.maintenance.gc import Collection, Scope
from offload_core.maintenance.record_recovery import Recovered, recover_records
from offload_core.maintenance.relocate import Mover, Outcome, Wanted, make_moves, plan_topic
from offload_core.maintenance.repair import Repair
from offload_core.maintenance.verify import Verification
from offload_core.metadata.catalogue import (
    Records,
    RecordSource,
    TierReader,
    TopicName,
    open_records,
    parse_topic,
)
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.clock import system_now_ms
from offload_core.writing.audit import FileAuditLog
from offload_core.writing.managed_ledger.copy_registry import RecordRegistry


def verify(
    tier: TierReader,
    *,
    records: RecordSource | None = None,
    records_options: Mapping[str, object] | None = None,
    **more: Any,
) -> Verification:
    """Verify a tier: iterate over the result for its findings; its `summary` is complete after the last one.

    Args:
        tier: what is verified.
        records: managed ledgers' records, to compare with the tier; None for none.
        records_options: the options of their place.
        more: `deep=True` for every byte, and what else `Verification` takes.
    """
    opened = None if records is None else _opener(tier, records, records_options)
    return Verification(tier.store, records=opened, **more)


def gc(
    tier: TierReader,
    records: RecordSource,
    scope: Scope | None = None,
    *,
    records_options: Mapping[str, object] | None = None,
    elsewhere: Sequence[TierReader] = (),
    **more: Any,
) -> Collection:
    """Find what no record needs: `report()` of the result shows it, `collect(FileAuditLog(path))` deletes it.

    Args:
        tier: where garbage is searched for.
        records: a cluster's metadata store, which has all records.
        scope: which garbage to find; None for all that is older than the grace period.
        records_options: the options of the metadata store.
        elsewhere: other tiers that records may name copies in.
        more: what else `Collection` takes.
    """
    others = [each.store for each in elsewhere]
    return Collection(tier.store, _opener(tier, records, records_options), scope, elsewhere=others, **more)


def repair(
    tier: TierReader,
    *,
    records: RecordSource | None = None,
    records_options: Mapping[str, object] | None = None,
    **more: Any,
) -> Repair:
    """Repair a tier: `plan()` of the result gives repairs, `do(planned, FileAuditLog(path))` makes one.

    Args:
        tier: what is repaired.
        records: managed ledgers' records, which state what is needed; None for none.
        records_options: the options of their place.
        more: what else `Repair` takes.
    """
    opened = None if records is None else _opener(tier, records, records_options)
    return Repair(tier.store, records=opened, **more)


def recover(
    tier: TierReader, into: ManagedLedgerRecords | None = None, audit: FileAuditLog | None = None, **more: Any
) -> Iterator[Recovered]:
    """Rebuild managed ledgers' records from a tier alone, one topic after another.

    Args:
        tier: whose objects name topics and ledgers.
        into: where missing records are written; None to write none.
        audit: where each is recorded before; without it nothing is written.
        more: what else `offload_core.maintenance.record_recovery.recover_records` takes.

    Raises:
        OptionError, StoreError, FormatError: see there.
    """
    return recover_records(tier.store, into, audit, **more)


def relocate(
    topics: str | Iterable[str],
    source: TierReader,
    target: TierReader,
    records: ManagedLedgerRecords,
    audit: FileAuditLog,
    *,
    parallel: int = 1,
    **how: Any,
) -> Iterator[Outcome]:
    """Move topics' cold copies to another tier: each is copied, verified, and then named by the topic's record.

    Args:
        topics: their names; of a partitioned topic each partition's.
        source: where the copies lie.
        target: where they go.
        records: the topics' records, which can be written.
        audit: where each change is recorded before it is made.
        parallel: so many copies are made at once.
        how: `format`, `merge_bytes`, `ledger_ids`, `filter` of `Wanted`.

    Raises:
        UnknownTopicError: there is no record of a topic. OptionError, MetadataError, StoreError, FormatError.
    """
    registry = RecordRegistry(records, system_now_ms)
    wanted = Wanted(source=tier_record(source.store), target=tier_record(target.store), **how)
    names: list[TopicName] = [parse_topic(each) for each in ([topics] if isinstance(topics, str) else topics)]
    plans = [plan_topic(name, registry.info(managed_ledger_of_topic(name)), wanted) for name in names]
    mover = Mover(registry, source.store, target.store, audit, now_ms=system_now_ms)
    return make_moves(mover, plans, parallel=parallel)


def _opener(
    tier: TierReader, source: RecordSource, options: Mapping[str, object] | None
) -> Callable[[], AbstractContextManager[Records]]:
    return partial(open_records, source, tier.store, tier.options, options)
