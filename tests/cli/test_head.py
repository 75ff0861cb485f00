"""`offload head`: the first messages of each topic, and what is said of those that cannot be read."""

import json

import pytest
from entries import entry, pip17_object
from tiers import Names, lay_out

from offload_core.reading.scan import scanning

TOPICS = [f"persistent://acme/cold/{name}" for name in ("a", "b", "c")]


@pytest.fixture
def tier(tmp_path):
    """Three topics of eight messages each."""
    for number, name in enumerate("abc"):
        names = Names(managed_ledger=f"acme/cold/persistent/{name}")
        written = pip17_object([entry(b"%s%d" % (name.encode(), i)) for i in range(8)], ledger_id=number)
        lay_out(tmp_path / "tier", written, attempt=number, names=names)
    return tmp_path / "tier"


def test_the_first_messages_of_each_topic_take_one_listing(offload, tier, monkeypatch):
    listings = []
    real = scanning.list_catalogue
    monkeypatch.setattr(scanning, "list_catalogue", lambda *a, **k: listings.append(1) or real(*a, **k))
    shown = offload("head", tier)
    assert shown.code == 0, shown.err
    lines = [line.split() for line in shown.out.splitlines()]
    assert [line[0] for line in lines if line and line[0] in TOPICS] == TOPICS
    assert sum("a4" in line for line in lines) == sum("c4" in line for line in lines) == 1
    assert not any("a5" in line for line in lines)
    assert len(listings) == 1


def test_json_lines_name_the_topic_where_it_is_asked_for(offload, tier):
    columns = ("--columns", "__topic,__entryId")
    done = offload("head", tier, "-n", "2", "-f", "jsonl", *columns, "--topics-pattern", "acme/cold/[bc]")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert [(row["__topic"], row["__entryId"]) for row in rows] == [
        (topic, i) for topic in TOPICS[1:] for i in range(2)
    ]
    assert offload("head", tier, "-t", "acme/cold/b", "-f", "jsonl").out.count("\n") == 5


def test_a_topic_that_cannot_be_read_is_reported_and_the_others_are_shown(offload, tier):
    (broken,) = tier.glob("*-ledger-1-index")
    broken.write_bytes(broken.read_bytes()[:40])
    shown = offload("head", tier, "-n", "1")
    assert shown.code == 1
    assert "persistent://acme/cold/b: " in shown.err
    assert "Traceback" not in shown.err
    assert "a0" in shown.out
    assert "c0" in shown.out


def test_a_tier_without_topics_and_a_name_that_is_not_there_are_wrong_uses(offload, tier, tmp_path):
    (tmp_path / "empty").mkdir()
    assert offload("head", tmp_path / "empty").code == 2
    assert offload("head", tier, "-t", "acme/cold/x").code == 2
