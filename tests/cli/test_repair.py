"""`offload repair`: what it shows, the report for machines, how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Offload
from entries import entry, pip17_object
from tiers import TOPIC, lay_out

from offload_core.tier import open_store

PAYLOADS = [entry(b"%04d" % i * 20) for i in range(40)]
LEDGER = pip17_object(PAYLOADS, ledger_id=7, max_block_bytes=1000)


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, str, str]:
    """A tier of two ledgers: of one an entry is damaged, the other's index is gone a long time; their keys."""
    root = tmp_path / "tier"
    root.mkdir()
    one = lay_out(root, LEDGER, attempt=1)
    data = bytearray((root / one).read_bytes())
    data[LEDGER.data.index(PAYLOADS[5]) + 60] ^= 1
    (root / one).write_bytes(data)
    two = lay_out(root, pip17_object(PAYLOADS, ledger_id=8), attempt=2, parts=("data",))
    return root, one, two


def keys(root: Path) -> set[str]:
    with open_store(root) as tier:
        return {listed.key for listed in tier.list_objects()}


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(
    offload: Offload, damaged: tuple[Path, str, str]
) -> None:
    root, one, two = damaged
    before = keys(root)
    result = offload("repair", root)
    assert result.code == 1
    assert keys(root) == before
    lines = result.out.splitlines()
    assert any(one in line and "salvage" in line and "message.checksum" in line for line in lines)
    assert any(two in line and "rebuild-index" in line and "object.no-index" in line for line in lines)
    assert f"{one}: lost: 1 entries: 7:5" in lines
    assert lines[-1] == "2 damaged, 2 would be repaired; nothing was changed"


def test_what_is_done_stands_in_the_audit_log_and_is_not_done_again(
    offload: Offload, damaged: tuple[Path, str, str], tmp_path: Path
) -> None:
    root, one, two = damaged
    log = tmp_path / "audit.jsonl"
    result = offload("repair", root, "--yes", "--audit-log", log, "--quarantine", "--json")
    assert result.code == 0, result.err
    report = json.loads(result.out)
    by_key = {each["key"]: each for each in report["repairs"]}
    assert by_key[two]["action"] == "rebuild-index"
    assert by_key[two]["written"] == [f"{two}-index"]
    target = by_key[one]["target"]
    assert by_key[one]["written"] == [target, f"{target}-index"]
    assert by_key[one]["moved"] == [f"quarantine/{one}.quarantined", f"quarantine/{one}-index.quarantined"]
    assert (by_key[one]["entries"], by_key[one]["lost"], by_key[one]["lost_entries"]) == (
        39,
        1,
        "1 entries: 7:5",
    )
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert [each["action"] for each in logged] == ["write", "write", "write", "move", "move", "write"]
    again = offload("repair", root, "--yes", "--audit-log", log)
    assert again.code == 1  # lost entries stay lost
    assert "ledger.lost-entries" in again.out
    assert len(log.read_text().splitlines()) == len(logged)


def test_only_what_is_named_is_repaired(
    offload: Offload, damaged: tuple[Path, str, str], tmp_path: Path
) -> None:
    root, _, two = damaged
    log, before = tmp_path / "audit.jsonl", keys(root)
    assert offload("repair", root, f"{two}-index", "--yes", "--audit-log", log).code == 0
    assert keys(root) == before | {f"{two}-index"}
    assert offload("verify", root, "--prefix", two, "--deep").code == 0


@pytest.mark.parametrize(("topic", "count"), [(TOPIC, 2)])
def test_only_the_topics_that_are_named_are_repaired(
    offload: Offload, damaged: tuple[Path, str, str], topic: str, count: int
) -> None:
    result = offload("repair", damaged[0], "--topic", topic, "--json")
    assert len(json.loads(result.out)["repairs"]) == count


def test_a_copy_that_is_right_is_told_and_the_damaged_one_put_aside(
    offload: Offload, damaged: tuple[Path, str, str], tmp_path: Path
) -> None:
    root, one, _ = damaged
    other = lay_out(root, LEDGER, attempt=3)
    told = offload("repair", root, one)
    assert told.code == 1
    assert "readers without records read the newest copy" in told.out
    log = tmp_path / "audit.jsonl"
    result = offload("repair", root, one, "--quarantine", "--yes", "--audit-log", log, "--json")
    (repair,) = json.loads(result.out)["repairs"]
    assert (repair["action"], repair["other"], repair["target"]) == ("other-copy", other, None)
    assert len(repair["moved"]) == 2
    assert offload("verify", root, "--prefix", other, "--deep").code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--yes",), "--audit-log FILE"),
        (("--switch-records",), "--records URL"),
        (("no-key",), "no key of an offloaded object"),
    ],
)
def test_wrong_use(offload: Offload, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    result = offload("repair", tmp_path, *arguments)
    assert result.code == 2
    assert said in result.err


def test_a_sound_tier_needs_nothing(offload: Offload, tmp_path: Path) -> None:
    lay_out(tmp_path, LEDGER)
    result = offload("repair", tmp_path)
    assert (result.code, result.out) == (0, "0 damaged, 0 would be repaired; nothing was changed\n")
