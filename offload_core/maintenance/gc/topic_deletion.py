"""Delete cold copies of topics whose managed ledgers were deleted, and prove by a last listing that none is left.

The receipt states what was deleted, when, by which records, and what the last listing found. It is a JSON file,
written as the deletion goes on, which has its name only when it is whole. Source: docs/gc.md.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TextIO

from offload_core.maintenance.gc.collection import Collection
from offload_core.maintenance.gc.garbage import CollectionSummary, RemovalOutcome, Scope
from offload_core.metadata.catalogue import Records, TopicName, read_each, require_complete
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog
from offload_hooks.errors import OptionError, StoreError
from offload_hooks.private_files import open_file, sync_directory

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Result of the last listing of the topics: objects of any age, and of whichever cluster.

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
        """True if nothing is left of them, whosever it is."""
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

    def report(self) -> tuple[CollectionSummary, Iterator[RemovalOutcome]]:
        """Return what would be deleted."""
        found = Collection(self._tier, self._records, self._scope)
        return found.summary, found.report()

    def delete(self, audit: AuditLog) -> tuple[CollectionSummary, Iterator[RemovalOutcome]]:
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


VERSION = 1


class Receipt:
    """A receipt that is being written; see `written_receipt`."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._count = 0
        self._bytes = 0

    def add(self, fields: dict[str, Any]) -> None:
        """Something that was deleted; its `size_bytes` is counted."""
        self._file.write(("," if self._count else "") + "\n" + json.dumps(fields))
        self._count += 1
        self._bytes += fields.get("size_bytes") or 0

    def end(self, fields: dict[str, Any]) -> None:
        """All else, in the end."""
        sums = {"count": self._count, "size_bytes": self._bytes, "ended_at": _now()}
        self._file.write(f"\n], {json.dumps(sums | fields)[1:]}\n")


@contextmanager
def written_receipt(path: str | os.PathLike[str], about: dict[str, Any]) -> Iterator[Receipt]:
    """A receipt, to be ended inside a `with`; if that fails, what is there stays beside, as `<name>.unfinished`.

    Raises:
        StoreError: the file cannot be written, or is there already.
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
    return datetime.now(UTC).isoformat(timespec="milliseconds")
