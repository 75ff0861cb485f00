"""Garbage is collected while others write: whatever the interleaving, nothing goes that a record or an attempt needs.

Ledger-based offloads, streaming, replacements, trims and deletions of topics go on step by step, between any two calls
of a collection as well; they are killed, or stand still; clocks differ. In the end the dead are dead for long, and
nothing is left but what records need, and what may be another cluster's.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from effort import effort
from entries import LedgerPart, pip17_object, streaming_object
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from managed_ledgers import Audit
from records import closed, copied, managed_ledger, new_copy
from tiers import uuid_of

from offload_core.format.codec.object_format import ObjectKey, parse_block_checksums_key, parse_key
from offload_core.maintenance.gc import Collection, Scope
from offload_core.maintenance.gc.garbage_judging import Naming, is_under_way, naming_of, namings
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.records import (
    DriverMetadata,
    EntryPosition,
    abandon_attempt,
    abandon_segment,
    assign_segment,
    begin_attempt,
    complete_attempt,
    complete_segment,
    parse_managed_ledger_info,
    resume_segment,
    unfinished_segment,
)
from offload_core.metadata.records.attempts import AttemptHolder, AttemptLease
from offload_core.metadata.records.ledger_changes import mark_for_deletion
from offload_core.metadata.records.replacements import begin_replacement, forget_replaced, switch_replacement
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.managed_ledger_records import is_claim
from offload_core.storage.tier import Tier
from offload_core.storage.tier.chain import Layer
from offload_core.writing.offload.attempt_objects import delete_attempt
from offload_core.writing.offload.running_attempt import check_not_alive, check_over
from offload_hooks import hookimpl
from offload_hooks.errors import AttemptError, BadMagicError, UnknownTopicError, UploadError
from offload_hooks.testing import MemoryDriver, MemoryMetadataStore, MemoryTier

# --- Writers of a tier that can be stopped between any two lines, as generators; and a tier whose clock is another's


PAYLOADS = [b"first", b"second", b"third"]
DRIVER = DriverMetadata(name="memory", properties=(("location", "memory:"),))
LEASE_MS = 60_000
_SOMEBODY = AttemptHolder(machine=1, process=1, started=1)

Steps = Iterator[None]


@dataclass
class StoreClock:
    """The time by our clock, and how far the store's is ahead."""

    now_ms: int = 1_700_000_000_000
    skew_s: int = 0

    def __call__(self):
        return self.now_ms

    @property
    def in_store(self):
        """The store's time."""
        return datetime.fromtimestamp(self.now_ms / 1000, UTC) + timedelta(seconds=self.skew_s)


class ClockedDriver(MemoryDriver):
    """A tier in memory by the store's clock; what is deleted or aborted is told before."""

    def __init__(self, tier, clock, told):
        super().__init__(tier)
        self._clock, self._told = clock, told

    @hookimpl
    def begin_data(self, key, content_type, user_metadata):
        upload = super().begin_data(key, content_type, user_metadata)
        self.tier.uploads[upload].started_at = self._clock.in_store
        return upload

    @hookimpl
    def delete(self, keys):
        for key in keys:
            self._told(key)
        return super().delete(keys)

    @hookimpl
    def abort_data(self, upload):
        if upload in self.tier.uploads:  # else it was committed meanwhile, and nothing is aborted
            self._told(upload.key)
        return super().abort_data(upload)

    def store(self, key, *given):
        """Put an object in place."""
        super().store(key, *given)
        stored = self.tier.objects[key]
        self.tier.objects[key] = replace(stored, stat=replace(stored.stat, modified_at=self._clock.in_store))
        return self.tier.objects[key].stat


@dataclass
class Writer:
    """Whoever writes to one topic; each verb yields between any two of its calls.

    Attributes:
        leased: it has a lease, as ours has; else it is a broker, whose records nobody else changes.
        uuid: of the attempt that it is at.
    """

    records: ManagedLedgerRecords
    tier: Tier
    clock: StoreClock
    name: str
    cluster: str | None
    leased: bool
    uuid: UUID | None = None

    def lease(self):
        """A lease from now on, of a process on another machine."""
        return AttemptLease(holder=_SOMEBODY, until_ms=self.clock() + LEASE_MS) if self.leased else None

    # --- verbs ---------------------------------------------------------------------------------

    def offload(self, ledger_id):
        """A ledger in one object."""
        with suppress(AttemptError, UnknownTopicError, UploadError):
            info = self._info()
            ledger = info.ledger(ledger_id)
            context = None if ledger is None else ledger.context
            older = None if context is None or context.complete else context.uuid
            if older is not None and not (context and context.segments):
                if self.leased:
                    self._update(lambda now: _taken_over(now, ledger_id, older, self.clock()))
                yield
                delete_attempt(self.tier, _key(older, ledger_id))
                yield
            uuid = self._begin()
            self._update(
                lambda now: begin_attempt(now, ledger_id, uuid, DRIVER, replaces=older, lease=self.lease())
            )
            yield
            yield from self._write(pip17_object(PAYLOADS, ledger_id=ledger_id), uuid)
            self._end(lambda now: complete_attempt(now, ledger_id, uuid, self.clock()))

    def stream(self, ledger_id):
        """A segment of a whole ledger."""
        with suppress(AttemptError, UnknownTopicError, UploadError):
            old = unfinished_segment(self._info())
            last = len(PAYLOADS) - 1
            if old is not None:
                self._update(lambda now: _segment_taken_over(now, old.uuid, old.driver, self.clock()))
                yield
                delete_attempt(self.tier, _key(old.uuid, None))
                yield
            uuid = self._begin()
            if old is None:
                begin, end = EntryPosition(ledger_id, 0), EntryPosition(ledger_id, last)
                self._update(
                    lambda now: assign_segment(now, uuid, begin, DRIVER, 0, end=end, lease=self.lease())
                )
            else:
                begin = old.begin
                self._update(lambda now: resume_segment(now, old.uuid, uuid, DRIVER, 0, lease=self.lease()))
            yield
            part = LedgerPart(ledger_id=begin.ledger_id, blocks=[PAYLOADS])
            yield from self._write(streaming_object([part]), uuid)
            end = EntryPosition(begin.ledger_id, last)
            self._end(lambda now: complete_segment(now, uuid, end, {end.ledger_id: last}, self.clock()))

    def replace(self, ledger_id):
        """Another copy of a ledger takes the place of the one that is there, which is deleted then."""
        with suppress(AttemptError, UnknownTopicError, UploadError):
            ledger = self._info().ledger(ledger_id)
            if ledger is None or ledger.context is None or ledger.context.segments:
                return
            old = ledger.context.uuid
            uuid = self._begin()
            self._update(
                lambda now: begin_replacement(
                    now, new_copy(uuid, ledger_id, since_ms=self.clock()), lease=self.lease()
                )
            )
            yield
            yield from self._write(pip17_object(PAYLOADS, ledger_id=ledger_id), uuid)
            self._end(lambda now: switch_replacement(now, uuid, self.clock()))
            yield
            delete_attempt(self.tier, _key(old, ledger_id))
            yield
            self._update(lambda now: forget_replaced(now, old))

    def trim(self, ledger_id):
        """A ledger is deleted with its copy: by us condemned first, by a broker forgotten first."""
        with suppress(AttemptError, UnknownTopicError, UploadError):
            ledger = self._info().ledger(ledger_id)
            if ledger is None:
                return
            if self.leased:
                self._update(lambda now: mark_for_deletion(now, [ledger_id]))
                yield
            else:
                self._update(lambda now: _without(now, ledger_id))
            context = ledger.context
            if context is not None and context.uuid is not None:
                key = _key(context.uuid, None if context.segments else ledger_id)
                delete_attempt(self.tier, key)
                yield
            self._update(lambda now: _without(now, ledger_id))

    def delete_topic(self):
        """The topic's record goes; what lies in the tier stays behind."""
        known = self.records.read(self.name)
        if known is not None:
            self.records.delete(self.name, known)
        return iter(())

    # --- parts ---------------------------------------------------------------------------------

    def _info(self):
        known = self.records.read(self.name)
        if known is None:
            raise UnknownTopicError("the topic is deleted", key=self.name)
        return known.info

    def _update(self, change):
        self.records.update(self.name, change)

    def _begin(self):
        self.uuid = uuid4()
        return self.uuid

    def _end(self, change):
        """Record that the attempt is complete; a broker takes no notice of what others say of it."""
        assert self.uuid is not None
        self._update(change)
        self.uuid = None

    def _write(self, written, uuid):
        key = replace(written.key, uuid=uuid)
        metadata = {"s3managedledgeroffloaderformatversion": "1", "managedledgername": self.name}
        if self.cluster is not None:
            metadata["pulsarclustername"] = self.cluster
        upload = self.tier.begin_data(key.data_key, user_metadata=metadata | {"role": "data"})
        yield
        receipt = self.tier.write_block(upload, 1, 0, written.data)
        yield
        self.tier.commit_data(upload, [receipt])
        yield
        self.tier.write_index(key.index_key, written.index, user_metadata=metadata | {"role": "index"})
        yield


def _key(uuid, ledger_id):
    return ObjectKey(folder="", uuid=uuid, ledger_id=ledger_id, is_index=False)


def _taken_over(info, ledger_id, uuid, now_ms):
    check_not_alive(info.ledger(ledger_id), now_ms)
    return abandon_attempt(info, ledger_id, uuid)


def _segment_taken_over(info, uuid, driver, now_ms):
    check_over(uuid, driver, now_ms, 0)
    return abandon_segment(info, uuid)


def _without(info, ledger_id):
    left = tuple(ledger for ledger in info.ledgers if ledger.ledger_id != ledger_id)
    return replace(info, ledgers=left)


# --- the tests ------------------------------------------------------------------------------------


KEEPER = "acme/cold/persistent/keeper"
TOPICS = ("acme/cold/persistent/orders", "acme/cold/persistent/others")
LEDGERS = (1, 2, 3)
FOREIGN = "west"
WAYS = ("offload", "stream", "replace", "trim")


@dataclass(eq=False)
class Running:
    """A writer at work."""

    writer: Writer
    steps: Steps
    is_still: bool = False


class Between:
    """A layer, and a store, that let others go on before each call."""

    def __init__(self, go_on):
        self._go_on = go_on

    def _pass(self):
        self._go_on()
        return (yield)

    @hookimpl(wrapper=True)
    def stat(self):
        return (yield from self._pass())

    @hookimpl(wrapper=True)
    def read_range(self):
        return (yield from self._pass())

    @hookimpl(wrapper=True)
    def delete(self):
        return (yield from self._pass())

    @hookimpl(wrapper=True)
    def list_objects(self):
        answer = yield
        self._go_on()
        return answer


class SlowStore:
    """A metadata store before each of whose answers others go on; of a Pulsar it cannot be written."""

    def __init__(self, store, go_on, *, is_pulsars):
        self._store, self._go_on, self._is_pulsars = store, go_on, is_pulsars

    def get(self, path):
        self._go_on()
        return self._store.get(path)

    def children(self, path):
        self._go_on()
        return self._store.children(path)

    def put(self, path, value, expected_version):
        if self._is_pulsars:
            raise BadMagicError("a live Pulsar's tree is there")
        self._go_on()
        return self._store.put(path, value, expected_version)

    def delete(self, path, expected_version):
        self._go_on()
        found = self._store.get(path)
        assert found is None or found[1] != expected_version or is_claim(parse_managed_ledger_info(found[0]))
        self._store.delete(path, expected_version)

    def close(self):
        pass


class RacingMachine(RuleBasedStateMachine):
    """Two topics of a cluster, a third that keeps what it has, and objects of another cluster beside them."""

    @initialize(is_pulsars=st.booleans(), skew_s=st.integers(-290, 290))
    def begin(self, is_pulsars, skew_s):
        self.lock = threading.RLock()
        self.is_pulsars = is_pulsars
        self.clock = StoreClock(skew_s=skew_s)
        self.memory = MemoryTier()
        self.store = MemoryMetadataStore()
        self.records = ManagedLedgerRecords(self.store)
        self.is_collecting = False
        self.driver = ClockedDriver(self.memory, self.clock, self.check)
        self.tier = Tier(self.driver)
        self.running: list[Running] = []
        self.turns: Iterator[int] = iter(())
        for name in TOPICS:
            self.make_topic(name)
        self.foreign = set[str]()
        for number, (name, cluster) in enumerate(
            ((KEEPER, "east"), (TOPICS[0], FOREIGN), (TOPICS[1], FOREIGN))
        ):
            writer = self.writer(name, cluster)
            written = pip17_object(PAYLOADS, ledger_id=1)
            for _ in writer._write(written, uuid_of(number)):
                pass
        self.foreign = {key for key in self.memory.objects if str(uuid_of(0)) not in key}
        context = replace(copied(uuid_of(0)), driver=None)
        self.records.write(KEEPER, managed_ledger(closed(1, len(PAYLOADS), context)), None)

    def teardown(self):
        if hasattr(self, "memory"):
            self.come_to_rest()

    def make_topic(self, name):
        ledgers = [closed(ledger_id, len(PAYLOADS)) for ledger_id in LEDGERS]
        self.records.write(name, managed_ledger(*ledgers), None)

    def writer(self, name, cluster):
        return Writer(
            records=self.records, tier=self.tier, clock=self.clock, name=name, cluster=cluster,
            leased=not self.is_pulsars,
        )  # fmt: skip

    # --- others --------------------------------------------------------------------------------

    @rule(
        way=st.sampled_from(WAYS),
        name=st.sampled_from(TOPICS),
        ledger=st.sampled_from(LEDGERS),
        steps=st.integers(0, 8),
    )
    def begin_to_write(self, way, name, ledger, steps):
        """Somebody begins, and comes some steps far. A broker does not stream or replace."""
        if self.is_pulsars and way in ("stream", "replace"):
            way = "offload"
        if self.is_pulsars and any(each.writer.name == name for each in self.running):
            return  # a topic has one broker
        if way == "trim":
            ledger = min(ledger, 2)  # a topic keeps its last ledger
        writer = self.writer(name, "east")
        self.running.append(Running(writer, getattr(writer, way)(ledger)))
        for _ in range(steps):
            self.step(len(self.running) - 1)

    @rule(which=st.integers(0, 9), steps=st.integers(1, 9))
    def go_on(self, which, steps):
        for _ in range(steps):
            self.step(which)

    @rule(which=st.integers(0, 9))
    def kill(self, which):
        if self.running:
            del self.running[which % len(self.running)]

    @rule(which=st.integers(0, 9))
    def stand_still(self, which):
        """It does not go on, and does not renew its lease, for as long as it may be; then it does."""
        if self.running:
            each = self.running[which % len(self.running)]
            each.is_still = not each.is_still

    @rule(name=st.sampled_from(TOPICS), again=st.booleans())
    def delete_topic(self, name, again):
        self.writer(name, "east").delete_topic()
        if again:
            self.make_topic(name)

    @rule(hours=st.sampled_from([0, 1, 2, 100]))
    def let_time_pass(self, hours):
        """Whoever is alive renews its lease meanwhile."""
        self.clock.now_ms += hours * 3_600_000 + LEASE_MS
        self.renew()

    def renew(self):
        until = self.clock() + LEASE_MS
        for each in self.running:
            known = self.records.read(each.writer.name)
            uuid = each.writer.uuid
            if each.is_still or known is None or uuid is None or not each.writer.leased:
                continue
            named = naming_of(known.info, uuid)
            if named is not None and named.naming is Naming.UNFINISHED and named.driver is not None:
                text = str(each.writer.lease()).rpartition(":")[0] + f":{until}"
                old = named.driver.get("lease")
                path = f"/managed-ledgers/{each.writer.name}"
                value, version = self.store.get(path) or (b"", 0)
                assert len(old) == len(text)
                self.store.put(path, value.replace(old.encode(), text.encode()), version)

    def step(self, which):
        if not self.running:
            return
        each = self.running[which % len(self.running)]
        if not each.is_still and next(each.steps, self) is self:
            self.running.remove(each)

    # --- the collection ------------------------------------------------------------------------

    def others_go_on(self):
        """Between two calls of a collection."""
        with self.lock:
            turn = next(self.turns, 0)
            collecting, self.is_collecting = self.is_collecting, False
            try:
                if turn == 1:
                    self.clock.now_ms += 7_200_000
                    self.renew()
                for _ in range(turn):
                    self.step(turn)
            finally:
                self.is_collecting = collecting

    def check(self, key):
        """A collection deletes this: nothing needs it."""
        with self.lock:
            if not self.is_collecting:
                return
            assert key not in self.foreign
            parsed = parse_key(key) or parse_block_checksums_key(key)
            for name in (KEEPER, *TOPICS):
                known = self.records.read(name)
                named = None if known is None else naming_of(known.info, parsed.uuid)
                if known is None or named is None:
                    continue
                assert named.naming is not Naming.NEEDED or key not in self.memory.objects
                assert named.naming is not Naming.UNFINISHED
                assert not is_under_way(known.info, parsed.uuid, self.clock())
            for each in self.running:
                if each.writer.uuid == parsed.uuid and self.is_recorded(each.writer, parsed.uuid):
                    assert each.writer.leased  # by compare-and-set it learns that it has lost

    def is_recorded(self, writer, uuid):
        known = self.records.read(writer.name)
        named = None if known is None else naming_of(known.info, uuid)
        return named is not None and not named.is_given_up

    @rule(turns=st.lists(st.integers(0, 6), max_size=60), is_shared=st.booleans())
    def collect(self, turns, is_shared):
        self.turns = iter(turns)
        self.run(is_shared)
        self.turns = iter(())

    def run(self, is_shared):
        slow = SlowStore(self.store, self.others_go_on, is_pulsars=self.is_pulsars)

        @contextmanager
        def opened():
            yield StoreRecords(slow)

        scope = Scope(grace=timedelta(hours=1), is_shared=is_shared, now_ms=self.clock)
        tier = Tier(self.driver, [Layer(name="between", make=lambda _: Between(self.others_go_on))])
        collection = Collection(tier, opened, scope)
        self.is_collecting = True
        try:
            list(collection.collect(Audit(), at_once=2))
        finally:
            self.is_collecting = False
        assert collection.summary.why_incomplete is None
        assert not collection.summary.failures
        self.check_all_is_there()
        return collection.summary

    def check_all_is_there(self):
        """What records call complete is there; and the other cluster's objects are."""
        assert self.foreign <= set(self.memory.objects)
        for uuid, ledger in self.needed():
            names = {key for key in self.memory.objects if key.startswith(str(uuid))}
            assert len(names) == 2, (uuid, ledger, names)

    def needed(self):
        """What records need: of one that a broker deletes, until it has."""
        found = set()
        for name in (KEEPER, *TOPICS):
            known = self.records.read(name)
            for each in namings(known.info) if known is not None else ():
                if each.naming is Naming.NEEDED:
                    found.add((each.uuid, each.ledger_id))
        return found

    def come_to_rest(self):
        """Nobody is there any more, for long: two collections leave nothing that nothing needs."""
        self.running.clear()
        self.clock.now_ms += 1000 * 3_600_000
        self.run(False)
        self.clock.now_ms += 1000 * 3_600_000
        summary = self.run(False)
        assert self.is_pulsars or summary.left == 0
        needed = {str(uuid) for uuid, _ in self.needed()}
        if self.is_pulsars:  # attempts that its broker takes up, as it will
            for name in TOPICS:
                known = self.records.read(name)
                needed |= {str(each.uuid) for each in namings(known.info)} if known is not None else set()
        left = {key for key in self.memory.objects if key[:36] not in needed} - self.foreign
        assert not left
        assert {each.key[:36] for each in self.memory.uploads} <= needed


TestRacing = RacingMachine.TestCase
TestRacing.settings = effort(0.3, stateful_step_count=30)
