"""Processes that kill themselves at one call of their stores, and others that open the stores afterwards.

`python kill_matrix.py FOLDER VERB LIMIT` lets a child of its own do the verb for each call of metadata, tier, hot tier
and audit log, and end itself by SIGKILL before it, or after it; then another child checks and goes on. At most LIMIT of
these points are tried, evenly chosen. It prints how many, and ends with 1 at the first that is wrong.
"""

import itertools
import os
import shutil
import signal
import sys
import threading
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import stamina  # noqa: F401  # what is imported here need not be by each child
from crash_points import FAULTS, Points
from dying import in_fork
from managed_ledgers import NAME, ColdLedger, environment_of

from offload_core.metadata.records import EntryPosition
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.audit import FileAuditLog
from offload_core.writing.managed_ledger import delete_managed_ledger, open_managed_ledger
from offload_hooks.errors import TopicDeletedError
from pulsar_offload import open_tier

KILLS = tuple(fault for fault in FAULTS if fault.startswith("kill"))
CHILD_WITHIN_S = 120
END = EntryPosition(1 << 40, 0)
LEDGERS = [[b"%d-%d " % (ledger, entry) * 9 for entry in range(6)] for ledger in range(2)]
OPEN_LEDGER = [b"hot %d" % entry for entry in range(3)]


class RealKills(Points):
    """Points of calls after `begin`, of many threads; at the chosen one the process is gone, really."""

    def __init__(self, at=0, fault="kill before"):
        super().__init__()
        self._chosen = (at, fault)
        self._began = False
        self._lock = threading.Lock()
        self._own = threading.local()

    def begin(self):
        """Count calls as points from now on."""
        self._began = True

    def before(self, name):
        """See `Points`."""
        if self._began:
            with self._lock:
                self.calls.append(name)
                self._own.number = len(self.calls)
            self._kill("kill before")

    def after(self, _):
        """See `Points`."""
        if self._began:
            self._kill("kill after")

    def _kill(self, moment):
        if self._chosen == (self._own.number, moment):
            os.kill(os.getpid(), signal.SIGKILL)


class KilledTopic:
    """A topic in a folder: its record in SQLite, its ledgers as files, its objects in a local tier."""

    def __init__(self, folder):
        self.folder = folder
        self.cold = folder / "cold"

    @contextmanager
    def environment(self, points):
        """As a new process has it."""
        self.cold.mkdir(parents=True, exist_ok=True)
        with (
            closing(
                SqliteStore(f"sqlite:{self.folder}/records.db", create=True, synchronous="normal")
            ) as store,
            closing(FileLedgerStore(self.folder / "hot", sync="never")) as files,
        ):

            def open_reader(record, *_):
                is_cold = record.has_complete_copy
                return ColdLedger(self.cold, record) if is_cold else files.open(record.ledger_id)

            yield environment_of(
                store,
                files,
                self.cold,
                points,
                block_bytes=250,
                open_reader=open_reader,
                cache_bytes=0,
                audit=FileAuditLog(self.folder / "audit.jsonl"),
            )

    @contextmanager
    def topic(self, points):
        """The topic, open; calls are points after that, and its closing is none."""
        with self.environment(points) as environment:
            topic = open_managed_ledger(environment, NAME)
            points.begin()
            yield topic

    def records(self):
        """The ledgers of the record; None without one."""
        with closing(SqliteStore(f"sqlite:{self.folder}/records.db")) as store:
            known = ManagedLedgerRecords(store).read(NAME)
        return None if known is None else list(known.info.in_order)

    def check(self, may_be_deleted):
        """Read every entry, from the copy that the record names."""
        with self.environment(Points()) as environment:
            try:
                topic = open_managed_ledger(environment, NAME)
            except TopicDeletedError:
                assert may_be_deleted
                return
            found = [bytes(payload) for _, payload in topic.read_entries(EntryPosition(0, 0), 1000, 1 << 20)]
            assert found == [*itertools.chain(*LEDGERS), *OPEN_LEDGER] or (may_be_deleted and not found), (
                found
            )

    def check_tidy(self):
        """Neither tier has anything that the record does not say."""
        hot, cold = set(), set()
        for ledger in self.records() or []:
            context = ledger.context
            assert not ledger.is_marked_for_deletion
            if context is None or not context.bookkeeper_deleted:
                hot.add(f"{ledger.ledger_id}.ledger")
            if context is not None:
                assert context.complete
                assert context.driver.get("lease") is None
                key = f"{context.uuid}-ledger-{ledger.ledger_id}"
                cold |= {key, f"{key}-index"}
        assert {each.name for each in (self.folder / "hot").glob("*.ledger")} == hot
        with open_tier(self.cold) as tier:
            assert {each.key for each in tier.store.list_objects()} == cold
            assert not list(tier.store.list_uploads())


def prepare(world, offloaded):
    """Two sealed ledgers, of which some are offloaded, and one whose process was killed."""
    with world.topic(RealKills()) as topic:
        for entries in LEDGERS:
            topic.add_entries(entries)
            topic.roll()
        if offloaded:
            topic.offload_prefix(EntryPosition(topic.read_info().in_order[offloaded - 1].ledger_id + 1, 0))
        topic.add_entries(OPEN_LEDGER)


def offload_prefix(world, points):
    """The ledger that was open is sealed by opening."""
    with world.topic(points) as topic:
        topic.offload_prefix(END)


def delete_hot_copies(world, points):
    with world.topic(points) as topic:
        topic.delete_hot_copies(0)


def delete_topic(world, points):
    with world.environment(points) as environment:
        points.begin()
        delete_managed_ledger(environment, NAME)


VERBS = {
    "offload_prefix": (
        0,
        offload_prefix,
        lambda world: all(ledger.has_complete_copy for ledger in world.records() or []),
    ),
    "delete hot copies": (
        2,
        delete_hot_copies,
        lambda world: not {"0.ledger", "1.ledger"} & set(os.listdir(world.folder / "hot")),
    ),
    "delete topic": (1, delete_topic, lambda world: world.records() is None),
}
"""Ledgers to offload before; the work; whether it is complete."""


def in_child(act):
    """The exit code of a forked child that did this, in time."""
    assert threading.active_count() == 1

    def work():
        signal.alarm(CHILD_WITHIN_S)
        act()

    return in_fork(work)


def try_point(world, verb, at, fault):
    """Kill a process there, and check the world that another one finds."""
    _, run, is_done = VERBS[verb]
    ended = in_child(lambda: run(world, RealKills(at, fault)))
    assert ended == -signal.SIGKILL, f"it was not killed, and ended with {ended}"

    def go_on():
        world.check(verb == "delete topic")
        run(world, RealKills())
        if verb != "delete topic":
            world.check(False)
        assert is_done(world)
        world.check_tidy()

    assert in_child(go_on) == 0, "see above"


def main():
    """See the module."""
    folder, verb, limit = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    offloaded, run, is_done = VERBS[verb]
    counted, world, template = RealKills(), KilledTopic(folder / "world"), folder / "template"
    prepare(world, offloaded)
    shutil.copytree(world.folder, template)
    run(world, counted)
    assert is_done(world)
    world.check_tidy()
    points = list(itertools.product(range(1, len(counted.calls) + 1), KILLS))
    chosen = points if len(points) <= limit else [points[i * len(points) // limit] for i in range(limit)]
    for at, fault in chosen:
        shutil.rmtree(world.folder)
        shutil.copytree(template, world.folder)  # to where its records say that the tier is
        try:
            try_point(world, verb, at, fault)
        except AssertionError:
            print(f"{fault} call {at} of {len(counted.calls)}, {counted.calls[at - 1]}", flush=True)
            raise
    print(f"{verb}: {len(chosen)} of {len(points)} points, {len(counted.calls)} calls")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
