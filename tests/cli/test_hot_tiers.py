"""Commands that read a tier together with a hot one."""

import json

import pytest
from scenes.switched import TOPIC, live, switched_topic
from stores import Store


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


def test_ls_of_a_hot_tier_needs_records(offload, both):
    done = offload("ls", both[0], "--hot", both[-1])
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
