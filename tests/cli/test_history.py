"""`offload history`: what records, objects and audit logs say of ledgers, in the order of time."""

from datetime import UTC, datetime, timedelta

import pytest
from entries import LedgerPart, pip17_object, streaming_object
from records import CLOSED_AT_MS, closed, copied, managed_ledger, segment
from tiers import MANAGED_LEDGER, TOPIC, Names, lay_out, uuid_of

from offload_core.metadata.records import OffloadContext, pack_managed_ledger_info
from offload_core.writing.audit import Change, ChangeAction, Deletion, FileAuditLog, read_audit_log
from offload_hooks.errors import FormatError, ObjectNotFoundError, StoreError, UnsupportedVersionError

CLOSED = datetime.fromtimestamp(CLOSED_AT_MS / 1000, UTC)


def lay_out_some(root):
    """A ledger with a superseded attempt, its hot copy gone; one in a segment; one that was deleted. Record and log."""
    cold = root / "cold"
    for number, hours in ((1, 1), (2, 2)):
        moment = CLOSED + timedelta(hours=hours)
        lay_out(cold, pip17_object([b"a", b"b"], ledger_id=3), attempt=number, modified_at=moment)
    parts = [LedgerPart(ledger_id=5, blocks=[[b"c"]])]
    moment, nameless = CLOSED + timedelta(hours=3), Names(managed_ledger=None)
    lay_out(cold, streaming_object(parts), attempt=4, modified_at=moment, names=nameless)
    lay_out(
        cold, pip17_object([b"z"], ledger_id=9), attempt=9, names=Names(managed_ledger="a/b/persistent/other")
    )
    info = managed_ledger(
        closed(3, 2, copied(uuid_of(2), bookkeeper_deleted=True)),
        closed(
            5, 1, OffloadContext.of_segments([segment(uuid_of(4), 0)], complete=True, bookkeeper_deleted=True)
        ),
        closed(6, 4, copied(uuid_of(6), complete=False, timestamp_ms=None)),
    )
    record = root / "record"
    record.write_bytes(pack_managed_ledger_info(info))
    log = FileAuditLog(root / "audit.jsonl", now_ms=lambda: CLOSED_AT_MS + 5 * 3_600_000)
    log.record(Deletion(managed_ledger=MANAGED_LEDGER, ledger_id=3, copy="hot", why="the lag has passed"))
    log.record(
        Deletion(managed_ledger=MANAGED_LEDGER, ledger_id=2, copy="cold", why="retention", uuid=uuid_of(8))
    )
    log.record(Deletion(managed_ledger="a/b/persistent/other", ledger_id=9, copy="hot", why="not ours"))
    repaired = {"why": "it is repaired", "ledger_id": 3, "uuid": uuid_of(2), "key": "k", "before": "old"}
    log.record(Change(action=ChangeAction.WRITE, **repaired))
    return f"{TOPIC}={record}", root / "audit.jsonl"


def test_it_is_told_in_the_order_of_time_from_all_that_know(offload, tmp_path):
    record, log = lay_out_some(tmp_path)
    result = offload("history", tmp_path / "cold", TOPIC, "--records", record, "--audit-log", log, "--json")
    assert (result.code, result.err) == (0, "")
    said = result.json
    assert said["topic"] == TOPIC
    told = [
        (each["ledger"], each["what"], (each["uuid"] or "")[-1:], each["source"]) for each in said["events"]
    ]
    assert told == [
        (3, "opened", "", "object"),
        (3, "closed", "", "record"),
        (5, "closed", "", "record"),
        (5, "assigned", "4", "record"),
        (6, "closed", "", "record"),
        (3, "offloaded", "2", "record"),
        (5, "offloaded", "4", "record"),
        (3, "written", "1", "object"),
        (3, "written", "2", "object"),
        (5, "written", "4", "object"),
        (2, "cold-deleted", "8", "audit"),
        (3, "hot-deleted", "", "audit"),
        (3, "changed", "2", "audit"),
        (5, "hot-deleted", "", "record"),
        (6, "unfinished", "6", "record"),
    ]
    details = {(each["ledger"], each["what"], each["uuid"]): each["detail"] for each in said["events"]}
    assert details[3, "written", str(uuid_of(1))].endswith("superseded: a newer copy is read")
    assert details[3, "changed", str(uuid_of(2))] == "write: k: old: it is repaired"
    assert details[5, "offloaded", str(uuid_of(4))] == "segment, entries 0–0, to aws-s3 at golden"
    assert details[3, "hot-deleted", None] == "the lag has passed"


def test_one_ledger_is_told_as_a_table(offload, tmp_path):
    record, log = lay_out_some(tmp_path)
    logs = ("--records", record, "--audit-log", log)
    result = offload("history", tmp_path / "cold", TOPIC, *logs, "--ledger", "6")
    header, closing, unfinished = (" ".join(line.split()) for line in result.out.splitlines())
    assert header == "time ledger what attempt source detail"
    assert closing.startswith("2023-11-14 22:13:20Z 6 closed ")
    assert unfinished.startswith("– 6 unfinished ")


def test_without_records_objects_tell_what_they_know(offload, tmp_path):
    lay_out_some(tmp_path)
    lay_out(tmp_path / "cold", pip17_object([b"a"], ledger_id=7), attempt=7, parts=["data"])
    events = offload("history", tmp_path / "cold", "acme/cold/orders", "--json").json["events"]
    written = [(each["ledger"], each["detail"]) for each in events if each["what"] == "written"]
    assert [ledger for ledger, _ in written] == [3, 3, 7]
    assert "not readable: the data object has no index" in written[-1][1]


def test_a_topic_of_which_nothing_is_known_is_an_error(offload, tmp_path):
    lay_out_some(tmp_path)
    result = offload("history", tmp_path / "cold", "acme/cold/nothing")
    assert result.code == 2
    assert "nothing is known of this topic" in result.err


def test_when_a_ledger_was_opened_is_in_its_index(offload, broker):
    events = offload("history", broker, "acme/cold/big", "--json").json["events"]
    assert [each["what"] for each in events] == ["opened", "opened", "written", "written"]
    assert events[0]["at"] < events[2]["at"]


# --- reading audit logs ------------------------------------------------------------------------


def test_a_torn_line_of_an_audit_log_is_passed_over(tmp_path):
    _, log = lay_out_some(tmp_path)
    whole = list(read_audit_log(log))
    assert [each.action for each in whole] == ["delete", "delete", "delete", "write"]
    log.write_bytes(log.read_bytes() + b'{"version": 1, "at": "20')
    assert list(read_audit_log(log)) == whole


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ('{"version": 2}', UnsupportedVersionError),
        ('{"version": 1}', FormatError),
        ("[]", FormatError),
        ('{"version": 1, "at": "2023-11-14T22:13:20+00:00", "action": "delete", "uuid": "x"}', FormatError),
        ('{"version": 1, "at": "yesterday", "action": "delete"}', FormatError),
    ],
)
def test_a_line_of_another_kind_is_an_error_that_names_it(tmp_path, line, error):
    path = tmp_path / "log"
    path.write_text(f"\n{line}\n")
    with pytest.raises(error, match="log, line 2"):
        list(read_audit_log(path))


def test_a_line_of_another_kind_does_not_hide_the_others(offload, tmp_path):
    _, log = lay_out_some(tmp_path)
    whole = offload("history", tmp_path / "cold", TOPIC, "--audit-log", log)
    lines = log.read_bytes().splitlines(keepends=True)
    bad = [b'{"version": 1, "at": "9999-12-31T23:59:59-23:59", "action": "delete"}\n', b"[" * 100_000 + b"\n"]
    log.write_bytes(b"".join([*lines[:2], *bad, *lines[2:]]))
    result = offload("history", tmp_path / "cold", TOPIC, "--audit-log", log)
    assert (result.code, result.out) == (whole.code, whole.out)
    assert f"{log}, line 3" in result.err.replace("\n", "")
    assert len(list(read_audit_log(log, wrong=lambda _: None))) == len(lines)


def test_an_audit_log_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ObjectNotFoundError, match="there is no such audit log"):
        list(read_audit_log(tmp_path / "nothing"))
    with pytest.raises(StoreError, match="cannot be read"):
        list(read_audit_log(tmp_path))


def test_another_file_is_not_taken_for_an_audit_log(offload, tmp_path):
    lay_out_some(tmp_path)
    (tmp_path / "page").write_text("<!doctype html>\n<p>\n")
    result = offload("history", tmp_path / "tier", "acme/cold/orders", "--audit-log", tmp_path / "page")
    assert (result.code, result.out) == (1, "")
    assert "this is no audit log" in result.err
