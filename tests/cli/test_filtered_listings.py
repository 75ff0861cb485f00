"""`offload ls` and `offload inspect` name what a filter did to an object's entries."""

import pytest
from scenes.filters import FilteredTopic

from offload_core.interfaces.cli.ledger_facts import filter_note, recorded
from offload_core.metadata.records.filter_record import DroppedEntries, FilterMode, FilterRecord


def words(text):
    return " ".join(text.split())


@pytest.fixture
def topic(tmp_path):
    """Two ledgers, of which a filter has dropped three entries of seven, by gaps."""
    topic = FilteredTopic(tmp_path / "cold")
    topic.do("m", "1", "a1", "m", "|", "2", "c2", "m", "|")
    topic.offload()
    return topic


def test_topics_and_ledgers_are_listed_with_what_was_dropped(offload, topic):
    whole = offload("ls", topic.folder)
    assert (whole.code, whole.err) == (0, "")
    assert "filtered" in whole.out.splitlines()[0]
    assert "gaps for 3 of 7 entries by transactions" in words(whole.out)
    listed = words(offload("ls", topic.folder, "--ledgers").out)
    assert "gaps for 2 of 4" in listed
    assert "gaps for 1 of 3" in listed
    said = offload("ls", topic.folder, "--json").json["topics"][0]["ledgers"]
    assert [each["filters"][0]["dropped"][0] for each in said] == [2, 1]
    assert [each["entries"] for each in said] == [4, 3]


def test_an_objects_filter_is_shown_with_its_causes(offload, topic):
    first = topic.ledgers[0]
    assert first.context is not None
    key = f"{first.context.uuid}-ledger-{first.ledger_id}"
    assert "filtered gaps for 2 of 4 entries by transactions" in words(
        offload("inspect", topic.folder, key).out
    )
    (ledger,) = offload("inspect", topic.folder, key, "--json").json["ledgers"]
    assert ledger["filter"]["causes"].keys() == {
        "marker",
        f"aborted ({topic.begun[1].most_bits},{topic.begun[1].least_bits})",
    }


def test_what_no_filter_touched_says_nothing_of_one(offload, broker):
    assert "filtered" not in offload("ls", broker).out
    ledgers = offload("ls", broker, "--json").json["topics"][0]["ledgers"]
    assert {tuple(each["filters"]) for each in ledgers} == {()}


def test_filters_and_modes_are_summed_up_apart_and_what_cannot_be_read_is_passed_over():
    def record(name, mode, kept, dropped):
        return FilterRecord.of(
            name, mode, None, DroppedEntries(entries=kept), {"cause": DroppedEntries(entries=dropped)}
        )

    records = [
        record("a", FilterMode.GAP, 1000, 200),
        record("a", FilterMode.TOMBSTONE, 1, 1),
        record("a", FilterMode.GAP, 1, 0),
    ]
    assert filter_note(records) == "gaps for 200 of 1,201 entries by a, tombstones for 1 of 2 entries by a"
    texts = [records[0].pack(), None, "{}", records[1].pack(short=True)]
    assert [each.kept.entries for each in recorded(texts)] == [1000, 1]
    assert records[1].to_json()["causes"] == {"cause": [1, 0]}
    assert filter_note([]) == ""
