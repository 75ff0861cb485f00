"""`offload gc` and `offload delete`: what they find, delete, say and leave, over what a broker offloaded."""

import json
import os
import re
import shutil
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from commands import HOW_TO_DO_IT, configuration_file, opened_topic
from records import MANAGED_LEDGERS

from offload_core.metadata.catalogue.topics import managed_ledger_of_topic, parse_topic
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.storage.tier import Tier
from offload_core.writing.managed_ledger import RolloverPolicy
from offload_hooks.errors import StoreTimeoutError
from pulsar_offload import open_tier

DAY = 86_400


def make_older(root, days=3):
    """What lies in a folder was written some days ago."""
    then = datetime.now(UTC) - timedelta(days=days)
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (then.timestamp(), then.timestamp()))


@pytest.fixture
def tier(broker, tmp_path):
    """A broker's objects, three days old."""
    root = shutil.copytree(broker, tmp_path / "tier")
    make_older(root)
    return root


@pytest.fixture
def url(tmp_path):
    """The broker's records, in a store."""
    found = f"sqlite:{tmp_path}/records.db"
    with closing(SqliteStore(found, create=True)) as store:
        for path in MANAGED_LEDGERS.rglob("*.val"):
            name = "/".join(path.relative_to(MANAGED_LEDGERS).with_suffix("").parts)
            store.put(f"/managed-ledgers/{name}", path.read_bytes(), None)
    return found


def forget(url, topic):
    """Delete a topic's record, as a broker does."""
    name = managed_ledger_of_topic(parse_topic(topic))
    with closing(SqliteStore(url)) as store:
        records = ManagedLedgerRecords(store)
        known = records.read(name)
        assert known is not None
        records.delete(name, known)


def keys_of(root):
    with open_tier(root) as tier:
        return {each.key for each in tier.store.list_objects()}


def keys_of_topic(root, name):
    """The objects that say that they are of this managed ledger."""
    with open_tier(root) as tier:
        return {
            each.key
            for each in tier.store.list_objects()
            if tier.store.stat(each.key).user_metadata.get("managedledgername") == name
        }


def test_of_a_brokers_bucket_nothing_is_garbage(offload, tier, url):
    result = offload("gc", tier, "--records", url, "--json")
    said = result.json
    assert (result.code, said["garbage"], said["summary"]["kept"]) == (0, [], {})
    assert offload("gc", tier, "--records", url).out.splitlines()[-1] == "no garbage was found"
    assert said["summary"]["topics"] == 14
    assert said["dry_run"]


def test_of_a_deleted_topic_exactly_its_objects_go(offload, tier, url, tmp_path):
    before, orphans = keys_of(tier), keys_of_topic(tier, "acme/cold/persistent/json")
    assert orphans
    forget(url, "acme/cold/json")
    dry = offload("gc", tier, "--records", url)
    assert (dry.code, dry.err, keys_of(tier)) == (1, HOW_TO_DO_IT, before)
    assert len(re.findall("^deleted-topic ", dry.out, re.MULTILINE)) == len(orphans) // 2
    assert dry.out.splitlines()[-1].endswith("; nothing was")
    log = tmp_path / "audit.jsonl"
    done = offload("gc", tier, "--records", url, "--yes", "--audit-log", log)
    assert (done.code, done.err, keys_of(tier)) == (0, "", before - orphans)
    assert f"{len(orphans) // 2} deleted, " in done.out
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["action"] for line in lines] == ["write"] + ["delete"] * (len(orphans) // 2)
    assert {line["managed_ledger"] for line in lines[1:]} == {"acme/cold/persistent/json"}
    again = offload("gc", tier, "--records", url, "--yes", "--audit-log", log)
    assert (again.code, again.out.splitlines()[-1]) == (0, "0 deleted, 0 bytes; 0 left")
    assert offload("verify", tier, "--records", url).code == 0


def test_only_a_report_by_files(offload, tier, tmp_path):
    before = keys_of(tier)
    result = offload("gc", tier, "--records", MANAGED_LEDGERS)
    assert (result.code, result.err) == (0, "")
    assert (result.code, "nothing is deleted by this: files are a copy" in result.out) == (0, True)
    log = tmp_path / "audit"
    result = offload("gc", tier, "--records", MANAGED_LEDGERS, "--yes", "--audit-log", log)
    assert (result.code, result.out, keys_of(tier)) == (2, "", before)
    assert "by these records nothing is deleted: files are a copy" in result.err
    assert not log.exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "only records tell which copies are needed: expected --records URL"),
        (["--yes"], "each change is recorded: expected --audit-log FILE"),
        (["--grace", "59m"], "younger than an hour may be needed in a moment"),
        (["--grace", "soon"], "this is not a duration"),
        (["--grace", "-1"], "--grace is no duration"),
        (["--clock-skew", "-5"], "--clock-skew is no duration"),
        (["--namespace", "acme"], "this is no namespace"),
        (["--moved-to-option", "a=b"], "options without a tier: expected --moved-to URL"),
    ],
)
def test_wrong_use(offload, tier, url, arguments, why):
    records = ["--records", url] if arguments else []
    result = offload("gc", tier, *records, *arguments)
    assert (result.code, result.out) == (2, "")
    assert why in result.err


def test_options_say_what_is_looked_for(offload, tier, url):
    forget(url, "acme/cold/json")
    forget(url, "acme/cold/avro")

    def found(*arguments):
        result = offload("gc", tier, "--records", url, "--json", *arguments)
        return {each["topic"] for each in result.json["garbage"]}

    json_topic, avro_topic = "persistent://acme/cold/json", "persistent://acme/cold/avro"
    assert found() == {json_topic, avro_topic}
    assert found("--topic", "acme/cold/json") == {json_topic}
    assert found("--namespace", "acme/cold") == {json_topic, avro_topic}
    assert found("--namespace", "acme/others") == set()
    assert found("--grace", "4d") == set()
    assert found("--grace", "0", "--accept-short-grace") == {json_topic, avro_topic}
    assert len(found("--limit", "1")) == 1
    assert found("--clock-skew", "3d") == set()
    assert found("--prefix", "folder") == set()


def test_a_place_where_nothing_was_moved_to_is_said(offload, tier, url, tmp_path):
    missing = offload("gc", tier, "--records", url, "--moved-to", tmp_path / "missing")
    assert (missing.code, missing.out) == (2, "")
    assert "missing" in missing.err
    (tmp_path / "empty").mkdir()
    empty = offload("gc", tier, "--records", url, "--moved-to", tmp_path / "empty")
    assert (empty.code, "no offloaded object under" in empty.err) == (0, True)


def test_the_exit_code_tells_of_garbage_beyond_the_limit(offload, tier, url, tmp_path):
    forget(url, "acme/cold/json")
    forget(url, "acme/cold/avro")
    total = len(offload("gc", tier, "--records", url, "--json").json["garbage"])
    arguments = ("--records", url, "--yes", "--audit-log", tmp_path / "log", "--limit")
    none = offload("gc", tier, *arguments, 0)
    assert (none.code, offload("gc", tier, "--records", url, "--limit", 0).code) == (1, 1)
    some = offload("gc", tier, *arguments, total - 1)
    assert some.code == 1
    assert "more is left, beyond the limit" in some.out
    rest = offload("gc", tier, *arguments, 1, "--json")
    assert (rest.code, rest.json["summary"]["is_limited"]) == (0, False)
    assert offload("gc", tier, "--records", url).code == 0


def test_what_a_crash_left_in_the_drivers_own_folder_goes(offload, tier, url, tmp_path):
    staging = tier / ".offload-uploads"
    left = staging / f"{'a' * 32}.json.tmp"
    left.write_bytes(b'{"version": 1, "ke')
    then = datetime.now(UTC).timestamp() - 3 * DAY
    os.utime(left, (then, then))
    with open_tier(tier) as reader:
        assert list(reader.store.list_uploads("a")) == [], "its key is not known"
    (found,) = offload("gc", tier, "--records", url, "--json").json["garbage"]
    assert (found["kind"], found["code"]) == ("upload", "upload.stale")
    assert (found["key"], found["upload"]) == ("", "a" * 32)
    assert offload("gc", tier, "--records", url, "--yes", "--audit-log", tmp_path / "log").code == 0
    assert not left.exists()


def test_a_failure_of_one_object_is_said_and_the_others_go(offload, tier, url, tmp_path):
    forget(url, "acme/cold/json")
    orphans = keys_of_topic(tier, "acme/cold/persistent/json")
    faults = "fault-plan:faults=fail-before delete #2"
    arguments = ["gc", tier, "--records", url, "--yes", "--audit-log", tmp_path / "log"]
    result = offload(*arguments, "--layer", faults)
    assert result.code == 2
    assert orphans & keys_of(tier)
    assert offload(*arguments).code == 0
    assert not orphans & keys_of(tier)


# --- delete ----------------------------------------------------------------------------------------


def test_a_topic_that_lives_is_not_deleted(offload, tier, url, tmp_path):
    before = keys_of(tier)
    for what in ("acme/cold/json", "acme/cold"):
        arguments = ["delete", tier, what, "--records", url, "--yes", "--audit-log", tmp_path / "log"]
        result = offload(*arguments)
        assert (result.code, result.out, keys_of(tier)) == (2, "", before)
        assert "there is a managed ledger of persistent://acme/cold/" in result.err
    assert not (tmp_path / "log").exists()


def test_what_is_left_of_a_deleted_topic_goes_with_a_receipt(offload, tier, url, tmp_path):
    before, orphans = keys_of(tier), keys_of_topic(tier, "acme/cold/persistent/json")
    forget(url, "acme/cold/json")
    forget(url, "acme/cold/avro")
    receipt = tmp_path / "receipt.json"
    arguments = ["delete", tier, "acme/cold/json", "--records", url]
    dry = offload(*arguments)
    assert (dry.code, dry.err, keys_of(tier)) == (1, HOW_TO_DO_IT, before)
    assert dry.out.splitlines()[-2:] == [
        "2 would be deleted, 544.3 kB; nothing was",
        "they have 1,260 entries of 2 ledgers",
    ]
    assert offload(*arguments, "--json").err == ""
    assert offload(*arguments, "--receipt", receipt).code == 2
    arguments += ["--yes", "--audit-log", tmp_path / "log", "--receipt", receipt]
    result = offload(*arguments)
    assert (result.code, result.err) == (0, "a last listing found nothing of it\n")
    assert keys_of(tier) == before - orphans
    said = json.loads(receipt.read_text())
    assert (said["version"], said["what"], said["records"]) == (1, "acme/cold/json", url)
    assert {each["key"] for each in said["deleted"]} == {key for key in orphans if "-index" not in key}
    assert said["count"] == len(orphans) // 2
    assert said["size_bytes"] == sum(each["size_bytes"] for each in said["deleted"]) > 0
    assert (said["is_clean"], said["left"], said["left_count"], said["unknown"]) == (True, [], 0, 0)
    again = offload(*arguments)
    assert (again.code, "a receipt is not overwritten" in again.err) == (2, True)


def test_a_receipt_says_what_is_left(offload, tier, url, tmp_path):
    forget(url, "acme/cold/json")
    for path in tier.glob("*"):
        if path.is_file():
            os.utime(path)  # a moment ago
    receipt = tmp_path / "receipt.json"
    log = ["--yes", "--audit-log", tmp_path / "log", "--receipt", receipt]
    result = offload("delete", tier, "acme/cold/json", "--records", url, *log)
    assert result.code == 1
    said = json.loads(receipt.read_text())
    assert (said["is_clean"], said["count"]) == (False, 0)
    copies = len(keys_of_topic(tier, "acme/cold/persistent/json")) // 2
    assert len(said["left"]) == said["left_count"] == copies


def test_a_managed_ledger_of_ours_goes_with_all_its_copies(offload, tmp_path):
    config = configuration_file(tmp_path)
    rollover = RolloverPolicy(max_entries=1, min_age_s=0)
    with opened_topic(config, "acme/n/persistent/orders", rollover=rollover) as (_, topic):
        for _ in range(3):
            topic.add_entry(bytes(100))
    assert offload("topics", "offload", "acme/n/orders", "--config", config).code == 0
    root = tmp_path / "cold"
    assert len(keys_of(root)) == 6
    url, receipt = f"sqlite:{tmp_path}/records.db", tmp_path / "receipt.json"
    arguments = ["delete", root, "acme/n/orders", "--records", url, "--managed-ledger", "--config", config]
    dry = offload(*arguments)
    assert (dry.code, len(keys_of(root))) == (1, 6)
    told = "its managed ledger would be deleted, with all copies of its 3 ledgers: 3 entries, 300 bytes of payloads"
    assert f"acme/n/orders: {told}\n" in dry.out
    done = offload(*arguments, "--yes", "--audit-log", tmp_path / "log", "--receipt", receipt, "--json")
    told = done.json
    assert (told["dry_run"], told["managed_ledgers"]) == (False, ["persistent://acme/n/orders"])
    assert (done.code, keys_of(root)) == (0, set()), done.err
    said = json.loads(receipt.read_text())
    assert said["is_clean"]
    assert [each["kind"] for each in said["deleted"]].count("cold") == 3


def test_what_failed_is_said_by_delete_as_well(offload, tier, url, monkeypatch):
    forget(url, "acme/cold/json")
    slow = min(keys_of_topic(tier, "acme/cold/persistent/json"))
    stat = Tier.stat

    def stat_but_one(self, key):
        if key == slow:
            raise StoreTimeoutError("no answer", key=key)
        return stat(self, key)

    monkeypatch.setattr(Tier, "stat", stat_but_one)
    for name, *arguments in (["gc"], ["delete", "acme/cold/json"]):
        result = offload(name, tier, *arguments, "--records", url)
        assert (result.code, f"offload: failed: no answer (object {slow})" in result.err) == (2, True), name
