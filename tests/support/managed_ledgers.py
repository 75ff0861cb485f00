"""Builders of managed ledgers; and a process that owns one.

`python managed_ledgers.py FOLDER` opens the topic, prints `ready`, adds an entry for each line that it reads, and
prints its position, or the error's name.
"""

from __future__ import annotations

import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from crash_points import Metadata, PointedAudit, PointedLedgers, left_open, watched
from entries import read_object

from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.policies import RetentionPolicies, parse_policies, resolve_policies
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import Tier
from offload_core.writing.audit import Change, Deletion
from offload_core.writing.managed_ledger import Environment, HotLedgers, open_managed_ledger
from offload_core.writing.managed_ledger.policy_tiers import PolicyTiers
from offload_core.writing.offload import LedgerOffloader
from offload_core.writing.offload.recorded_offload import RecordedOffloads
from offload_core.writing.policy_store import ResolvedPolicies
from offload_drivers.local import LocalDriver
from offload_hooks.errors import OffloadError, StoreUnavailableError
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch, LedgerStatus

NAME = "acme/cold/persistent/orders"


@dataclass
class Clock:
    """The time, in ms."""

    now_ms: int = 1_700_000_000_000

    def __call__(self):
        return self.now_ms

    def pass_s(self, seconds):
        """Let it pass."""
        self.now_ms += int(seconds * 1000)


@dataclass
class Audit:
    """An audit log in memory: changes, as they were recorded."""

    changes: list[Deletion | Change] = field(default_factory=list)

    def record(self, change):
        """See `AuditLog`."""
        self.changes.append(change)

    @property
    def deletions(self):
        """Those of copies of ledgers."""
        return [each for each in self.changes if isinstance(each, Deletion)]

    def copies(self):
        """Ledger and copy of each."""
        return [(each.ledger_id, each.copy) for each in self.deletions]


class FailingAudit(Audit):
    """An audit log that fails at the k-th change; earlier ones go on to another."""

    def __init__(self, k, audit=None):
        super().__init__([] if audit is None else audit.changes)
        self._left = k

    def record(self, change):
        """See `AuditLog`."""
        self._left -= 1
        if not self._left:
            raise StoreUnavailableError("no audit")
        super().record(change)


class ColdLedger:
    """Reads a ledger's cold copy, from a folder; all of it at once."""

    def __init__(self, folder, record):
        assert record.context is not None
        assert record.context.uuid is not None
        self.ledger_id = record.ledger_id
        key = ObjectKey(folder="", uuid=record.context.uuid, ledger_id=record.ledger_id, is_index=False)
        data, index = ((folder / name).read_bytes() for name in (key.data_key, key.index_key))
        self.entries = [payload for _, _, payload in read_object(data, index, key)]

    def status(self):
        """See `LedgerReader`."""
        return LedgerStatus(
            ledger_id=self.ledger_id,
            entry_count=len(self.entries),
            size_bytes=sum(map(len, self.entries)),
            sealed=True,
            created_at_ms=0,
        )

    def read(self, first_entry_id, last_entry_id, max_bytes=DEFAULT_READ_BYTES):
        """See `LedgerReader`."""
        stop, used = first_entry_id + 1, len(self.entries[first_entry_id])
        while stop <= last_entry_id and used + len(self.entries[stop]) <= max_bytes:
            used += len(self.entries[stop])
            stop += 1
        return EntryBatch.of(first_entry_id, self.entries[first_entry_id:stop])

    def close(self):
        """See `LedgerReader`."""


def offloads_of(metadata, hot, cold, points=None, *, block_bytes=1024, **given):
    """Offloads as a new process has them; with `points` each call of a store is one.

    `metadata` is a store or the records in one; `cold` a tier, several, or the folder of a local one.
    """
    if isinstance(cold, Path):
        cold = Tier(LocalDriver(str(cold)), [] if points is None else [watched(points)])
    options = {} if block_bytes is None else {"max_block_bytes": block_bytes}
    if points is not None:
        options["parts_in_flight"] = 1
        hot = PointedLedgers(hot, points)
    return RecordedOffloads(
        _records(metadata, points),
        hot,
        cold if isinstance(cold, KnownTiers) else KnownTiers(cold),
        offloader_of=lambda tier, _: LedgerOffloader(tier, **options),
        **given,
    )


def policies_to(folder=None, retention=None, **given):
    """A topic's own policies, with a tier in a folder if there is one, and without a retention unless given."""
    tier = {} if folder is None else {"driver": "local", "extra_configurations": {"root": str(folder)}}
    return ResolvedPolicies(
        offload=resolve_policies(topic=parse_policies({**tier, **given})),
        retention=retention or RetentionPolicies(),
        retention_origin="default" if retention is None else "topic",
    )


@contextmanager
def offloads_by(policies_of, records, hot, now_ms, **given):
    """Offloads to the tiers that policies name, and these."""
    with closing(PolicyTiers(policies_of, **given)) as tiers:
        yield (
            RecordedOffloads(
                records,
                hot,
                tiers.lease,
                offloader_of=tiers.offloader,
                stats=given.get("stats"),
                now_ms=now_ms,
            ),
            tiers,
        )


def environment_of(
    metadata, hot, cold, points=None, *, block_bytes=1024, now_ms=lambda: 1000, audit=None, **given
):
    """The environment of a new process that owns topics, and offloads them if there is a tier; see `offloads_of`."""
    offloads = None
    if cold is not None:
        offloads = offloads_of(metadata, hot, cold, points, block_bytes=block_bytes, now_ms=now_ms)
    audit = audit or Audit()
    return Environment(
        records=_records(metadata, points),
        hot=HotLedgers(hot if points is None else PointedLedgers(hot, points)),
        offloads=offloads,
        audit=audit if points is None else PointedAudit(audit, points),
        now_ms=now_ms,
        **given,
    )


def _records(metadata, points):
    store = metadata.store if isinstance(metadata, ManagedLedgerRecords) else metadata
    return ManagedLedgerRecords(store if points is None else Metadata(store, points))


def environment_in(folder):
    """Records and ledgers in a folder that several processes may share."""
    store = left_open(SqliteStore(f"sqlite:{folder}/records.db", create=True))
    hot = left_open(FileLedgerStore(folder / "hot", sync="never"))
    return Environment(records=ManagedLedgerRecords(store), hot=HotLedgers(hot))


def main():
    """See the module."""
    topic = open_managed_ledger(environment_in(Path(sys.argv[1])), NAME)
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            print(topic.roll() if line == "roll\n" else topic.add_entry(line.encode()), flush=True)
        except OffloadError as error:
            print(type(error).__name__, flush=True)


if __name__ == "__main__":
    main()
