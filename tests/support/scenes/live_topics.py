"""A topic of a running cluster that outlives processes: its record, ledgers and objects, and a model of its broker."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from pathlib import Path

from crash_points import Metadata, Points, watched
from entries import entry, read_object
from managed_ledgers import Audit, Clock, environment_of

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.object_format import ObjectKey
from offload_core.format.messages.entry import pack_tombstone, split_entry
from offload_core.maintenance.live import LiveCluster, LiveTopicOffloads
from offload_core.maintenance.live.brokers import BrokersOffload
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.topics import managed_ledger_of_topic
from offload_core.metadata.policies import parse_policies, resolve_policies
from offload_core.metadata.records import (
    DriverMetadata,
    EntryPosition,
    LedgerRecord,
    ManagedLedgerInfo,
    OffloadContext,
)
from offload_core.metadata.records.live_changes import own_ledgers
from offload_core.metadata.records.offload_context import FILTER_PROPERTY
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.live_records import LiveRecordStore, MirrorStore
from offload_core.storage.tier import Tier
from offload_core.writing.managed_ledger import OffloadStatus, due_ledgers
from offload_core.writing.policy_store import PolicyStore
from offload_drivers.local import LocalDriver
from offload_hooks import hookimpl
from offload_hooks.errors import StoreUnavailableError, VersionConflictError
from offload_hooks.testing import MemoryLedgers, MemoryLedgerStore, MemoryMetadataStore

TOPIC = parse_topic("persistent://acme/live/orders")
NAME = managed_ledger_of_topic(TOPIC)
ALL = resolve_policies(topic=parse_policies({"driver": "aws-s3", "threshold_in_bytes": 0}))
BUCKET = "cold"
BROKERS_DRIVER = DriverMetadata(
    name="aws-s3",
    properties=(
        ("bucket", BUCKET),
        ("region", "east"),
        ("serviceEndpoint", ""),
        ("managedLedgerOffloadDriver", "AWS_S3"),
    ),
)


class BucketDriver(LocalDriver):
    """A folder that describes itself as a bucket."""

    location = f"s3://{BUCKET}/"
    bucket = BUCKET

    @hookimpl
    def describe(self):
        """See `TierHooks`."""
        properties = {"bucket": self.bucket, "region": "east", "serviceEndpoint": ""}
        return replace(
            super().describe(),
            location=self.location,
            driver_metadata={"managedLedgerOffloadDriver": "AWS_S3", **properties},
        )


class OtherBucket(BucketDriver):
    """Another one."""

    location = "s3://other/"
    bucket = "other"


def brokers_driver(bucket):
    """What a broker records of a copy in a bucket."""
    return BROKERS_DRIVER.with_property("bucket", bucket)


class _LiveMetadata(MemoryMetadataStore):
    replace = MemoryMetadataStore.put


@dataclass
class LiveTopic:
    """The topic, with sealed ledgers of so many entries each, and one that is open.

    Attributes:
        loaded: the record and its version as the broker has them; None while no broker has the topic loaded.
        is_denied: whether the broker cannot read the tiers. denied_bucket: one that it cannot read.
        is_offloading: whether it offloads the topic itself at the moment.
        aborted: transactions that were; the ids of none are 0.
    """

    folder: Path
    entries: tuple[int, ...] = (5, 3, 4)
    clock: Clock = field(default_factory=Clock)
    audit: Audit = field(default_factory=Audit)
    policies: dict[str, object] = field(default_factory=dict)
    driver: type[BucketDriver] = BucketDriver
    loaded: tuple[ManagedLedgerInfo, int] | None = None
    is_denied: bool = False
    denied_bucket: str | None = None
    is_offloading: bool = False
    aborted: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self):
        self.cold, self.other = self.folder / "cold", self.folder / "other"
        self.cold.mkdir(parents=True)
        self.other.mkdir()
        self.metadata, self.own, self.ledgers = _LiveMetadata(), MemoryMetadataStore(), MemoryLedgers()
        self.payloads: dict[int, list[bytes]] = {}
        self._numbers = itertools.count()
        self._writers = {}
        written = self.records.write(NAME, ManagedLedgerInfo(ledgers=(self._new_ledger(),)), None)
        self.loaded = (written.info, written.version)
        for count in self.entries:
            self.send(count)
            self.roll()
        self.send(2)

    # --- the cluster ---------------------------------------------------------------------------

    @property
    def records(self):
        return ManagedLedgerRecords(self.metadata)

    def info(self):
        """The record as it is stored."""
        return self.records.require(NAME).info

    def send(self, count):
        """Append messages to the open ledger."""
        self.append(*(entry(b"message %d" % next(self._numbers)) for _ in range(count)))

    def append(self, *payloads):
        """Append entries to the open ledger."""
        ledger_id = max(self.payloads)
        for payload in payloads:
            self._writers[ledger_id].append(payload)
            self.payloads[ledger_id].append(payload)

    def _new_ledger(self):
        writer = MemoryLedgerStore(self.ledgers).create({"pulsar/managed-ledger": NAME.encode()})
        self._writers[writer.ledger_id] = writer
        self.payloads[writer.ledger_id] = []
        return LedgerRecord(info=LedgerInfo(ledger_id=writer.ledger_id, timestamp_ms=0))

    def _closed(self, ledger_id):
        """The record of a ledger as a broker makes it from BookKeeper: without a context."""
        payloads = self.payloads[ledger_id]
        self._writers[ledger_id].close()
        return LedgerRecord(
            info=LedgerInfo(
                ledger_id=ledger_id,
                entries=len(payloads),
                size=sum(map(len, payloads)),
                timestamp_ms=self.clock(),
            )
        )

    def _write(self, info):
        """The broker's own write: of the whole record, if that is what it has loaded."""
        assert self.loaded is not None
        version = self.metadata.get(f"/managed-ledgers/{NAME}")[1]
        if version != self.loaded[1]:
            self.loaded = None  # it fences itself
            raise VersionConflictError("a broker's write")
        written = self.records.write(NAME, info, self.records.require(NAME))
        self.loaded = (written.info, written.version)

    def load(self):
        """Have a broker load the topic: the last ledger is made anew from BookKeeper, and a new one follows."""
        found = self.records.require(NAME)
        self.loaded = (found.info, found.version)
        self.roll()

    def roll(self):
        """Close the open ledger, and go on in another."""
        if self.loaded is None:
            self.load()
            return
        info = self.loaded[0]
        last = max(each.ledger_id for each in info.ledgers)
        kept = [each for each in info.ledgers if each.ledger_id != last]
        closed = [self._closed(last)] if self.payloads[last] else []
        new = self._new_ledger()
        try:
            self._write(replace(info, ledgers=(*kept, *closed, new)))
        except VersionConflictError:
            self._forget(new.ledger_id)
            self.load()
            return
        if not closed:
            self._forget(last)

    def _forget(self, ledger_id):
        del self.payloads[ledger_id], self.ledgers.ledgers[ledger_id]

    def begin_offload(self, ledger_id, uuid):
        """Have the broker begin an offload of its own."""
        info = self._now().info
        ledger = info.ledger(ledger_id)
        if (
            ledger is not None
            and not ledger.has_complete_copy
            and ledger.ledger_id != info.in_order[-1].ledger_id
        ):
            context = OffloadContext(uuid=uuid, driver=BROKERS_DRIVER)
            self._write(info.with_ledger(replace(ledger, context=context)))

    def trim(self, ledger_id):
        """Have the broker delete a ledger whose retention is over."""
        info = self._now().info
        self._write(
            replace(info, ledgers=tuple(each for each in info.ledgers if each.ledger_id != ledger_id))
        )

    def _now(self):
        """The record, with the topic loaded anew if it was changed beside the broker."""
        found = self.records.require(NAME)
        if self.loaded is None or self.loaded[1] != found.version:
            self.load()
        return self.records.require(NAME)

    # --- processes of ours ---------------------------------------------------------------------

    def tier(self, points=None):
        """The tier as a new process has it."""
        return Tier(self.driver(str(self.cold)), [] if points is None else [watched(points)])

    def other_tier(self, points=None):
        """Another tier, to which copies are moved."""
        return Tier(OtherBucket(str(self.other)), [] if points is None else [watched(points)])

    def cluster(self, points=None, **changes):
        """The cluster as a new process has it; with points each call is one."""
        store = LiveRecordStore(self.metadata)
        environment = environment_of(
            MirrorStore(self.own, store),
            MemoryLedgerStore(self.ledgers),
            self.tier(points),
            points,
            now_ms=self.clock,
            audit=self.audit,
        )
        fields = {"driver": "aws-s3", "bucket": BUCKET, **self.policies}
        return LiveCluster(
            records=ManagedLedgerRecords(
                store if points is None else Metadata(store, points), compression=None
            ),
            mirror=environment,
            policies=PolicyStore(
                MemoryMetadataStore(),
                broker=parse_policies({name: each for name, each in fields.items() if each is not None}),
            ),
            brokers=ModelBrokers(self, Points() if points is None else points),
            reload_timeout_s=0.2,
            grace_s=60,
            **changes,
        )

    def resolved(self):
        """The policies in force, with thresholds for all."""
        return replace(self.cluster().policies.resolve(TOPIC), offload=ALL)

    def offload(self, points=None, thresholds=ALL):
        """Offload what is due, by a new process."""
        return offload_due(self.cluster(points), thresholds)

    # --- what there is -------------------------------------------------------------------------

    def mirror(self):
        """Our own record of the topic; None if there is none."""
        found = self.mirrors.read(NAME)
        return None if found is None else found.info

    @property
    def mirrors(self):
        """Our own records."""
        return ManagedLedgerRecords(MirrorStore(self.own, self.metadata))

    def objects(self):
        """The keys in the tier."""
        return {each.key for each in self.tier().list_objects()}

    def other_objects(self):
        """The keys in the other tier."""
        return {each.key for each in self.other_tier().list_objects()}

    def cold_entries(self, ledger):
        """The entries of a ledger's cold copy."""
        key = ObjectKey(folder="", uuid=ledger.context.uuid, ledger_id=ledger.ledger_id, is_index=False)
        folder = self.other if ledger.context.driver.get("bucket") == OtherBucket.bucket else self.cold
        data, index = ((folder / name).read_bytes() for name in (key.data_key, key.index_key))
        return [bytes(payload) for _, _, payload in read_object(data, index, key)]

    def check(self, where=""):
        """Nothing is lost: each copy that the record names is whole, and the last ledger has none.

        One that a filter of transactions went through has tombstones in the place of what was aborted.
        """
        info = self.info()
        for ledger in info.ledgers:
            if ledger.has_complete_copy:
                through = ledger.context.driver.get(FILTER_PROPERTY)
                payloads = self.payloads[ledger.ledger_id]
                expected = payloads if through is None else list(map(self._filtered, payloads))
                assert self.cold_entries(ledger) == expected, (where, ledger)
                bucket = ledger.context.driver.get("bucket")
                recorded = brokers_driver(bucket).with_property(FILTER_PROPERTY, through)
                assert ledger.context.driver == recorded, (where, ledger)
        assert info.in_order[-1].context is None, where
        assert set(self.payloads) == set(self.ledgers.ledgers), where

    def _filtered(self, payload):
        parts = split_entry(payload)
        ids = parts.metadata.txnid_most_bits, parts.metadata.txnid_least_bits
        is_aborted = ids in self.aborted and not parts.is_marker
        return pack_tombstone(payload) if is_aborted else payload

    def check_done(self, where="", *, but=()):
        """Once a run has no more to do all that may go is offloaded, brokers know it, and nothing else is left."""
        before = None
        while before != (before := self.info()):
            self.offload()  # the ledger that was open is closed when brokers load the topic
        self.check(where)
        info = self.info()
        cold = {each.ledger_id: each for each in info.in_order[:-1]}
        assert {each for each, ledger in cold.items() if not ledger.has_complete_copy} == set(but), where
        keys = [
            ObjectKey(folder="", uuid=ledger.context.uuid, ledger_id=each, is_index=False)
            for each, ledger in cold.items()
            if ledger.has_complete_copy
        ]
        named = {key.data_key for key in keys} | {key.index_key for key in keys}
        assert self.objects() == named, where
        assert own_ledgers(self.mirror()) == (), where
        known = ModelBrokers(self, Points()).offloaded(TOPIC)
        assert all(known[each] for each in cold if each not in but), where


def offload_due(cluster, thresholds=ALL) -> OffloadStatus:
    """Offload what is due of the topic; the status then, with the reason for each ledger that is left."""
    offloads = LiveTopicOffloads(cluster, NAME)
    due = due_ledgers(offloads.read_info(), thresholds, cluster.mirror.now_ms())
    offloads.offload_prefix(due.target or EntryPosition(0, 0))
    done = offloads.offload_status
    return replace(done, waiting={**due.skipped, **done.waiting})


class ModelBrokers:
    """See `Brokers`; of one topic, whose record it has loaded, or not."""

    def __init__(self, topic, points):
        self._topic = topic
        self._points = points

    def unload(self, _):
        """See `Brokers`."""

        def unload():
            self._topic.loaded = None

        self._points.call("broker unload", unload)

    def offloaded(self, _):
        """See `Brokers`."""
        return self._points.call(
            "broker stats",
            lambda: {each.ledger_id: each.has_complete_copy for each in self._loaded().ledgers},
        )

    def offload_state(self, _):
        """See `Brokers`."""
        state = "RUNNING" if self._topic.is_offloading else "NOT_RUN"
        return self._points.call("broker state", lambda: BrokersOffload(state=state))

    def read_entry(self, _, position: EntryPosition):
        """See `Brokers`."""

        def read():
            ledger = self._loaded().ledger(position.ledger_id)
            if ledger is None:
                return None
            cold = ledger.has_complete_copy
            if cold and (
                self._topic.is_denied or self._topic.denied_bucket == ledger.context.driver.get("bucket")
            ):
                raise StoreUnavailableError("the broker has no credentials")
            entries = self._topic.cold_entries(ledger) if cold else self._topic.payloads[ledger.ledger_id]
            return entries[position.entry_id]

        return self._points.call("broker read", read)

    def _loaded(self):
        if self._topic.loaded is None:
            self._topic.load()
        return self._topic.loaded[0]
