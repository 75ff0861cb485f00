"""Lost data: objects that are gone are no success to read; entries that a saved object lacks are named everywhere."""

import pytest
from entries import LedgerPart, entry, pip17_object, streaming_object
from tiers import TOPIC, lay_out

THREE = [entry(b"%04d" % i) for i in range(3)]


@pytest.mark.parametrize(
    "written",
    [pip17_object(THREE, ledger_id=5), streaming_object([LedgerPart(ledger_id=5, blocks=[THREE])])],
    ids=["pip17", "segment"],
)
def test_what_is_lost_is_no_success_unless_it_is_accepted(offload, tmp_path, written, caplog):
    root = tmp_path / "tier"
    lay_out(root, written, parts=["index"])
    commands = (["cat", root, "--topic", TOPIC], ["export", root, "--to", tmp_path / "out", "--topic", TOPIC])
    for command in commands:
        result = offload(*command)
        assert result.code != 0
        assert "no data object" in result.err
        assert "ledger 5" in result.err
        assert "--no-fail-on-data-loss" in result.err
    result = offload("cat", root, "--topic", TOPIC, "--no-fail-on-data-loss")
    assert (result.code, len(result.out.splitlines())) == (0, 1)  # no more than the header
    assert any("no data object" in message for message in caplog.messages)


PAYLOADS = [entry(b"%04d" % i * 20) for i in range(40)]
SAID = "1 entries: 7:5"


@pytest.fixture
def salvaged(offload, tmp_path):
    """A tier with what was saved of an object; its key."""
    root = tmp_path / "tier"
    written = pip17_object(PAYLOADS, ledger_id=7, max_block_bytes=1000)
    key = lay_out(root, written)
    data = bytearray(written.data)
    data[written.data.index(PAYLOADS[5]) + 60] ^= 1
    (root / key).write_bytes(data)
    log = tmp_path / "audit.jsonl"
    result = offload("repair", root, "--quarantine", "--yes", "--audit-log", log, "--json")
    return root, result.json["repairs"][0]["target"]


def test_commands_name_the_entries_that_a_saved_object_lacks(offload, salvaged, tmp_path):
    root, key = salvaged
    header, topic, _, problem = offload("ls", root).out.splitlines()
    assert header.rstrip().endswith("problems")
    assert topic.rstrip().endswith("1 lack entries")
    assert problem.split()[:2] == ["lost-entries", key]
    assert SAID in problem
    (listed,) = offload("ls", root, "--json").json["problems"]
    assert (listed["key"], listed["complete"], listed["problem"]) == (key, True, "lost-entries")
    (row,) = offload("ls", root, "--by", "segment", "--json").json["rows"]
    assert (row["lacking"], row["problem"], row["unreadable"]) == (1, "lost-entries", 0)
    shown = offload("inspect", root, key).out
    assert any(line.split()[:2] == ["lost", "entries"] and SAID in line for line in shown.splitlines())
    assert offload("inspect", root, key, "--json").json["lost_entries"] == SAID
    assert SAID in offload("history", root, TOPIC).out
    page = offload("report", root, "--output", tmp_path / "report.html")
    assert (page.code, "lost-entries" in (tmp_path / "report.html").read_text()) == (0, True), page.err


def test_bytes_after_a_lost_entry_are_shown_as_right(offload, salvaged):
    root, key = salvaged
    shown = offload("inspect", root, key, "--hex", "--block", "1").out
    assert "wrong" not in shown
    ids = [int(line.rpartition(" ")[2]) for line in shown.splitlines() if "| entry id: " in line]
    assert ids == [*range(5), 6, 7]


def test_a_record_that_is_recovered_from_it_says_so(offload, salvaged):
    root, key = salvaged
    result = offload("recover", root, "--json")
    assert result.code == 1
    (topic,) = result.json["topics"]
    (fact,) = topic["unknown"]
    assert (fact["code"], fact["ledger"], fact["key"], fact["detail"]) == ("lost-entries", 7, key, SAID)
    assert topic["ledgers"][0]["ledger"] == 7
