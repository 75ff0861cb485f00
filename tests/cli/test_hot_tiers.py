"""Commands that read a tier together with a hot one."""

import json

import pytest
from scenes.switched import TOPIC, live, switched_topic
from stores import Store

pytestmark = pytest.mark.long


@pytest.fixture
def switched(tmp_path):
    (tmp_path / "cold").mkdir()
    with switched_topic(Store(name="local", url=str(tmp_path / "cold")), tmp_path) as made:
        live(made)
        yield made


@pytest.fixture
def both(switched, tmp_path):
    """Names the two tiers on a command line."""
    return [tmp_path / "cold", "--records", switched.records, "--hot", f"embedded:path={tmp_path / 'hot'}"]


def test_cat_prints_a_topic_whole(offload, switched, both):
    done = offload("cat", *both, "-t", TOPIC, "--level", "entries", "-f", "jsonl")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [(row["__ledgerId"], row["__entryId"]) for row in rows] == [
        (position.ledger_id, position.entry_id) for position, _ in switched.entries
    ]


def test_cat_prints_what_is_cold_where_that_is_asked_for(offload, switched, both):
    done = offload(
        "cat",
        *both,
        "-t",
        TOPIC,
        "--level",
        "entries",
        "-f",
        "jsonl",
        "--tiered-read-priority",
        "offloaded-only",
    )
    assert len(done.out.splitlines()) == len(switched.cold()) < len(switched.entries)


def test_head_shows_a_topic_that_is_hot_only(offload, switched, both, tmp_path):
    for path in (tmp_path / "cold").iterdir():
        if path.is_file():
            path.unlink()
    done = offload("head", *both, "--level", "entries", "-n", 3, "-f", "jsonl")
    assert (done.code, len(done.out.splitlines())) == (0, 3)


def test_ls_shows_hot_and_cold_side_by_side(offload, switched, both):
    shown = offload("ls", *both, "--ledgers", "--json").json["rows"]
    assert sum(row["entries"] for row in shown) == len(switched.entries)
    *_, last = shown
    assert (last["entries"], last["formats"], last["hot_bytes"]) == (
        7,
        ["hot"],
        sum(len(payload) for _, payload in switched.entries[-7:]),
    )
    cold = [row for row in shown if not row["hot_bytes"]]
    assert cold
    assert not any("hot" in row["formats"] for row in cold)
    assert " hot " in offload("ls", *both).out
    assert " hot " not in offload("ls", both[0], "--records", switched.records).out


def test_history_tells_since_when_ledgers_are_hot_and_what_they_have(offload, switched, both):
    events = offload("history", both[0], TOPIC, *both[1:], "--json").json["events"]
    hot = [each for each in events if each["source"] == "hot"]
    records = {each.ledger_id: each for each in switched.topic.read_info().in_order if each.has_hot_copy}
    assert [(each["ledger"], each["what"]) for each in hot] == [(each, "opened") for each in records]
    assert all(each["at"] is not None for each in hot)
    size = sum(len(payload) for _, payload in switched.entries[-7:])
    assert hot[-1]["detail"] == f"hot: 7 entries, {size:,} bytes so far"
    assert not any(each["detail"].endswith("so far") for each in hot[:-1])


def test_history_tells_that_a_ledger_is_not_where_its_record_has_it(offload, switched, both):
    switched.topic.roll()
    lost = [each.ledger_id for each in switched.topic.read_info().in_order if each.has_hot_copy][-1]
    switched.environment.hot.store.delete(lost)
    events = offload("history", both[0], TOPIC, *both[1:], "--json").json["events"]
    (told,) = (each for each in events if each["source"] == "hot" and each["ledger"] == lost)
    assert (told["what"], told["at"]) == ("hot-missing", None)
    assert told["detail"]


def test_cost_shows_what_a_scan_reads_of_both(offload, switched, both):
    told = offload("cost", *both, "--json").json["scan"]
    size = sum(len(payload) for _, payload in switched.entries[-7:])
    assert told["hot_bytes_by_topic"] == {TOPIC: size}
    cold = offload("cost", *both[:-2], "--json").json["scan"]
    assert cold["hot_bytes_by_topic"] == {}
    assert told["reading"] == cold["reading"]
    assert "in the hot tier, " in offload("cost", *both).out


def test_cost_knows_a_topic_that_is_hot_only(offload, both, tmp_path):
    for path in (tmp_path / "cold").iterdir():
        if path.is_file():
            path.unlink()
    done = offload("cost", *both, "-t", TOPIC, "--json")
    assert (done.code, sum(done.json["scan"]["hot_bytes_by_topic"].values()) > 0) == (0, True)
    assert offload("cost", *both, "-t", "acme/n/none").code == 2


def test_cost_of_a_hot_tier_without_a_scan_is_wrong_use(offload, both):
    done = offload("cost", *both, "--no-scan")
    assert (done.code, "read by a scan" in done.err) == (2, True)


@pytest.mark.parametrize("command", [("ls",), ("history", TOPIC), ("cost",)])
def test_a_hot_tier_needs_records(offload, both, command):
    name, *more = command
    done = offload(name, both[0], *more, "--hot", both[-1])
    assert (done.code, "named by records" in done.err) == (2, True)


def test_export_writes_what_is_hot_and_goes_on_from_there(offload, switched, both, tmp_path):
    out = tmp_path / "out"
    assert offload("export", *both, "-t", TOPIC, "--to", out).code == 0
    switched.add(5)
    switched.topic.roll()
    switched.add(2)
    again = offload("export", *both, "-t", TOPIC, "--to", out)
    assert again.code == 0, again.err
    import pyarrow.dataset as ds

    files = [str(path) for path in out.rglob("*.parquet")]
    assert ds.dataset(files).count_rows() == len(switched.entries)
