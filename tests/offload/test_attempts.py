"""Attempts of several processes at one ledger: a live one is left alone, one whose process is gone is taken over."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import offloading_process
import pytest
from layered import Gate
from managed_ledgers import NAME, Audit, FailingAudit, environment_in
from offloading_process import offloads_in, tiers_in
from waiting import wait_for

from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.records import begin_attempt
from offload_core.metadata.records.attempts import AttemptHolder, AttemptLease, lease_of, renew_attempt
from offload_core.storage.clock import system_now_ms
from offload_core.writing.managed_ledger import open_managed_ledger
from offload_core.writing.offload import LedgerOffloader
from offload_core.writing.offload.running_attempt import (
    LONGEST_LEASE_S,
    WATCHED_S,
    AttemptProcess,
    has_ended,
    lease_from,
    this_process,
)
from offload_hooks.errors import (
    AttemptError,
    LiveAttemptError,
    OptionError,
    StoreUnavailableError,
    UnknownTopicError,
    UploadError,
)
from pulsar_offload import open_tier, scan

PAYLOADS = [b"%04d" % i * 100 for i in range(20)]
WITHIN_S = 60.0


class SharedTopic:
    """A folder with a topic of one sealed ledger, that processes share."""

    def __init__(self, folder):
        self.folder = folder
        environment = environment_in(folder)
        self.records = environment.records
        with open_managed_ledger(environment, NAME) as topic:
            self.ledger_id = topic.add_entries(PAYLOADS).ledger_id
        self.audit = Audit()

    @property
    def ledger(self):
        (ledger,) = self.records.read(NAME).info.ledgers
        return ledger

    @property
    def lease(self):
        return lease_of(self.ledger.context.driver)

    def offloads(self, lease_s=60.0):
        return offloads_in(self.folder, lease_s)

    def offload(self, lease_s=60.0):
        return self.offloads(lease_s).offload(NAME, self.ledger_id, audit=self.audit)

    def left_by(self, holder, left_ms, raw=None):
        """An attempt of another process is recorded, and of its data object there is something."""
        uuid, driver = uuid4(), tier_record(tiers_in(self.folder).current)
        lease = AttemptLease(holder=holder, until_ms=system_now_ms() + left_ms)

        def begin(info):
            begun = begin_attempt(info, self.ledger_id, uuid, driver, lease=lease)
            if raw is None:
                return begun
            (ledger,) = begun.ledgers
            context = replace(ledger.context, driver=ledger.context.driver.with_property("lease", raw))
            return begun.with_ledger(replace(ledger, context=context))

        self.records.update(NAME, begin)
        with open_tier(self.folder / "cold") as tier:
            tier.store.write_index(f"{uuid}-ledger-{self.ledger_id}", b"left")
        return uuid

    def check_empty(self):
        """The tier has nothing."""
        with open_tier(self.folder / "cold") as tier:
            assert not list(tier.store.list_objects())
            assert not list(tier.store.list_uploads())

    def check_complete(self):
        """The copy is complete, without a lease; the tier has nothing else."""
        context = self.ledger.context
        assert context.complete
        assert context.driver.get("lease") is None
        key = f"{context.uuid}-ledger-{self.ledger_id}"
        with open_tier(self.folder / "cold") as tier:
            assert {each.key for each in tier.store.list_objects()} == {key, f"{key}-index"}
            assert not list(tier.store.list_uploads())
            values = scan(tier, level="entries", columns=["value"]).to_table()["value"].to_pylist()
        assert values == PAYLOADS


@pytest.fixture
def world(tmp_path):
    return SharedTopic(tmp_path)


@contextmanager
def another_process(world, lease_s=60.0):
    """It offloads the ledger, and is in the middle of it."""
    command = [sys.executable, offloading_process.__file__, str(world.folder), str(world.ledger_id)]
    with subprocess.Popen(
        [*command, str(lease_s)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "at it\n"
            yield process
        finally:
            process.kill()


ELSEWHERE = AttemptHolder(machine=1, process=1, started=1)


# --- real processes ----------------------------------------------------------------------------


@pytest.mark.long
def test_an_attempt_is_left_alone_while_its_process_lives_and_taken_over_at_once_when_it_was_killed(world):
    with another_process(world) as process:
        for _ in range(3):
            with pytest.raises(LiveAttemptError, match="another process offloads the ledger") as caught:
                world.offload()
        assert caught.value.ledger_id == world.ledger_id
        assert f"of process {process.pid}" in str(caught.value)
        process.send_signal(signal.SIGKILL)
        process.wait(WITHIN_S)
        uuid = world.ledger.context.uuid
    assert world.audit.changes == []
    assert world.offload()
    world.check_complete()
    assert [(each.uuid, each.why) for each in world.audit.deletions] == [
        (uuid, "its offload was left unfinished, and is begun anew")
    ]
    assert world.offload() is False


@pytest.mark.nightly
def test_a_process_that_was_stopped_for_longer_than_its_lease_gives_its_attempt_up(world):
    with another_process(world, lease_s=4) as process:
        process.send_signal(signal.SIGSTOP)  # between two renewals: it has the database in none of its hands

        def offloaded():
            with suppress(LiveAttemptError):
                return world.offload()

        assert wait_for(offloaded, WITHIN_S)
        process.send_signal(signal.SIGCONT)
        ended = process.communicate("go on\n", timeout=WITHIN_S)[0]
        assert ended in ("AttemptError\n", "UploadError\n")  # its upload was dropped as well
    world.check_complete()


# --- leases --------------------------------------------------------------------------------------


def test_a_lease_is_renewed_as_long_as_the_attempt_goes_on(world):
    lease_s, seen = 0.3, []

    def listen(_):
        if not seen:
            seen.append(world.lease)
            wait_for(lambda: world.lease != seen[0], WITHIN_S)
            seen.append(world.lease)

    world.offloads(lease_s).offload(NAME, world.ledger_id, listener=listen)
    first, second = seen
    assert first.holder == second.holder == this_process()
    assert first.until_ms < second.until_ms
    world.check_complete()
    assert not [each for each in threading.enumerate() if each.name == "offload-lease"]


def test_an_offload_stops_at_the_next_block_when_its_attempt_is_lost(world):
    blocks = []

    def listen(_):
        blocks.append(1)
        world.records.delete(NAME, world.records.read(NAME))  # its topic, with all attempts
        wait_for(lambda: "offload-lease" not in {each.name for each in threading.enumerate()}, WITHIN_S)

    with pytest.raises(UnknownTopicError):
        world.offloads(lease_s=0.3).offload(NAME, world.ledger_id, listener=listen)
    assert blocks == [1]
    world.check_empty()


@pytest.mark.parametrize(
    ("holder", "left_ms", "is_live"),
    [
        (ELSEWHERE, 30_000, True),
        (ELSEWHERE, -1, False),
        (ELSEWHERE, int(LONGEST_LEASE_S + 60) * 1000, False),  # by a clock that is wrong
        (replace(this_process(), started=1), 30_000, False),  # its id is another process's now
        (replace(this_process(), process=1 << 31), 30_000, False),
        (this_process(), 30_000, False),  # we are not at it any more
    ],
)
def test_an_attempt_is_taken_over_when_its_lease_or_its_process_has_ended(world, holder, left_ms, is_live):
    uuid = world.left_by(holder, left_ms)
    before = world.ledger
    if is_live:
        with pytest.raises(LiveAttemptError):
            world.offload()
        assert (world.ledger, world.audit.changes) == (before, [])
        return
    assert world.offload()
    world.check_complete()
    assert [each.uuid for each in world.audit.deletions] == [uuid]


@pytest.mark.parametrize(
    "raw", ["", "of a later version", "0" * 16 + ":0:1:1", "0" * 16 + ":1:1:" + "9" * 20]
)
def test_a_lease_that_cannot_be_read_is_none(world, raw):
    world.left_by(ELSEWHERE, 30_000, raw)
    assert world.lease is None
    assert world.offload()
    world.check_complete()


# --- clocks that differ ------------------------------------------------------------------------


class Machine:
    """One whose clock is so far from true time, with a process that offloads the world's ledger."""

    def __init__(self, world, number, skew_s):
        self._world, self._skew_s = world, skew_s
        self.passed_s = 0.0
        holder = AttemptHolder(machine=number, process=1, started=1)
        self.process = AttemptProcess(
            holder=lambda: holder, has_ended=lambda _: False, monotonic_s=lambda: self.passed_s
        )
        self.offloads = offloads_in(world.folder, now_ms=self.now_ms, process=self.process)

    def now_ms(self):
        return 1_700_000_000_000 + int((self._skew_s + self.passed_s) * 1000)

    def offload(self, listener=None):
        return self.offloads.offload(NAME, self._world.ledger_id, listener=listener)

    def renew(self):
        """What the background does while an attempt goes on."""
        uuid = self._world.ledger.context.uuid
        lease = lease_from(self.now_ms(), 60.0, self.process)
        self._world.records.update(
            NAME, partial(renew_attempt, ledger_id=self._world.ledger_id, uuid=uuid, lease=lease)
        )


def once(call):
    """A listener that does this at the first block."""
    left = [call]
    return lambda _: left.pop()() if left else None


@pytest.mark.sampled(6)
@pytest.mark.parametrize("skew_s", [-86_400, -3600, -61, 541, 3600, 86_400])
def test_machines_whose_clocks_differ_by_more_than_a_lease_take_over_once_and_come_to_an_end(world, skew_s):
    one, other = Machine(world, 1, 0), Machine(world, 2, -skew_s)
    tries, other_took_over, one_lost = [], Gate(), threading.Event()

    def go_on_while_one_tries_again():
        other_took_over.open()
        assert one_lost.wait(WITHIN_S)
        for _ in range(50):  # 50 renewals, over 16 minutes
            for machine in (one, other):
                machine.passed_s += 20
            other.renew()
            with pytest.raises(LiveAttemptError):
                one.offload()
            tries.append("left alone")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(one.offload, once(other_took_over.hold))
        other_took_over.wait_for()
        second = pool.submit(other.offload, once(go_on_while_one_tries_again))
        with pytest.raises(
            (AttemptError, UploadError)
        ):  # its upload was aborted, or its attempt is not recorded
            first.result(WITHIN_S)
        assert one.process.watches
        one_lost.set()
        assert second.result(WITHIN_S)
    assert len(tries) == 50
    world.check_complete()
    assert one.offload() is False


def test_who_watches_takes_over_what_is_not_renewed_any_more(world):
    machine = Machine(world, 3, 0)
    machine.process.watches = True
    world.left_by(ELSEWHERE, -(10**9))
    for _ in range(4):
        with pytest.raises(LiveAttemptError, match="if it does not go on"):
            machine.offload()
        machine.passed_s += WATCHED_S / 4
    assert machine.offload()
    world.check_complete()


def test_what_was_not_looked_at_for_long_is_watched_anew(world):
    machine = Machine(world, 3, 0)
    machine.process.watches = True
    world.left_by(ELSEWHERE, -(10**9))
    for _ in range(3):
        with pytest.raises(LiveAttemptError):
            machine.offload()
        machine.passed_s += 2 * WATCHED_S + 1


def test_a_process_whose_offload_failed_by_itself_believes_clocks_as_before(world):
    machine = Machine(world, 3, 0)

    def fail(_):
        raise UploadError("the store refuses it")

    with pytest.raises(UploadError):
        machine.offload(fail)
    assert not machine.process.watches


# --- ends --------------------------------------------------------------------------------------


def test_a_process_that_nobody_waited_for_has_ended():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = int(Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19])
        holder = replace(this_process(), process=child.pid, started=started)
        assert not has_ended(holder)
        child.kill()
        wait_for(lambda: has_ended(holder), WITHIN_S)
        assert not has_ended(replace(holder, machine=1))
    assert has_ended(holder)


def test_another_users_process_is_alive_as_long_as_it_is_there():
    first = Path("/proc/1/stat").read_text().rpartition(")")[2].split()
    assert not has_ended(replace(this_process(), process=1, started=int(first[19])))


def test_an_attempt_whose_deletion_cannot_be_recorded_stays_where_it_is(world):
    world.left_by(ELSEWHERE, -1)
    with pytest.raises(StoreUnavailableError, match="no audit"):
        world.offloads().offload(NAME, world.ledger_id, audit=FailingAudit(1))
    assert len(os.listdir(world.folder / "cold")) > 0
    assert world.offload()
    world.check_complete()


def test_who_gives_an_attempt_up_says_why(world):
    def fail(_):
        raise StoreUnavailableError("in the middle")

    with pytest.raises(StoreUnavailableError):
        world.offloads().offload(NAME, world.ledger_id, listener=fail, audit=world.audit)
    assert [each.why for each in world.audit.deletions] == ["its offload failed: StoreUnavailableError"]
    assert world.ledger.context is None
    world.check_empty()


def take_over(world):
    """When the lease of the attempt is over, another process offloads the ledger."""
    later = offloads_in(world.folder, now_ms=lambda: system_now_ms() + 61_000)
    assert later.offload(NAME, world.ledger_id)


def test_a_lease_that_is_not_renewed_while_the_metadata_is_away_harms_nobody(world):
    """Its attempt is taken over, as it cannot be told from one that died; then it is not completed."""
    with pytest.raises((AttemptError, UploadError)):  # its upload was dropped as well
        world.offloads().offload(NAME, world.ledger_id, listener=once(partial(take_over, world)))
    world.check_complete()


def test_an_attempt_that_was_taken_over_between_its_objects_and_its_record_never_becomes_complete(
    world, monkeypatch
):
    offload = LedgerOffloader.offload

    def offload_then_another_takes_over(*given, **named):
        offloaded = offload(*given, **named)
        monkeypatch.undo()
        take_over(world)
        return offloaded

    monkeypatch.setattr(LedgerOffloader, "offload", offload_then_another_takes_over)
    with pytest.raises(AttemptError, match="took the place"):
        world.offload()
    world.check_complete()


@pytest.mark.parametrize("lease_s", [0, -1, LONGEST_LEASE_S + 1])
def test_a_lease_that_nobody_would_believe_is_refused(world, lease_s):
    with pytest.raises(OptionError, match="a lease is longer than 0 s, and 600 s at most"):
        world.offloads(lease_s)
