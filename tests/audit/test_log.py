"""The audit log: a line for each change, durable, after whatever a crash left; it fails rather than lie."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from uuid import UUID

import pytest
from managed_ledgers import NAME, Clock

from offload_core.writing.audit import Change, ChangeAction, Deletion, FileAuditLog, LoggedChanges
from offload_hooks.errors import StoreError

GOLDEN = Path(__file__).parents[1] / "docs" / "audit-log-v1.jsonl"
COLD = Deletion(
    managed_ledger=NAME,
    ledger_id=7,
    copy="cold",
    why="1048576 bytes are newer; retention keeps 1 MB",
    uuid=UUID("0c9d5a3e-4f1b-4a5e-9d6e-2b7f8a1c3d4e"),
    entries=50_000,
    size_bytes=51_200_000,
)
HOT = Deletion(
    managed_ledger=NAME, ledger_id=9, copy="hot", why="it was left, and its topic does not have it"
)


def test_lines_are_those_of_the_golden_file(tmp_path):
    log = FileAuditLog(tmp_path / "audit.jsonl", now_ms=Clock())
    log.record(COLD)
    log.record(HOT)
    assert (tmp_path / "audit.jsonl").read_bytes() == GOLDEN.read_bytes()


def test_a_line_that_a_crash_tore_is_left_alone(tmp_path):
    path = tmp_path / "audit.jsonl"
    path.write_bytes(GOLDEN.read_bytes() + b'{"version": 1, "at')
    FileAuditLog(path).record(HOT)
    lines = path.read_text().splitlines()
    assert len(lines) == 4
    assert json.loads(lines[3])["ledger_id"] == 9


def test_what_cannot_be_recorded_is_an_error(tmp_path):
    with pytest.raises(StoreError, match="the audit log cannot be written") as caught:
        FileAuditLog(tmp_path / "missing" / "audit.jsonl").record(HOT)
    assert caught.value.key == str(tmp_path / "missing" / "audit.jsonl")


def test_deletions_are_in_the_programs_log_otherwise(caplog):
    with caplog.at_level(logging.INFO):
        LoggedChanges().record(COLD)
    assert [record.getMessage() for record in caplog.records] == [
        f"deleting the cold copy of ledger 7 of {NAME}: 1048576 bytes are newer; retention keeps 1 MB"
    ]


MOVED = Change(
    action=ChangeAction.MOVE,
    why="its index is lost",
    uuid=COLD.uuid,
    key="a-ledger-7",
    after="quarantine/a-ledger-7",
)


def test_another_change_is_a_line_with_all_that_is_known(tmp_path):
    path = tmp_path / "audit.jsonl"
    FileAuditLog(path, now_ms=Clock()).record(MOVED)
    assert json.loads(path.read_text()) == {
        "version": 1,
        "at": json.loads(GOLDEN.read_text().splitlines()[0])["at"],
        "action": "move",
        "managed_ledger": None,
        "ledger_id": None,
        "uuid": str(COLD.uuid),
        "key": "a-ledger-7",
        "before": None,
        "after": "quarantine/a-ledger-7",
        "why": "its index is lost",
    }


def test_other_changes_are_in_the_programs_log_otherwise(caplog):
    with caplog.at_level(logging.INFO):
        LoggedChanges().record(MOVED)
    assert [record.getMessage() for record in caplog.records] == [
        f"move: uuid {COLD.uuid}, key a-ledger-7, after quarantine/a-ledger-7: its index is lost"
    ]


@pytest.mark.parametrize("is_there", [False, True])
def test_the_name_of_a_new_log_is_durable_before_its_first_line_is_taken_for_written(
    tmp_path, synced, is_there
):
    path = tmp_path / "audit.jsonl"
    if is_there:  # whoever created it may have been killed before its name was durable
        path.touch()
    log = FileAuditLog(path)
    log.record(COLD)
    assert set(synced) == {tmp_path, path}
    synced.clear()
    log.record(HOT)
    assert synced == [path]
    path.unlink()  # rotated
    log.record(HOT)
    assert synced[1:] == [tmp_path, path]


def test_a_link_or_a_pipe_is_no_audit_log(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"victim")
    (tmp_path / "link").symlink_to(victim)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(StoreError, match="cannot be written"):
            FileAuditLog(tmp_path / name).check_writable()
        with pytest.raises(StoreError, match="cannot be written"):
            FileAuditLog(tmp_path / name).record(COLD)
    assert victim.read_bytes() == b"victim"
