"""`offload rollback delete`: what it says, how it ends, and what it leaves."""

import json
import re
from contextlib import closing

import pytest
from commands import HOW_TO_DO_IT
from records import closed, managed_ledger, segment, still_open
from scenes.rollbacks import (
    MIXED,
    NAMELESS,
    file_of,
    in_segments,
    info_in,
    keys,
    put_segment,
    store_of,
    streaming_tier,
)
from tiers import MANAGED_LEDGER, TOPIC, uuid_of

from offload_core.metadata.records import OffloadContext
from offload_core.metadata.records.segments import as_written
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.sqlite import SqliteStore

pytestmark = pytest.mark.long


@pytest.fixture
def tier(tmp_path):
    with streaming_tier(tmp_path) as store:
        yield store


# --- delete ------------------------------------------------------------------------------------


def test_delete_shows_first_what_would_become_of_each(offload, tier, tmp_path):
    before = keys(tier)
    result = offload("rollback", "delete", tmp_path / "tier", "--records", file_of(tmp_path, MIXED))
    assert result.code == 1
    one, two, three, cat, counts = result.out.splitlines()[1:]
    assert "would be deleted  ledger 5: its record names this segment, and its hot copy is there" in one
    assert "kept              ledger 7: its hot copy is gone, and this segment is its only copy" in two
    assert "kept              whose it is, no record tells" in three
    assert "kept              the data begins with 61207069" in cat
    assert counts.startswith("1 streaming object, 1.1 kB, would be deleted; nothing was; 2 kept")
    assert result.err.startswith("1 of them are named by records, whose ledgers have hot copies: release")
    assert keys(tier) == before


def test_a_dry_run_ends_with_1_until_all_is_deleted(offload, tier, tmp_path):
    for number in (2, 3):
        tier.delete([f"{uuid_of(number)}{part}" for part in ("", "-index")])
    tier.delete([str(uuid_of(9))])
    arguments = ["rollback", "delete", tmp_path / "tier", "--records", store_of(tmp_path, MIXED)]
    assert offload(*arguments).code == 1
    assert offload(*arguments, "--yes", "--audit-log", tmp_path / "audit.jsonl").code == 0
    assert offload(*arguments).code == 0


def test_delete_with_yes_and_an_audit_log(offload, tier, tmp_path):
    before, record = keys(tier), store_of(tmp_path, MIXED)
    arguments = ["rollback", "delete", tmp_path / "tier", "--records", record, "--yes"]
    result = offload(*arguments)
    assert (result.code, keys(tier)) == (2, before)
    assert "each change is recorded: expected --audit-log FILE" in result.err
    arguments += ["--audit-log", tmp_path / "audit.jsonl"]
    result = offload(*arguments)
    assert (result.code, result.out.splitlines()[-1]) == (1, "1 streaming object, 1.1 kB, deleted; 2 kept")
    assert before - keys(tier) == {str(uuid_of(1)), f"{uuid_of(1)}-index"}
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    logged = [(line["managed_ledger"], line["ledger_id"]) for line in lines]
    assert logged == [(MANAGED_LEDGER, 5), (MANAGED_LEDGER, 6)]
    result = offload(*arguments, "--accept-loss", "--json")
    assert result.code == 1
    said = result.json
    assert (said["dry_run"], said["count"]) == (False, 1)
    assert [(each["verdict"], each["is_due"], each["is_deleted"]) for each in said["objects"]] == [
        ("needed", True, True),
        ("unknown", False, False),
        ("foreign", False, False),
    ]
    whole = {f"{uuid_of(4)}-ledger-8", f"{uuid_of(4)}-ledger-8-index"}
    assert keys(tier) == whole | {str(uuid_of(9)), str(uuid_of(3))}


def test_nothing_is_released_where_no_audit_can_be_kept(offload, tier, tmp_path):
    url, before = store_of(tmp_path, MIXED), keys(tier)
    result = offload(
        *("rollback", "delete", tmp_path / "tier", "--records", url, "--release", "--yes"),
        *("--audit-log", tmp_path / "nowhere" / "audit.jsonl"),
    )
    assert "the audit log cannot be written: No such file or directory" in result.err
    assert (result.code, keys(tier), info_in(url)) == (2, before, as_written(MIXED))


def test_without_records_it_only_reports(offload, tier, tmp_path):
    before = keys(tier)
    arguments = ["rollback", "delete", tmp_path / "tier", "--accept-loss"]
    result = offload(*arguments)
    assert (result.code, result.out.splitlines()[-1][:22]) == (1, "0 streaming objects, 0")
    result = offload(*arguments, "--yes", "--audit-log", tmp_path / "audit.jsonl")
    assert (result.code, result.out, keys(tier)) == (2, "", before)
    assert "only records tell which objects are needed: expected --records URL" in result.err
    assert not (tmp_path / "audit.jsonl").exists()


def test_records_that_may_lack_some_delete_nothing(offload, tier, tmp_path):
    before = keys(tier)
    SqliteStore(f"sqlite:{tmp_path}/empty.db", create=True).close()
    for records, why in (
        (file_of(tmp_path, MIXED), "files are a copy, perhaps of some topics, and of another day"),
        (f"sqlite:{tmp_path}/empty.db", "there is none of any managed ledger"),
    ):
        arguments = ["rollback", "delete", tmp_path / "tier", "--records", records]
        assert offload(*arguments).code == 1
        result = offload(*arguments, "--yes", "--audit-log", tmp_path / "audit", "--accept-loss")
        assert (result.code, result.out, keys(tier)) == (2, "", before)
        assert f"by these records nothing is deleted: {why}" in result.err


def test_delete_releases_segments_first(offload, tier, tmp_path):
    url = store_of(tmp_path, MIXED)
    arguments = ["rollback", "delete", tmp_path / "tier", "--records", url, "--release"]
    result = offload(*arguments)
    assert (result.code, result.err, info_in(url)) == (1, HOW_TO_DO_IT, as_written(MIXED))
    assert f"{TOPIC}: segments would be released of ledgers 5–6" in result.out
    assert f"{TOPIC}: ledger 7 keeps its segments: the ledger's hot copy is gone" in result.out
    result = offload(*arguments, "--yes", "--audit-log", tmp_path / "audit", "--json")
    said = result.json
    assert said["released"] == {TOPIC: [5, 6]}
    assert list(said["not_released"][TOPIC]) == ["7"]
    assert [each["verdict"] for each in said["objects"]] == ["free", "needed", "unknown", "foreign"]
    assert info_in(url) == managed_ledger(closed(5, 3), closed(6, 4), *as_written(MIXED).ledgers[2:])
    assert str(uuid_of(1)) not in keys(tier)
    needs = offload("rollback", "plan", tmp_path / "tier", "--records", url, "--json").json["needs"]
    assert needs == {"nothing": 0, "release": 0, "finish": 0, "only-copy": 1, "unknown": 0}


def test_what_cannot_be_released_is_kept_and_other_topics_are_left_alone(offload, tier, tmp_path):
    context = OffloadContext.of_segments([segment(uuid_of(2), 1)])
    mine, others = managed_ledger(still_open(7, context)), managed_ledger(in_segments(5, 3, (1, 2)))
    url = store_of(tmp_path, mine)
    with closing(SqliteStore(url)) as store:
        ManagedLedgerRecords(store).write("acme/cold/persistent/others", others, None)
    place, log = tmp_path / "tier", tmp_path / "audit"
    arguments = ["rollback", "delete", place, "--records", url, "-t", TOPIC, "--yes", "--audit-log", log]
    result = offload(*arguments, "--release", "--json")
    assert result.code == 1
    said = result.json
    assert said["not_released"] == {TOPIC: {"7": "a ledger that is written to keeps its segments"}}
    assert [(each["verdict"], each["is_deleted"]) for each in said["objects"]] == [("hot", False)]
    with closing(SqliteStore(url)) as store:
        known = ManagedLedgerRecords(store).read("acme/cold/persistent/others")
    assert known is not None
    assert known.info == as_written(others)
    assert offload(*arguments).code == 0
    assert str(uuid_of(1)) in keys(tier)
    assert str(uuid_of(2)) not in keys(tier)


def test_a_release_needs_records_that_can_be_written(offload, tier, tmp_path):
    before = keys(tier)
    result = offload("rollback", "delete", tmp_path / "tier", "--release")
    assert (result.code, "segments are released in records" in result.err) == (2, True)
    record = file_of(tmp_path, MIXED)
    result = offload("rollback", "delete", tmp_path / "tier", "--release", "--records", record)
    assert result.code != 0
    assert keys(tier) == before


def test_records_that_are_none_are_an_error_and_nothing_goes(offload, tier, tmp_path):
    before, url = keys(tier), f"sqlite:{tmp_path}/records.db"
    with closing(SqliteStore(url, create=True)) as store:
        store.put(f"/managed-ledgers/{MANAGED_LEDGER}", b"no record at all", None)
    for command in (["plan"], ["delete", "--yes", "--accept-loss", "--audit-log", tmp_path / "audit"]):
        result = offload("rollback", *command, tmp_path / "tier", "--records", url)
        assert (result.code, result.out) == (2, "")
        assert "a managed ledger's record" in result.err
    assert keys(tier) == before
    assert (tmp_path / "audit").read_bytes() == b""


def test_delete_of_one_topic(offload, tier, tmp_path):
    put_segment(tier, 5, (5, 0, 1), names=NAMELESS)
    arguments = ["rollback", "delete", tmp_path / "tier", "--records", store_of(tmp_path, MIXED)]
    arguments += ["--accept-loss", "--yes", "--audit-log", tmp_path / "audit"]
    before = keys(tier)
    unknown = offload(*arguments, "-t", "acme/cold/orders", "-t", "acme/cold/others")
    assert (unknown.code, unknown.out, keys(tier)) == (2, "", before)
    assert "no record and no object is of this topic: found persistent://acme/cold/others" in unknown.err
    assert offload(*arguments, "-t", "acme/cold/orders").code == 0
    left = {key for key in keys(tier) if "-ledger-" not in key}
    assert left == {*map(str, map(uuid_of, (3, 5, 9))), f"{uuid_of(5)}-index"}


def test_a_failure_says_what_was_deleted_and_where_it_failed(offload, tier, tmp_path):
    faults = "fault-plan:faults=fail-before delete #3"  # which object that is of depends: several go at once
    put_segment(tier, 3, (7, 0, 2))
    arguments = ["rollback", "delete", tmp_path / "tier", "--records", store_of(tmp_path, MIXED)]
    arguments += ["--accept-loss", "--yes", "--audit-log", tmp_path / "audit"]
    result = offload(*arguments, "--layer", faults)
    assert result.code == 2
    *rows, counts = result.out.splitlines()[1:]
    done = [row for row in rows if "  deleted  " in row]
    assert counts.startswith(f"{len(done)} streaming objects, ")
    assert len([row for row in rows if "  not deleted yet  " in row]) == 3 - len(done) > 0
    assert re.search(r"object 00000000-0000-4000-8000-00000000000[123]\)", result.err)
    for row in done:
        assert row.split()[0] not in keys(tier)
    assert offload(*arguments).code == 0
    assert {key for key in keys(tier) if "-ledger-" not in key} == {str(uuid_of(9))}
