"""A collection: find what nothing in a tier needs, and delete it if asked. Or what is left of deleted topics.

The store's clock is read from an object that is written, inspected and deleted. If a crash leaves it, `offload doctor`
reports it by its name.

The deletion of topics lists the tier once more at its end, and writes a receipt: what was deleted, when, by which
records, and what the last listing found. It is a JSON file, written while the deletion goes on, which has its name only
when it is whole. Source: docs/gc.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import Any, TextIO
from uuid import uuid4

from offload_core.maintenance.doctor.checks import PREFIX, seconds_ahead
from offload_core.maintenance.gc.finding import Finder, GarbageSurvey
from offload_core.maintenance.gc.garbage import CollectionSummary, Garbage, RemovalOutcome, Scope
from offload_core.maintenance.gc.removal import DEFAULT_AT_ONCE, Removal
from offload_core.metadata.catalogue import Records, TopicName, read_each, require_complete
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.stores.managed_ledger_records import release_claim
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_hooks.errors import OffloadError, OptionError, StoreError
from offload_hooks.private_files import open_file, sync_directory

_CLAIM_MS = 3_600_000
"""Age of a claim whose process is gone."""


class Collection:
    """Finds garbage: `report` or `collect` it once; `summary` is right at the end.

    Args:
        tier: where garbage is searched for.
        records: opens managed ledgers' records, after the tier was listed.
        scope: which garbage; None for all that is older than the grace period.
        elsewhere: other tiers that records may name copies in, such as one that copies were moved to: old ones go if
            the new ones exist and are whole.
        listener: gets the summary as it grows.
    """

    def __init__(
        self,
        tier: Tier,
        records: Callable[[], AbstractContextManager[Records]],
        scope: Scope | None = None,
        *,
        elsewhere: Sequence[Tier] = (),
        listener: Callable[[CollectionSummary], None] = lambda _: None,
    ) -> None:
        self._tier = tier
        self._elsewhere = elsewhere
        self._records = records
        self._scope = Scope() if scope is None else scope
        self._listener = listener
        self.summary = CollectionSummary()

    def report(self, *, limit: int | None = None) -> Iterator[RemovalOutcome]:
        """Yield all garbage, or the first of it; nothing is changed.

        Raises:
            StoreError: the tier cannot be listed, or the records cannot be read. Errors of single objects are in the
                summary.
        """
        yield from self._run(None, limit, DEFAULT_AT_ONCE)

    def collect(
        self, audit: AuditLog, *, limit: int | None = None, at_once: int = DEFAULT_AT_ONCE
    ) -> Iterator[RemovalOutcome]:
        """Yield the same, deleted if it still is garbage just before. It can be called again after any failure.

        If a record cannot be read, or the clocks are too far apart, nothing is deleted: `summary.why_incomplete`.

        Args:
            audit: records each deletion before it is made.
            limit: the most that is deleted; objects that stay after all do not count.
            at_once: objects that are deleted at a time.

        Raises:
            OptionError: the records are not complete, see `require_complete`.
            StoreError: as `report`, of the audit log, or of a deletion if the others would fail as well.
        """
        yield from self._run(audit, limit, at_once)

    def _run(self, audit: AuditLog | None, limit: int | None, at_once: int) -> Iterator[RemovalOutcome]:
        summary = self.summary
        with GarbageSurvey() as survey:
            finder = Finder(self._tier, survey, self._scope, summary, self._listener, self._elsewhere)
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
                    removal = Removal(
                        tier=self._tier,
                        records=records,
                        writable=records.writable if isinstance(records, StoreRecords) else None,
                        scope=self._scope,
                        audit=audit,
                        elsewhere=self._elsewhere,
                    )
                    outcomes = removal.remove(garbage, at_once=at_once, limit=limit)
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


def measure_clock(tier: Tier, audit: AuditLog, prefix: str = "") -> timedelta:
    """Return how far the store's clock is ahead of this machine's; zero if they may agree.

    Raises:
        StoreError: of the tier or the audit log.
    """
    key = f"{prefix}{PREFIX}clock-{uuid4()}"
    audit.record(
        Change(action=ChangeAction.WRITE, why="the store's clock is compared; it is deleted again", key=key)
    )
    begun = datetime.now(timezone.utc)
    tier.write_index(key, b"clock")
    try:
        ended = datetime.now(timezone.utc)
        return timedelta(seconds=seconds_ahead(tier.stat(key).modified_at, begun, ended))
    finally:
        tier.delete([key])


# --- deleted topics ---

_SHOWN = 5
_KEYS = 1000
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Result of the last listing of the topics: objects of any age and cluster.

    Attributes:
        left: keys of the first thousand objects and uploads that are theirs.
        count: how many these are in all.
        unknown: objects that name these topics, and may be another cluster's.
    """

    left: tuple[str, ...]
    count: int
    unknown: int

    @property
    def is_clean(self) -> bool:
        """True if no object names the topics."""
        return not self.count and not self.unknown


class TopicDeletion:
    """The deletion of the cold copies of topics whose managed ledgers were deleted.

    Args:
        scope: of these topics, and no others.
    """

    def __init__(
        self, tier: Tier, records: Callable[[], AbstractContextManager[Records]], scope: Scope
    ) -> None:
        self._tier = tier
        self._records = records
        self._scope = scope

    def live_topics(self) -> list[TopicName]:
        """Return the topics that have a managed ledger. `OptionError`: the records are not complete."""
        with self._records() as records:
            wanted = [topic for topic in require_complete(records) if self._scope.is_chosen(topic)]
            return [topic for topic, _ in read_each(records, wanted)]  # not those of which it is only claimed

    def check_deleted(self) -> None:
        """Refuse topics that have a managed ledger (`OptionError`): they are read and written."""
        live = self.live_topics()
        if live:
            more = f" and {len(live) - _SHOWN} more" if len(live) > _SHOWN else ""
            raise OptionError(
                f"there is a managed ledger of {', '.join(map(str, live[:_SHOWN]))}{more}: only what is left of "
                "deleted topics is deleted",
                hint="Delete the topic first, by pulsar-admin, or with --managed-ledger where the records are ours.",
            )

    def delete(self, audit: AuditLog | None) -> tuple[CollectionSummary, Iterator[RemovalOutcome]]:
        """Delete objects as the outcomes are iterated over, or (None) only report them. As `Collection.collect`."""
        found = Collection(self._tier, self._records, self._scope)
        return found.summary, found.report() if audit is None else found.collect(audit)

    def prove(self) -> Proof:
        """List the tier once more. `StoreError`."""
        scope = replace(
            self._scope, grace=timedelta(0), clock_skew=timedelta(0), clock_lead=timedelta(days=36_500)
        )
        found = Collection(self._tier, self._records, scope)
        keys = list(islice(left := (each.garbage.key for each in found.report()), _KEYS))
        count = len(keys) + sum(1 for _ in left)
        unknown = found.summary.unknown.total() + found.summary.kept.total() + found.summary.live
        return Proof(left=tuple(keys), count=count, unknown=unknown + found.summary.failed)


class Receipt:
    """A receipt that is being written; see `written_receipt`."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._count = 0
        self._bytes = 0

    def add(self, fields: dict[str, Any]) -> None:
        """Write an object that was deleted; its `size_bytes` is counted."""
        self._file.write(("," if self._count else "") + "\n" + json.dumps(fields))
        self._count += 1
        self._bytes += fields.get("size_bytes") or 0

    def end(self, fields: dict[str, Any]) -> None:
        """Write all else, at the end."""
        sums = {"count": self._count, "size_bytes": self._bytes, "ended_at": _now()}
        self._file.write(f"\n], {json.dumps(sums | fields)[1:]}\n")


@contextmanager
def written_receipt(path: str | os.PathLike[str], about: dict[str, Any]) -> Iterator[Receipt]:
    """Open a receipt, to be ended inside a `with`; if that fails, its part stays as `<name>.unfinished`.

    Raises:
        StoreError: the file cannot be written, or exists already.
    """
    target = Path(path)
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        if os.path.lexists(target):
            raise StoreError("a receipt is not overwritten", key=str(target))
        with suppress(FileNotFoundError):
            unfinished.unlink()  # of one that was killed
        descriptor = open_file(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            head = json.dumps({"version": VERSION, "begun_at": _now()} | about)
            file.write(f'{head[:-1]}, "deleted": [')
            yield Receipt(file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(target)
        sync_directory(target.absolute().parent)
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"the receipt cannot be written: {error.strerror}", key=str(target)) from error


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
