"""`offload ls`, `inspect` and `report` say of an object that was saved from a damaged one which entries it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Offload
from entries import entry, pip17_object
from tiers import TOPIC, lay_out

PAYLOADS = [entry(b"%04d" % i * 20) for i in range(40)]
SAID = "1 entries: 7:5"


@pytest.fixture
def salvaged(offload: Offload, tmp_path: Path) -> tuple[Path, str]:
    """A tier with what was saved of an object; its key."""
    root = tmp_path / "tier"
    root.mkdir()
    written = pip17_object(PAYLOADS, ledger_id=7, max_block_bytes=1000)
    key = lay_out(root, written)
    data = bytearray(written.data)
    data[written.data.index(PAYLOADS[5]) + 60] ^= 1
    (root / key).write_bytes(data)
    log = tmp_path / "audit.jsonl"
    result = offload("repair", root, "--quarantine", "--yes", "--audit-log", log, "--json")
    return root, result.json["repairs"][0]["target"]


def test_ls_counts_and_names_it(offload: Offload, salvaged: tuple[Path, str]) -> None:
    root, key = salvaged
    header, topic, _, problem = offload("ls", root).out.splitlines()
    assert header.rstrip().endswith("problems")
    assert topic.rstrip().endswith("1 lack entries")
    assert problem.split()[:2] == ["lost-entries", key]
    assert SAID in problem
    said = offload("ls", root, "--json").json
    (told,) = said["problems"]
    assert (told["key"], told["complete"], told["problem"]) == (key, True, "lost-entries")
    (row,) = offload("ls", root, "--by", "segment", "--json").json["rows"]
    assert (row["lacking"], row["problem"], row["unreadable"]) == (1, "lost-entries", 0)


def test_inspect_names_it(offload: Offload, salvaged: tuple[Path, str]) -> None:
    root, key = salvaged
    shown = offload("inspect", root, key).out
    assert any(line.split()[:2] == ["lost", "entries"] and SAID in line for line in shown.splitlines())
    assert offload("inspect", root, key, "--json").json["lost_entries"] == SAID


def test_bytes_behind_a_lost_entry_are_shown_as_right(offload: Offload, salvaged: tuple[Path, str]) -> None:
    root, key = salvaged
    shown = offload("inspect", root, key, "--hex", "--block", "1").out
    assert "wrong" not in shown
    assert [int(line.rpartition(" ")[2]) for line in shown.splitlines() if "| entry id: " in line] == [
        *range(5),
        6,
        7,
    ]


def test_the_history_of_its_topic_has_it(offload: Offload, salvaged: tuple[Path, str]) -> None:
    assert SAID in offload("history", salvaged[0], TOPIC).out


def test_a_record_that_is_recovered_from_it_says_so(offload: Offload, salvaged: tuple[Path, str]) -> None:
    root, key = salvaged
    result = offload("recover", root, "--json")
    assert result.code == 1
    (topic,) = result.json["topics"]
    (fact,) = topic["unknown"]
    assert (fact["code"], fact["ledger"], fact["key"], fact["detail"]) == ("lost-entries", 7, key, SAID)
    assert topic["ledgers"][0]["ledger"] == 7


def test_the_report_has_it_among_the_problems(
    offload: Offload, salvaged: tuple[Path, str], tmp_path: Path
) -> None:
    root, _ = salvaged
    page = tmp_path / "report.html"
    result = offload("report", root, "--output", page)
    assert result.code == 0, result.err
    assert "lost-entries" in page.read_text()
