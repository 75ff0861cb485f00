"""Every call of metadata, tier and hot tier in a ledger's life fails, answers unknown, or ends the process.

After each the state is opened anew: all entries are readable where the record says, the same verb goes on to its end,
and nothing is left behind in the tier.
"""

from contextlib import closing
from pathlib import Path

import pytest
from crash_points import Killed, Points, left_open
from managed_ledgers import offloads_of

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import LedgerRecord, ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.offload.recorded_offload import RecordedOffloads
from offload_core.writing.offload.running_attempt import DEFAULT_LEASE_S
from offload_hooks.errors import AttemptError, DataLossError, OptionError
from offload_hooks.testing import MemoryMetadataStore
from pulsar_offload import open_tier, scan

NAME = "acme/cold/persistent/orders"
PAYLOADS = [b"%04d" % i * 20 for i in range(40)]
LAG_MS = 1000
LEASE_MS = int(DEFAULT_LEASE_S * 1000)


class CrashedLedger:
    """A managed ledger of one sealed ledger, in folders that outlive processes."""

    def __init__(self, folder):
        self._folder = folder
        self._cold = folder / "cold"
        self._cold.mkdir(parents=True)
        self.metadata = MemoryMetadataStore()
        self._hot = left_open(FileLedgerStore(folder / "hot", sync="never"))
        writer = self._hot.create({})
        writer.append_batch(PAYLOADS)
        writer.close()
        self.ledger_id = writer.ledger_id
        info = LedgerInfo(
            ledger_id=self.ledger_id, entries=len(PAYLOADS), size=sum(map(len, PAYLOADS)), timestamp_ms=1
        )
        self.records = ManagedLedgerRecords(self.metadata)
        self.records.write(NAME, ManagedLedgerInfo(ledgers=(LedgerRecord(info=info),)), None)

    def offloads(self, points, now_ms=0):
        """As a new process has it."""
        return offloads_of(self.metadata, self._hot, self._cold, points, now_ms=lambda: now_ms)

    @property
    def ledger(self):
        (ledger,) = self.records.read(NAME).info.ledgers
        return ledger

    def tier(self):
        return open_tier(self._cold)

    def read_cold(self):
        with self.tier() as tier:
            return scan(tier, level="entries", columns=["value"]).to_table()["value"].to_pylist()

    def read_hot(self):
        with closing(self._hot.open(self.ledger_id)) as reader:
            return [bytes(each) for each in reader.read(0, len(PAYLOADS) - 1)]

    def check(self, where=""):
        """Every entry is readable where the record says that it is."""
        context = self.ledger.context
        if context is not None and context.complete:
            assert self.read_cold() == PAYLOADS, where
        if context is None or not context.bookkeeper_deleted:
            assert self.read_hot() == PAYLOADS, where

    def leftovers(self):
        """Keys in the tier that are not of the recorded copy, and uploads."""
        context = self.ledger.context
        key = f"{context.uuid}-ledger-{self.ledger_id}" if context is not None else ""
        with self.tier() as tier:
            found = {each.key for each in tier.store.list_objects()}
            uploads = {each.upload.upload_id for each in tier.store.list_uploads()}
        return (found - {key, f"{key}-index"}) | uploads


def offload(world, points):
    world.offloads(points).offload(NAME, world.ledger_id)


def delete_hot_copy(world, points):
    world.offloads(points, now_ms=LAG_MS).delete_hot_copy(NAME, world.ledger_id, LAG_MS)


def killed_in_the_middle(world):
    with pytest.raises(Killed):
        offload(world, Points(at=12, fault="kill after"))
    assert world.leftovers() or world.ledger.context is not None


def offloaded(world):
    offload(world, Points())


VERBS = {
    "offload": (lambda _: None, offload),
    "offload after a kill": (killed_in_the_middle, offload),
    "delete the hot copy": (offloaded, delete_hot_copy),
}


@pytest.mark.parametrize("verb", VERBS)
def test_after_any_fault_at_any_call_nothing_is_lost_and_the_verb_goes_on_to_its_end(crash_matrix, verb):
    prepare, run = VERBS[verb]

    def scene(folder):
        world = CrashedLedger(folder)
        prepare(world)
        return world

    def check_done(world, where):
        context = world.ledger.context
        assert context.complete, where
        assert context.bookkeeper_deleted == (verb == "delete the hot copy"), where
        assert world.leftovers() == set(), where

    calls = crash_matrix(scene, run, check=CrashedLedger.check, check_done=check_done, every=7)
    assert len(calls) >= 5


def test_a_hot_copy_stays_until_the_lag_is_over(tmp_path):
    world = CrashedLedger(tmp_path / "world")
    assert world.offloads(Points(), now_ms=LAG_MS).delete_hot_copy(NAME, world.ledger_id, 0) is False
    offload(world, Points())
    early = world.offloads(Points(), now_ms=LAG_MS - 1)
    assert early.delete_hot_copy(NAME, world.ledger_id, LAG_MS) is False
    assert world.read_hot() == PAYLOADS


@pytest.mark.parametrize("harm", ["data gone", "index gone", "data cut"])
def test_a_hot_copy_stays_if_the_cold_one_is_not_there_as_recorded(tmp_path, harm):
    world = CrashedLedger(tmp_path / "world")
    offload(world, Points())
    context = world.ledger.context
    data = tmp_path / "world" / "cold" / f"{context.uuid}-ledger-{world.ledger_id}"
    if harm == "data cut":
        data.write_bytes(data.read_bytes()[:-1])
    else:
        Path(f"{data}-index" if harm == "index gone" else data).unlink()
    with pytest.raises(DataLossError) as caught:
        delete_hot_copy(world, Points())
    assert caught.value.ledger_id == world.ledger_id
    assert world.read_hot() == PAYLOADS
    assert not context.bookkeeper_deleted


def test_an_attempt_that_was_taken_over_never_becomes_complete(tmp_path):
    """Its lease is over, and another process offloads the ledger between the objects of the first and its record."""
    world = CrashedLedger(tmp_path / "world")
    first = Points()
    taken = False

    def before(name):
        nonlocal taken
        if name == "get" and "write_index" in first.calls and not taken:
            taken = True
            world.offloads(Points(), now_ms=LEASE_MS).offload(NAME, world.ledger_id)

    first.before = lambda name: (before(name), first.calls.append(name))[1]
    with pytest.raises(AttemptError, match="took the place"):
        offload(world, first)
    assert taken
    world.check()
    assert world.leftovers() == set()
    assert world.ledger.has_complete_copy


def test_a_copy_in_a_tier_that_is_not_configured_is_not_looked_for_elsewhere(tmp_path):
    world = CrashedLedger(tmp_path / "world")
    offload(world, Points())
    with open_tier(tmp_path / "another") as other:
        offloads = RecordedOffloads(
            world.records,
            left_open(FileLedgerStore(tmp_path / "world" / "hot")),
            KnownTiers(other.store),
            now_ms=lambda: LAG_MS,
        )
        with pytest.raises(OptionError, match="a tier that is not configured"):
            offloads.delete_hot_copy(NAME, world.ledger_id, 0)
    assert world.read_hot() == PAYLOADS
