"""`offload topics layout` where there is much, little or no room, and much, little or nothing to draw."""

import re
from contextlib import closing

import pytest
from commands import configuration_file
from records import closed, copied, managed_ledger, segment
from tiers import MANAGED_LEDGER, TOPIC, uuid_of

from offload_core.metadata.records import OffloadContext
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.sqlite import SqliteStore


def recorded(folder, *ledgers, name=MANAGED_LEDGER):
    """A configuration whose metadata has this topic."""
    with closing(SqliteStore(f"sqlite:{folder}/records.db", create=True)) as store:
        ManagedLedgerRecords(store).write(name, managed_ledger(*ledgers), None)
    return configuration_file(folder)


@pytest.fixture
def drawn(on_a_terminal):
    """What is seen on a terminal of this width, without colours."""

    def run(config, columns):
        code, seen = on_a_terminal("topics", "layout", TOPIC, "--config", config, columns=columns)
        assert code == 0, seen
        return re.sub(r"\x1b\[[0-9;]*m", "", seen).splitlines()

    return run


@pytest.mark.long
@pytest.mark.parametrize("columns", [40, 80])
def test_a_narrow_terminal_loses_nothing(drawn, tmp_path, columns):
    context = OffloadContext.of_segments([segment(uuid_of(1), 49), segment(uuid_of(2), 99)], complete=True)
    lines = drawn(recorded(tmp_path, closed(12345, 100, context)), columns)
    bar = lines[0].split()[2]
    assert len(lines[0]) <= columns
    assert (bar.count("A"), bar.count("B")) == (len(bar) // 2, len(bar) // 2)
    assert "…" not in "".join(lines)
    assert str(uuid_of(2)) in "".join("".join(line.split()[-1:]) for line in lines[2:])


@pytest.mark.long
def test_many_ledgers_and_more_objects_than_letters(offload, tmp_path):
    ledgers = [closed(each, 10, copied(uuid_of(each))) for each in range(500)]
    config = recorded(tmp_path, *ledgers)
    lines = offload("topics", "layout", TOPIC, "--config", config).out.splitlines()
    bars, rows = lines[:500], lines[501:]
    assert [bar.split()[2][0] for bar in bars] == [row.split()[0] for row in rows]
    assert [row.split()[-1] for row in rows] == [f"{uuid_of(each)}-ledger-{each}" for each in range(500)]
    assert len(offload("topics", "layout", TOPIC, "--config", config, "--json").json) == 500


@pytest.mark.long
def test_a_ledger_of_more_segments_than_columns(drawn, tmp_path):
    shares = [segment(uuid_of(each), each) for each in range(150)]
    config = recorded(tmp_path, closed(3, 150, OffloadContext.of_segments(shares, complete=True)))
    lines = drawn(config, 80)
    bars = "".join(lines[: next(at for at, line in enumerate(lines) if "first" in line)])
    assert len(re.findall(r"[A-Z]", bars)) == 150


def test_a_topic_without_entries(offload, tmp_path):
    config = recorded(tmp_path)
    result = offload("topics", "layout", TOPIC, "--config", config)
    assert (result.code, result.out) == (0, f"{TOPIC} has no entries\n")
    assert offload("topics", "layout", TOPIC, "--config", config, "--json").out == "[]\n"


def test_of_a_partitioned_topic_a_partition_is_to_be_named(offload, tmp_path):
    config = recorded(tmp_path, closed(3, 1), name=f"{MANAGED_LEDGER}-partition-2")
    result = offload("topics", "layout", TOPIC, "--config", config)
    assert (result.code, result.out) == (2, "")
    assert f"Name a partition: {TOPIC}-partition-2" in result.err
