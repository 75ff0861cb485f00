"""`offload repair`: what it shows, the report for machines, how it ends."""

import json
import subprocess
from contextlib import closing
from dataclasses import replace

import pytest
from commands import configuration_file, opened_topic
from damage.scenes import first_segment
from entries import entry, pip17_object
from tiers import TOPIC, lay_out

from offload_core.metadata.records import EntryPosition
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.storage.tier import open_store
from offload_core.writing.managed_ledger import RolloverPolicy

PAYLOADS = [entry(b"%04d" % i * 20) for i in range(40)]
LEDGER = pip17_object(PAYLOADS, ledger_id=7, max_block_bytes=1000)


@pytest.fixture
def damaged(tmp_path):
    """A tier of two ledgers: of one an entry is damaged, the other's index is gone a long time; their keys."""
    root = tmp_path / "tier"
    one = lay_out(root, LEDGER, attempt=1)
    data = bytearray((root / one).read_bytes())
    data[LEDGER.data.index(PAYLOADS[5]) + 60] ^= 1
    (root / one).write_bytes(data)
    two = lay_out(root, pip17_object(PAYLOADS, ledger_id=8), attempt=2, parts=("data",))
    return root, one, two


def keys(root):
    with open_store(root) as tier:
        return {listed.key for listed in tier.list_objects()}


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(offload, damaged):
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


def test_what_is_done_stands_in_the_audit_log_and_is_not_done_again(offload, damaged, tmp_path):
    root, one, two = damaged
    log = tmp_path / "audit.jsonl"
    result = offload("repair", root, "--yes", "--audit-log", log, "--quarantine", "--json")
    assert result.code == 0, result.err
    report = result.json
    by_key = {each["key"]: each for each in report["repairs"]}
    assert by_key[two]["action"] == "rebuild-index"
    assert by_key[two]["written"] == [f"{two}-index"]
    salvaged = by_key[one]
    assert salvaged["written"] == [salvaged["target"], f"{salvaged['target']}-index"]
    assert salvaged["moved"] == [f"quarantine/{one}.quarantined", f"quarantine/{one}-index.quarantined"]
    assert (salvaged["entries"], salvaged["lost"], salvaged["lost_entries"]) == (39, 1, "1 entries: 7:5")
    logged = [json.loads(line) for line in log.read_text().splitlines()]
    assert [each["action"] for each in logged] == ["write", "write", "write", "move", "move", "write"]
    again = offload("repair", root, "--yes", "--audit-log", log)
    assert again.code == 1  # lost entries stay lost
    assert "ledger.lost-entries" in again.out
    assert len(log.read_text().splitlines()) == len(logged)


def test_only_what_is_named_is_repaired(offload, damaged, tmp_path):
    root, _, two = damaged
    log, before = tmp_path / "audit.jsonl", keys(root)
    assert offload("repair", root, f"{two}-index", "--yes", "--audit-log", log).code == 0
    assert keys(root) == before | {f"{two}-index"}
    assert offload("verify", root, "--prefix", two, "--deep").code == 0


def test_a_copy_that_is_right_is_told_and_the_damaged_one_put_aside(offload, damaged, tmp_path):
    root, one, _ = damaged
    other = lay_out(root, LEDGER, attempt=3)
    told = offload("repair", root, one)
    assert told.code == 1
    assert "readers without records read the newest copy" in told.out
    log = tmp_path / "audit.jsonl"
    result = offload("repair", root, one, "--quarantine", "--yes", "--audit-log", log, "--json")
    (repair,) = result.json["repairs"]
    assert (repair["action"], repair["other"], repair["target"]) == ("other-copy", other, None)
    assert len(repair["moved"]) == 2
    assert offload("verify", root, "--prefix", other, "--deep").code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--yes",), "--audit-log FILE"),
        (("--switch-records",), "--records URL"),
        (("--offload-again",), "--switch-records"),
        (("--accept-loss",), "--switch-records"),
        (("no-key",), "no key of an offloaded object"),
    ],
)
def test_wrong_use(offload, tmp_path, arguments, said):
    result = offload("repair", tmp_path, *arguments)
    assert result.code == 2
    assert said in result.err


def test_a_sound_tier_needs_nothing(offload, tmp_path):
    lay_out(tmp_path, LEDGER)
    result = offload("repair", tmp_path)
    assert (result.code, result.out) == (0, "nothing is damaged\n")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("11111111-2222-3333-4444-555555555555-ledger-7",), "11111111-2222-3333-4444-555555555555-ledger-7"),
        (("--ledger", "4711"), "ledger 4711"),
        (("--topic", "acme/cold/others"), "persistent://acme/cold/others"),
    ],
)
def test_what_is_named_must_be_there(offload, damaged, arguments, named):
    for more in ((), ("--json",)):
        result = offload("repair", damaged[0], *arguments, *more)
        assert (result.code, result.out) == (2, "")
        assert named in result.err
    assert offload("repair", damaged[0], "--ledger", "7", "--ledger", "8").code == 1


def test_of_an_object_that_is_gone_the_next_step_is_named(offload, tmp_path):
    key = lay_out(tmp_path, LEDGER)
    (tmp_path / str(key)).unlink()
    for more, step in ((), ", or put it aside by --quarantine"), (("--quarantine",), ""):
        shown = offload("repair", tmp_path, *more)
        assert shown.code == 1
        assert f"{key}: put the object back from a backup or a versioned bucket{step}\n" in shown.out


def test_a_key_that_was_put_aside_is_no_error(offload, damaged, tmp_path):
    root, one, _ = damaged
    for _ in range(2):
        done = offload("repair", root, one, "--quarantine", "--yes", "--audit-log", tmp_path / "audit.jsonl")
        assert done.code in (0, 1), done.err


def test_a_streaming_objects_ledgers_are_there(offload, tmp_path):
    lay_out(tmp_path, first_segment())
    assert offload("repair", tmp_path, "--ledger", "7").code == 0
    assert offload("repair", tmp_path, "--ledger", "9").code == 2


@pytest.mark.long
def test_json_on_a_terminal_is_json_only(on_a_terminal, damaged):
    code, said = on_a_terminal("repair", damaged[0], "--json", stderr=subprocess.DEVNULL)
    assert (code, len(json.loads(said)["repairs"])) == (1, 2)
    assert "\x1b" not in said


def test_one_object_that_fails_does_not_keep_the_others(offload, damaged, tmp_path):
    root, one, two = damaged
    fault = "fault-plan:faults=fail-before begin_data #1"
    log = tmp_path / "audit.jsonl"
    result = offload("repair", root, "--layer", fault, "--yes", "--audit-log", log, "--json")
    assert result.code == 1
    by_key = {each["key"]: each for each in result.json["repairs"]}
    assert by_key[one]["error"] is not None
    assert one in by_key[one]["error"]
    assert by_key[one]["is_done"] is False
    assert (by_key[two]["error"], by_key[two]["is_done"]) == (None, True)


def test_so_many_at_once_as_one_likes(offload, damaged):
    plain = offload("repair", damaged[0], "--topic", TOPIC, "--json")
    chosen = offload("repair", damaged[0], "--json", "--workers", "2")
    assert (chosen.code, chosen.out, len(plain.json["repairs"])) == (plain.code, plain.out, 2)


# --- with the service's hot tier ----------------------------------------------------------------------


@pytest.fixture
def service(tmp_path):
    """A topic of two ledgers that are offloaded, of one the cold copy is damaged: configuration, tier, its key."""
    config = configuration_file(tmp_path)
    rollover = RolloverPolicy(max_entries=3, min_age_s=0)
    with opened_topic(config, "acme/n/persistent/orders", rollover=rollover) as (_, topic):
        for number in range(7):
            topic.add_entry(entry(b"%04d" % number * 30))
        topic.offload_prefix(EntryPosition(topic.read_info().in_order[2].ledger_id, 0))
        context = topic.read_info().in_order[0].context
        assert context is not None
        key = f"{context.uuid}-ledger-{topic.read_info().in_order[0].ledger_id}"
    data = bytearray((tmp_path / "cold" / key).read_bytes())
    data[200] ^= 1
    (tmp_path / "cold" / key).write_bytes(data)
    return config, tmp_path / "cold", key


def test_a_damaged_copy_is_offloaded_again_by_the_services_configuration(offload, service, tmp_path):
    config, cold, key = service
    records = f"sqlite:{tmp_path}/records.db"
    given = ("--records", records, "--switch-records", "--offload-again", "--config", config)
    dry = offload("repair", cold, *given)
    assert dry.code == 1
    assert any(key in line and "offload-again" in line for line in dry.out.splitlines())
    log = tmp_path / "repairs.jsonl"
    done = offload("repair", cold, *given, "--quarantine", "--yes", "--audit-log", log, "--json")
    assert done.code == 0, done.err
    (repair,) = done.json["repairs"]
    assert (repair["action"], repair["is_done"], len(repair["written"])) == ("offload-again", True, 2)
    assert offload("verify", cold, "--records", records, "--deep").code == 0


def test_counts_are_corrected_once_the_hot_tier_says_the_same(offload, service, tmp_path):
    config, cold, key = service
    url = f"sqlite:{tmp_path}/records.db"
    ledger_id = int(key.rpartition("-")[2]) + 1  # the sound one
    with closing(SqliteStore(url)) as store:

        def lie(info):
            ledger = info.in_order[1]
            assert ledger.ledger_id == ledger_id
            return info.with_ledger(replace(ledger, info=replace(ledger.info, entries=9, size=1)))

        ManagedLedgerRecords(store).update("acme/n/persistent/orders", lie)
    told = offload("repair", cold, "--records", url, "--topic", "acme/n/orders")
    assert "must say of ledger" in told.out
    given = ("--records", url, "--switch-records", "--ledger", ledger_id)
    log = tmp_path / "repairs.jsonl"
    without = offload("repair", cold, *given, "--yes", "--audit-log", log)
    assert (without.code, log.read_bytes()) == (1, b"")
    assert "was not asked: --config" in without.out
    done = offload("repair", cold, *given, "--config", config, "--yes", "--audit-log", log)
    assert done.code == 0, done.out
    assert "entries 9, size 1 becomes entries 3, size" in done.out
    assert len(log.read_text().splitlines()) == 1
    assert offload("repair", cold, *given, "--config", config).code == 0


def test_a_record_does_not_name_what_lacks_entries_of_the_hot_copy_unless_that_is_accepted(
    offload, service, tmp_path
):
    _, cold, key = service
    log = tmp_path / "repairs.jsonl"
    given = ("--records", f"sqlite:{tmp_path}/records.db", "--switch-records", "--yes", "--audit-log", log)
    kept = offload("repair", cold, *given, "--json")
    assert kept.code == 1
    (repair,) = kept.json["repairs"]
    assert (repair["key"], repair["action"], repair["written"]) == (key, "keep-hot", [])
    said = " ".join(repair["by_hand"])
    assert "--offload-again" in said
    assert "--accept-loss" in said
    accepted = offload("repair", cold, *given, "--accept-loss", "--json")
    (repair,) = accepted.json["repairs"]
    assert (repair["action"], repair["is_done"]) == ("salvage", True)
