"""`offload ls`: what lies in a tier, for people and for programs."""

from datetime import timedelta

import pytest
from entries import LedgerPart, pip17_object, streaming_object
from tiers import CLUSTER, MODIFIED_AT, TOPIC, Names, lay_out, uuid_of

LATER = MODIFIED_AT + timedelta(hours=3)


def words(line):
    return " ".join(line.split())


def lay_out_some(root):
    """Ledger 3 with two copies, ledger 4 without an index, ledger 5 in a segment."""
    lay_out(root, pip17_object([b"a", b"b"], ledger_id=3), attempt=1)
    lay_out(root, pip17_object([b"a", b"b"], ledger_id=3), attempt=2, modified_at=LATER)
    lay_out(root, pip17_object([b"c"], ledger_id=4), attempt=3, parts=["data"])
    lay_out(root, streaming_object([LedgerPart(ledger_id=5, blocks=[[b"d"], [b"e", b"f"]])]), attempt=4)


def test_topics_are_listed_with_their_ledgers_entries_and_sizes(offload, broker):
    result = offload("ls", broker)
    assert (result.code, result.err) == (0, "")
    header, *lines = result.out.splitlines()
    assert words(header) == "topic ledgers entries size attempts format oldest newest"
    assert len(lines) == 13
    assert words(lines[2]).startswith("acme/cold/big 2 1,300 15.0 MB 2 pip17 ")
    assert words(lines[11]).startswith("acme/cold/nobatch 3 2,500 705.6 kB 3 pip17 ")


def test_problems_and_superseded_copies_are_counted_and_problems_named(offload, tmp_path):
    lay_out_some(tmp_path)
    result = offload("ls", tmp_path)
    assert result.code == 0
    header, topic, problems, problem = result.out.splitlines()
    assert words(header).endswith(" problems")
    assert words(topic).startswith("acme/cold/orders 3 5 1.2 kB 4 pip17, streaming 2024-05-01 12:00Z ")
    assert topic.rstrip().endswith("15:00Z  1 not readable, 1 superseded")
    assert words(problems) == "problem object what is wrong"
    assert words(problem) == (
        "no-index 00000000-0000-4000-8000-000000000003-ledger-4 "
        "the data object has no index: an attempt that did not finish"
    )


def test_ledgers_are_listed_with_their_copies(offload, tmp_path):
    lay_out_some(tmp_path)
    result = offload("ls", "--ledgers", tmp_path)
    noon, three = "2024-05-01 12:00Z", "2024-05-01 15:00Z"
    assert [words(line) for line in result.out.splitlines()][:4] == [
        "topic ledger entries size blocks attempts format oldest newest data object",
        f"acme/cold/orders 3 2 154 bytes 1 2 pip17 {noon} {three} {uuid_of(2)}-ledger-3",
        f"acme/cold/orders 4 – 0 bytes 0 1 – {noon} {noon} none that is complete",
        f"acme/cold/orders 5 3 1.0 kB 2 1 streaming {noon} {noon} {uuid_of(4)}",
    ]


def test_clusters_are_shown_where_there_are_several(offload, tmp_path):
    for attempt, cluster in enumerate(["east", "west", None]):
        lay_out(tmp_path, pip17_object([b"a"]), attempt=attempt, names=Names(cluster=cluster))
    header, *lines = offload("ls", tmp_path).out.splitlines()
    assert words(header).startswith("topic cluster ")
    assert [line.split()[1] for line in lines] == ["–", "east", "west"]


def test_a_prefix_narrows_the_listing(offload, tmp_path):
    for number, folder in enumerate(["east/", "west/"]):
        lay_out(tmp_path, pip17_object([b"a"], ledger_id=number), folder=folder)
    result = offload("ls", tmp_path, "--prefix", "west/", "--json")
    (topic,) = result.json["topics"]
    assert [ledger["ledger"] for ledger in topic["ledgers"]] == [1]


def test_json_says_all_of_it(offload, tmp_path):
    lay_out_some(tmp_path)
    result = offload("ls", tmp_path, "--json")
    assert (result.code, result.err) == (0, "")
    listed = result.json
    (topic,) = listed["topics"]
    assert (topic["topic"], topic["cluster"]) == (TOPIC, CLUSTER)
    three, four, five = topic["ledgers"]
    assert three["ledger"] == 3
    assert (three["entries"], three["size_bytes"], three["formats"]) == (2, 154, ["pip17"])
    assert three["read_from"] == ["00000000-0000-4000-8000-000000000002-ledger-3"]
    assert [attempt["key"][-10:] for attempt in three["attempts"]] == ["1-ledger-3", "2-ledger-3"]
    assert three["attempts"][1] == {
        "key": "00000000-0000-4000-8000-000000000002-ledger-3",
        "format": "pip17",
        "data_bytes": 154,
        "index_bytes": len(pip17_object([b"a", b"b"], ledger_id=3).index),
        "storage_class": None,
        "modified_at": "2024-05-01T15:00:00+00:00",
        "complete": True,
        "problem": None,
        "detail": None,
    }
    assert (four["entries"], four["read_from"], four["formats"]) == (None, [], [])
    assert (five["entries"], five["size_bytes"], five["formats"]) == (3, 1024, ["streaming"])
    (problem,) = listed["problems"]
    assert (problem["problem"], problem["complete"]) == ("no-index", False)
    assert problem == four["attempts"][0]


def test_an_unknown_topic_is_null_in_json_and_said_in_the_table(offload, tmp_path):
    lay_out(tmp_path, pip17_object([b"a"]), names=Names(managed_ledger=None))
    assert offload("ls", tmp_path, "--json").json["topics"][0]["topic"] is None
    assert offload("ls", tmp_path).out.splitlines()[1].startswith("(unknown topic)")


def test_lines_are_not_broken_in_a_pipe(offload, tmp_path):
    name = "n" * 200
    lay_out(tmp_path, pip17_object([b"a"]), names=Names(managed_ledger=f"a/b/persistent/{name}"))
    assert offload("ls", "-l", tmp_path).out.splitlines()[1].startswith(f"a/b/{name} ")


def test_lines_are_of_tenants_namespaces_ledgers_or_objects(offload, tmp_path):
    lay_out_some(tmp_path)
    other = Names(managed_ledger="acme/warm/persistent/orders")
    lay_out(tmp_path, pip17_object([b"g"], ledger_id=9), attempt=9, names=other)

    def rows(level, *given):
        result = offload("ls", tmp_path, "--by", level, *given)
        assert result.code == 0
        return [line.split() for line in result.out.splitlines()][1:]

    assert rows("tenant")[0][:7] == ["acme", "2", "4", "6", "1.3", "kB", "5"]
    assert [row[:4] for row in rows("namespace")][:2] == [
        ["acme/cold", "1", "3", "5"],
        ["acme/warm", "1", "1", "1"],
    ]
    objects = rows("segment")
    assert [row[1] for row in objects[:5]] == ["3", "3", "4", "5", "9"]
    assert [row[-2] for row in objects[:5]] == ["superseded", "15:00Z", "no-index", "12:00Z", "12:00Z"]
    assert [row[:2] for row in rows("ledger", "--sort", "size", "--limit", "2")][:2] == [
        ["acme/cold/orders", "5"],
        ["acme/cold/orders", "3"],
    ]
    said = offload("ls", tmp_path, "--by", "segment", "--sort", "newest", "--json").json
    assert said["by"] == "segment"
    assert said["rows"][0]["keys"] == ["00000000-0000-4000-8000-000000000002-ledger-3"]
    assert [each["problem"] for each in said["rows"]].count("no-index") == 1
    assert len(said["problems"]) == 1


def test_a_segment_over_ledgers_is_one_line_and_is_read_if_one_of_them_is(offload, tmp_path):
    parts = [LedgerPart(ledger_id=number, blocks=[[b"d"]]) for number in (5, 6)]
    lay_out(tmp_path, streaming_object(parts), attempt=4)
    (row,) = offload("ls", tmp_path, "--by", "segment", "--json").json["rows"]
    assert (row["ledgers"], row["blocks"], row["superseded"], row["attempts"]) == (2, 2, 0, 1)


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("acme/cold/*", 3),
        ("acme/cold", 3),
        ("acme", 4),
        ("acme/cold/parted", 2),
        ("persistent://acme/warm/or?ers", 1),
        ("*/orders", 2),
        ("other", 0),
    ],
)
def test_topics_are_chosen_by_patterns(offload, tmp_path, pattern, topics):
    names = [
        "cold/persistent/orders",
        "cold/persistent/parted-partition-0",
        "cold/persistent/parted-partition-1",
    ]
    for number, name in enumerate([*names, "warm/persistent/orders"]):
        named = Names(managed_ledger=f"acme/{name}")
        lay_out(tmp_path, pip17_object([b"a"], ledger_id=number), attempt=number, names=named)
    lay_out(tmp_path, pip17_object([b"a"], ledger_id=8), attempt=8, names=Names(managed_ledger=None))
    assert len(offload("ls", tmp_path, "--topic", pattern, "--json").json["topics"]) == topics


def test_an_empty_tier_lists_nothing_and_wrong_use_is_told(offload, tmp_path):
    assert offload("ls", tmp_path, "--json").json == {"topics": [], "problems": []}
    assert offload("ls", tmp_path, "--ledgers", "--by", "topic").code == 2
    assert offload("ls", tmp_path, "--sort", "colour").code == 2
