"""Old copies of ledgers that were moved to another tier go, if the new ones are there and whole; else they stay."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scenes.moves import MovedTopic

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.maintenance.gc import Collection, Scope
from offload_core.metadata.catalogue import open_records
from offload_core.metadata.records import LedgerRecord, ManagedLedgerInfo
from offload_core.storage.tier import Tier, open_store
from offload_drivers.local import LocalDriver
from offload_hooks import hookimpl
from offload_hooks.values import DriverDescription


@pytest.fixture
def world(tmp_path: Path) -> Iterator[MovedTopic]:
    """Two ledgers of one object each, and one in two segments."""
    made = MovedTopic.make(tmp_path, f"sqlite:{tmp_path}/records.db")
    ledgers = [made.add_ledger(count) for count in (12, 9, 15)]
    for ledger_id in ledgers[:2]:
        made.offload(ledger_id)
    made.stream((ledgers[2], 9), (ledgers[2], 14))
    yield made
    made.source.close()
    made.target.close()


def as_a_broker_has_them(world: MovedTopic) -> None:
    """The records name the new copies, and remember nothing of the old ones."""
    names = ("pulsar-offload.replaced", "pulsar-offload.replacement")

    def forget(ledger: LedgerRecord) -> LedgerRecord:
        context = ledger.context
        assert context is not None
        assert context.driver is not None
        kept = tuple(each for each in context.driver.properties if each[0] not in names)
        return replace(ledger, context=replace(context, driver=replace(context.driver, properties=kept)))

    def change(info: ManagedLedgerInfo) -> ManagedLedgerInfo:
        return replace(info, ledgers=tuple(forget(each) for each in info.ledgers))

    world.records.update("acme/cold/persistent/orders", change)


def collect(
    world: MovedTopic, elsewhere: Sequence[Tier], tier: Tier | None = None, prefix: str = ""
) -> Collection:
    """Collect the garbage of the source or another tier, a long time later; all of it is deleted."""
    later = int((time.time() + 40 * 86_400) * 1000)
    records = partial(open_records, f"sqlite:{world.folder}/records.db", world.source, {}, {})
    scope = Scope(prefix=prefix, is_shared=False, now_ms=lambda: later)
    collection = Collection(tier or world.source, records, scope, elsewhere=elsewhere)
    assert all(each.is_deleted for each in collection.collect(world.audit))
    return collection


@pytest.mark.parametrize("of_a_broker", [False, True], ids=["our records", "a broker's records"])
@pytest.mark.parametrize("format_", [None, ObjectFormat.MAPFILE])
def test_old_copies_go_once_the_new_ones_can_be_seen(
    world: MovedTopic, format_: ObjectFormat | None, of_a_broker: bool
) -> None:
    world.move_all(world.wanted(format_))
    if of_a_broker:
        as_a_broker_has_them(world)
    before, made = world.keys(world.source), world.keys(world.target)
    kept = collect(world, []).summary.kept
    assert world.keys(world.source) == before
    assert sum(kept.values()) == 4
    collect(world, [world.target])
    assert world.keys(world.source) == []
    assert world.keys(world.target) == made
    assert world.read_all(tiers=[world.target]) == world.entries


@pytest.mark.parametrize("of_a_broker", [False, True], ids=["our records", "a broker's records"])
def test_an_old_copy_stays_whose_new_one_is_not_whole(world: MovedTopic, of_a_broker: bool) -> None:
    [first, *_] = world.move_all()
    if of_a_broker:
        as_a_broker_has_them(world)
    context = world.info.ledgers[0].context
    assert context is not None
    world.target.delete([f"{context.uuid}-ledger-0-index"])
    collect(world, [world.target])
    assert world.keys(world.source) == [f"{first.replaces[0]}-ledger-0{end}" for end in ("", "-index")]


def test_a_tier_that_records_do_not_mean_is_no_reason_for_any_to_go(
    world: MovedTopic, tmp_path: Path
) -> None:
    world.move_all()
    as_a_broker_has_them(world)
    before = world.keys(world.source)
    with open_store(tmp_path / "target") as target, open_store(tmp_path / "third") as third:
        (tmp_path / "third").mkdir()
        for listed in target.list_objects():
            data = bytes(target.read_range(listed.key, 0, listed.size_bytes))
            third.write_index(listed.key, data, user_metadata=target.stat(listed.key).user_metadata)
        collect(world, [third])
    assert world.keys(world.source) == before


class Renamed(LocalDriver):
    """A folder that says it is elsewhere."""

    def __init__(self, folder: Path, **said: Any) -> None:
        super().__init__(str(folder))
        self._said = said

    @hookimpl
    def describe(self) -> DriverDescription:
        return replace(super().describe(), **self._said)


def in_bucket(endpoint: str) -> dict[str, Any]:
    metadata = {"managedLedgerOffloadDriver": "aws-s3", "bucket": "cold", "serviceEndpoint": endpoint}
    return {"location": "s3://cold", "driver_metadata": metadata}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ({}, in_bucket("http://a")),
        (in_bucket("http://a"), {}),
        (in_bucket("http://a"), in_bucket("http://b")),
    ],
    ids=["from a folder into a bucket", "from a bucket into a folder", "another store's bucket of that name"],
)
def test_new_copies_may_be_in_a_tier_of_another_kind(
    world: MovedTopic, source: dict[str, Any], target: dict[str, Any]
) -> None:
    with (
        Tier(Renamed(world.folder / "source", **source)) as here,
        Tier(Renamed(world.folder / "target", **target)) as there,
    ):
        world.target = there
        world.move_all()
        as_a_broker_has_them(world)
        before = world.keys(here)
        collect(world, [], here)
        assert world.keys(here) == before
        collect(world, [there], here)
        assert world.keys(here) == []


@pytest.mark.parametrize("format_", [None, ObjectFormat.MAPFILE])
def test_new_copies_are_looked_for_where_the_other_tiers_url_says(
    world: MovedTopic, tmp_path: Path, format_: ObjectFormat | None
) -> None:
    world.move_all(world.wanted(format_))
    as_a_broker_has_them(world)
    without = shutil.ignore_patterns(".*")
    shutil.copytree(tmp_path / "source", tmp_path / "bucket" / "cluster", ignore=without)
    with open_store(tmp_path / "bucket") as bucket:
        assert len(world.keys(bucket)) == 8
        collect(world, [world.target], bucket, "cluster")
        assert world.keys(bucket) == []
