"""Topics of which a part has moved: one tier alone says what it lacks and where that is; several are read together."""

import pickle

import pytest
from crash_points import Points
from scenes.moves import TOPIC_NAME, half_moved, watched

from offload_core.interfaces.engines.spark.source import PulsarOffloadDataSource
from offload_core.reading.scan import Position
from offload_core.storage.tier import MeasuredTier, open_store
from offload_hooks import ByteRange
from offload_hooks.errors import DataLossError, ObjectNotFoundError, OptionError
from pulsar_offload import open_tier, scan

pytestmark = pytest.mark.long

TOPIC = "persistent://acme/cold/orders"


@pytest.fixture
def world(tmp_path):
    made, _ = half_moved(tmp_path)
    yield made
    made.records.store.close()


@pytest.fixture
def records(world):
    return f"sqlite:{world.folder}/records.db"


def rows(tier, records, **given):
    with tier:
        table = scan(tier, TOPIC, level="entries", records=records, **given).to_table()
    return [(row["__ledgerId"], row["__entryId"]) for row in table.to_pylist()]


@pytest.mark.parametrize(("place", "ledger_id", "other"), [("source", 1, "target"), ("target", 0, "source")])
def test_one_tier_alone_says_which_ledger_is_in_which_other_one(world, records, place, ledger_id, other):
    with pytest.raises(DataLossError) as raised:
        rows(open_tier(world.folder / place), records)
    assert raised.value.ledger_id == ledger_id
    assert f"its record says that local at file://{world.folder}/{other}" in str(raised.value)


@pytest.mark.parametrize("asked", [{"start": {TOPIC_NAME: Position(1, 2)}}, {"ledger": 1}])
def test_a_part_that_is_elsewhere_is_missed_as_well(world, records, asked):
    with pytest.raises(DataLossError, match=f"local at file://{world.folder}/target"):
        rows(open_tier(world.folder / "source"), records, **asked)


@pytest.mark.parametrize("places", [("source", "target"), ("target", "source")])
def test_both_tiers_together_have_all(world, records, places):
    first, second = (world.folder / place for place in places)
    assert rows(open_tier(first).also(second), records) == sorted(world.entries)
    assert rows(open_tier(first).also(open_store(second)), records) == sorted(world.entries)


def test_a_tier_that_is_not_named_is_not_opened(world, records, tmp_path):
    """Whatever a record says."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataLossError, match=f"local at file://{world.folder}/target"):
        rows(open_tier(world.folder / "source").also(tmp_path / "empty"), records)


def test_several_tiers_are_read_by_records_only(world):
    with pytest.raises(OptionError, match="only records tell"):
        rows(open_tier(world.folder / "source").also(world.folder / "target"), None)


@pytest.fixture
def both(world):
    with open_store(world.folder / "source").with_others([open_store(world.folder / "target")]) as tier:
        yield tier


def test_an_object_is_read_from_the_first_that_has_it(world, both):
    for tier, data in ((world.target, b"there, only"), (world.source, b"here")):
        tier.write_index("both", data)
    world.target.write_index("one", b"there, only")
    assert [bytes(both.read_range(key, 0, 4)) for key in ("both", "one", "both")] == [
        b"here",
        b"ther",
        b"here",
    ]
    ranges = [ByteRange(key=key, offset=offset, length=2) for offset in (0, 2) for key in ("one", "both")]
    assert [bytes(each) for each in both.read_ranges(ranges)] == [b"th", b"he", b"er", b"re"]
    with pytest.raises(ObjectNotFoundError) as raised:
        both.stat("none")
    assert raised.value.key == "none"
    world.target.delete(["one"])
    world.source.write_index("one", b"here")
    assert bytes(both.read_range("one", 0, 4)) == b"here", "where it was before it is no more"


def test_who_had_an_object_is_asked_first_the_next_time(world):
    world.target.write_index("one", b"there")
    points = Points()
    with watched(world, "source", points).with_others([world.target]) as tier:
        for _ in range(3):
            assert bytes(tier.read_range("one", 0, 5)) == b"there"
    assert points.calls == ["read_range"]


def test_others_come_along_where_it_is_pickled_or_measured(world, both):
    world.target.write_index("one", b"there")
    with pickle.loads(pickle.dumps(both)) as again:
        assert bytes(again.read_range("one", 0, 5)) == b"there"
    measured = MeasuredTier(both)
    assert measured.stat("one").size_bytes == 5
    assert measured.requests.heads == 1
    assert "there" not in repr(both)


def test_tiers_that_are_added_one_after_another_all_come_along(world, tmp_path):
    (tmp_path / "third").mkdir()
    world.target.write_index("one", b"there")
    reader = open_tier(world.folder / "source").also(world.folder / "target").also(tmp_path / "third")
    with reader, pickle.loads(pickle.dumps(reader.store)) as again:
        assert bytes(reader.store.read_range("one", 0, 5)) == b"there"
        assert bytes(again.read_range("one", 0, 5)) == b"there"


def test_several_tiers_are_not_written(both):
    for write in (
        lambda: both.write_index("a", b""),
        lambda: both.begin_data("a"),
        lambda: both.delete(["a"]),
        lambda: list(both.list_uploads()),
    ):
        with pytest.raises(OptionError, match="only read"):
            write()


@pytest.mark.nightly
@pytest.mark.spark
def test_spark_reads_several_tiers(world, records, spark):
    spark.dataSource.register(PulsarOffloadDataSource)

    def count(**more):
        options = {"topic": TOPIC, "records": records, "level": "entries", **more}
        return (
            spark.read.format("pulsar_offload").options(**options).load(str(world.folder / "source")).count()
        )

    assert count(tiers=str(world.folder / "target")) == len(world.entries)
    with pytest.raises(Exception, match=f"local at file://{world.folder}/target"):
        count()
