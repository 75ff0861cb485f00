"""A collection: find what nothing in a tier needs, and delete it if that is asked for.

The store's clock is read by an object that is written, inspected and deleted. If a crash leaves it, `offload doctor`
reports it by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from itertools import islice
from uuid import uuid4

from offload_core.maintenance.doctor.checks import PREFIX, seconds_ahead
from offload_core.maintenance.gc.finding import Finder
from offload_core.maintenance.gc.garbage import CollectionSummary, Garbage, RemovalOutcome, Scope
from offload_core.maintenance.gc.garbage_survey import GarbageSurvey
from offload_core.maintenance.gc.removal import DEFAULT_AT_ONCE, Removal
from offload_core.metadata.catalogue import Records, require_complete
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.stores.managed_ledger_records import release_claim
from offload_core.storage.executors import Executor
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_hooks.errors import OffloadError

_CLAIM_MS = 3_600_000
"""So old is the claim of a process that is gone."""


class Collection:
    """Finds garbage: `report` or `collect` it once; `summary` is right in the end.

    Args:
        records: opens managed ledgers' records, after the tier was listed.
        elsewhere: other tiers that records may name copies in, such as one that copies were moved to: old ones go if
            the new ones are there and whole.
        executor: who asks objects whose they are; None for this process. The tier is listed, records are read, and what
            is garbage is decided here, and deleted from here.
        listener: told now and then how far it is.
    """

    def __init__(
        self,
        tier: Tier,
        records: Callable[[], AbstractContextManager[Records]],
        scope: Scope | None = None,
        *,
        elsewhere: Sequence[Tier] = (),
        executor: Executor | None = None,
        listener: Callable[[CollectionSummary], None] = lambda _: None,
    ) -> None:
        self._tier = tier
        self._elsewhere = elsewhere
        self._records = records
        self._scope = Scope() if scope is None else scope
        self._executor = executor
        self._listener = listener
        self.summary = CollectionSummary()

    def report(self, *, limit: int | None = None) -> Iterator[RemovalOutcome]:
        """All garbage, or the first of it; nothing is changed.

        Raises:
            StoreError: the tier cannot be listed, or the records cannot be read. What fails of a single object is in
                the summary, and the others are looked at.
        """
        yield from self._run(None, limit, DEFAULT_AT_ONCE)

    def collect(
        self, audit: AuditLog, *, limit: int | None = None, at_once: int = DEFAULT_AT_ONCE
    ) -> Iterator[RemovalOutcome]:
        """The same, deleted if it still is garbage just before. It can be called again after any failure.

        If a record cannot be read, or the clocks are too far apart, nothing is deleted: `summary.why_incomplete`.

        Args:
            limit: the most that is deleted; what stays after a last look does not count.

        Raises:
            OptionError: the records are not complete, see `require_complete`.
            StoreError: as `report`, of the audit log, or of a deletion if the others would fail as well.
        """
        yield from self._run(audit, limit, at_once)

    def _run(self, audit: AuditLog | None, limit: int | None, at_once: int) -> Iterator[RemovalOutcome]:
        summary = self.summary
        with GarbageSurvey() as survey:
            finder = Finder(
                self._tier,
                survey,
                self._scope,
                summary,
                self._listener,
                elsewhere=self._elsewhere,
                executor=self._executor,
            )
            finder.list_all()
            with self._records() as records:
                topics = records.topics() if audit is None else require_complete(records)
                summary.why_incomplete = summary.why_incomplete or records.why_incomplete
                finder.read_records(records, topics)
                drawn = 0

                def counted() -> Iterator[Garbage]:
                    nonlocal drawn
                    for each in finder.garbage(records):
                        drawn += 1
                        yield each

                garbage = counted()
                deletes = audit is not None and summary.why_incomplete is None
                if audit is None or not deletes:
                    outcomes: Iterator[RemovalOutcome | OffloadError] = (
                        RemovalOutcome(garbage=each) for each in islice(garbage, limit)
                    )
                else:
                    outcomes = self._removal(records, audit).remove(garbage, at_once=at_once, limit=limit)
                came = 0
                for outcome in outcomes:
                    came += 1
                    if isinstance(outcome, OffloadError):
                        summary.fail(outcome)
                        continue
                    summary.count(outcome)
                    self._listener(summary)
                    yield outcome
                if deletes and isinstance(records, StoreRecords) and records.writable is not None:
                    for topic in finder.unrecorded:
                        release_claim(records.writable, records.name(topic), self._scope.now_ms() - _CLAIM_MS)
                # in this order: what is drawn and did not come is beyond the limit
                summary.is_limited = drawn > came or next(garbage, None) is not None

    def _removal(self, records: Records, audit: AuditLog) -> Removal:
        return Removal(
            tier=self._tier,
            records=records,
            writable=records.writable if isinstance(records, StoreRecords) else None,
            scope=self._scope,
            audit=audit,
            elsewhere=self._elsewhere,
        )


def measure_clock(tier: Tier, audit: AuditLog, prefix: str = "") -> timedelta:
    """Return how far the store's clock is ahead of this machine's; zero if they may agree.

    Raises:
        StoreError: of the tier or the audit log.
    """
    key = f"{prefix}{PREFIX}clock-{uuid4()}"
    audit.record(
        Change(action=ChangeAction.WRITE, why="the store's clock is compared; it is deleted again", key=key)
    )
    begun = datetime.now(UTC)
    tier.write_index(key, b"clock")
    try:
        ended = datetime.now(UTC)
        return timedelta(seconds=seconds_ahead(tier.stat(key).modified_at, begun, ended))
    finally:
        tier.delete([key])
