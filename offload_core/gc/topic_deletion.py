"""Deletes cold copies of topics whose managed ledgers were deleted, and proves by a last listing that none is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import timedelta

from offload_core.audit import AuditLog
from offload_core.catalogue import Records, TopicName, read_each, require_complete
from offload_core.gc.collection import Collection
from offload_core.gc.scope import Scope
from offload_core.gc.summary import Outcome, Summary
from offload_core.tier import Tier
from offload_hooks.errors import OptionError

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What a last listing found of the topics: of any age, and of whichever cluster.

    Attributes:
        left: objects and uploads that are theirs, by their keys; the first thousand.
        count: how many these are in all.
        unknown: objects that name these topics, and may be another cluster's.
    """

    left: tuple[str, ...]
    count: int
    unknown: int

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left of them, whosever it is."""
        return not self.count and not self.unknown


class TopicDeletion:
    """The deletion of topics' cold copies.

    Args:
        scope: wants the topics, and no others.
    """

    def __init__(
        self, tier: Tier, records: Callable[[], AbstractContextManager[Records]], scope: Scope
    ) -> None:
        self._tier = tier
        self._records = records
        self._scope = scope

    def live_topics(self) -> list[TopicName]:
        """Those of the topics that have a managed ledger. `OptionError`: the records are not complete."""
        with self._records() as records:
            wanted = [topic for topic in require_complete(records) if self._scope.is_wanted(topic)]
            return [topic for topic, _ in read_each(records, wanted)]  # not those of which it is only claimed

    def check_deleted(self) -> None:
        """Refuse topics that have a managed ledger (`OptionError`): somebody reads and writes them."""
        live = self.live_topics()
        if live:
            more = f" and {len(live) - _SHOWN} more" if len(live) > _SHOWN else ""
            raise OptionError(
                f"there is a managed ledger of {', '.join(map(str, live[:_SHOWN]))}{more}: only what is left of "
                "deleted topics is deleted",
                hint="Delete the topic first, by pulsar-admin, or with --managed-ledger where the records are ours.",
            )

    def report(self) -> tuple[Summary, Iterator[Outcome]]:
        """What would be deleted."""
        found = Collection(self._tier, self._records, self._scope)
        return found.summary, found.report()

    def delete(self, audit: AuditLog) -> tuple[Summary, Iterator[Outcome]]:
        """Delete it, as the outcomes are iterated over; errors as `Collection.collect`."""
        found = Collection(self._tier, self._records, self._scope)
        return found.summary, found.collect(audit)

    def prove(self) -> Proof:
        """List the tier once more. `StoreError`."""
        scope = replace(
            self._scope, grace=timedelta(0), clock_skew=timedelta(0), clock_lead=timedelta(days=36_500)
        )
        found = Collection(self._tier, self._records, scope)
        keys, count = _first(outcome.garbage.key for outcome in found.report())
        unknown = found.summary.unknown.total() + found.summary.kept.total() + found.summary.live
        return Proof(left=keys, count=count, unknown=unknown + found.summary.failed)


def _first(keys: Iterable[str], most: int = 1000) -> tuple[tuple[str, ...], int]:
    first, count = [], 0
    for key in keys:
        count += 1
        if count <= most:
            first.append(key)
    return tuple(first), count
