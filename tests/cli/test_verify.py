"""`offload verify`: what it shows, the report for machines, how it ends."""

import json
import os

import pytest
from commands import HOW_TO_DO_IT
from entries import entry, pip17_object
from records import MANAGED_LEDGERS
from tiers import Names, lay_out, lay_out_case

from offload_core.maintenance.verify import Code

PAYLOADS = [entry(b"%04d" % i * 20) for i in range(40)]
LEDGER = pip17_object(PAYLOADS, ledger_id=7)


@pytest.fixture
def damaged(tmp_path):
    """A tier in which one object has a flipped bit in its last entry; and its key."""
    lay_out(tmp_path, LEDGER, attempt=1)
    key = lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=8), attempt=2)
    data = bytearray((tmp_path / key).read_bytes())
    data[-1] ^= 1
    (tmp_path / key).write_bytes(data)
    return tmp_path, key


def test_a_sound_tier(offload, broker):
    result = offload("verify", broker, "--deep", "--records", MANAGED_LEDGERS)
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "23 objects, 19.9 MB; 38 ledgers of 14 topics by their records; 23 read to the last byte: 13,981 entries, "
        "0 of them without a checksum: nothing is wrong\n"
    )


def test_an_empty_tier(offload, tmp_path):
    result = offload("verify", tmp_path, "--allow-empty")
    assert (result.code, result.err) == (0, "")
    assert result.out == "0 objects, 0 bytes: there is nothing to verify\n"
    report = offload("verify", tmp_path, "--json").json
    assert (report["findings"], report["summary"]["objects"]) == ([], 0)


def test_a_finding_has_its_place_its_meaning_and_what_helps(offload, damaged):
    root, key = damaged
    assert offload("verify", root).code == 0
    result = offload("verify", root, "--deep")
    assert result.code == 1
    what, heading, finding, helps, _, summary = result.out.splitlines()
    assert what == f"error: message.checksum: {Code.MESSAGE_CHECKSUM.meaning}"
    assert heading.split() == ["topic", "object", "where", "expected", "found"]
    assert finding.startswith(f"acme/cold/orders  {key}  ledger 8, entry 39, byte ")
    assert helps == f"What to do: {Code.MESSAGE_CHECKSUM.helps}."
    assert summary.endswith(": 1 error, 0 warnings")


def test_errors_come_first_by_kind_and_only_of_the_topics_that_are_wanted(offload, tmp_path):
    for number, topic in enumerate(("a", "b", "c")):
        names = Names(managed_ledger=f"acme/cold/persistent/{topic}")
        lay_out(tmp_path, LEDGER, attempt=10 * number, names=names)
        lay_out(tmp_path, LEDGER, attempt=10 * number + 1, names=names)  # the older copy is superseded
        lay_out(tmp_path, LEDGER, attempt=10 * number + 2, names=names, parts=["data"])
    lines = offload("verify", tmp_path).out.splitlines()
    kinds = [line.split(": ")[0] for line in lines if line.startswith(("error: ", "warning: "))]
    assert kinds == ["error", "warning"]
    assert lines[-1].endswith("3 errors, 3 warnings")
    [shown] = offload("verify", tmp_path, "--limit", "1").out.split("What to do")[:-1]
    assert "error: object.no-index" in shown
    report = offload("verify", tmp_path, "--topic", "acme/cold/b", "--json").json
    assert {each["topic"] for each in report["findings"]} == {"persistent://acme/cold/b"}
    assert len(report["findings"]) == 2
    assert offload("verify", tmp_path, "--topic", "acme/cold/none").code == 2


def test_the_report_for_machines(offload, damaged):
    root, key = damaged
    result = offload("verify", root, "--deep", "--json")
    assert result.code == 1
    report = result.json
    said = [report[name] for name in ("version", "tier", "deep", "records")]
    assert said == [1, f"file://{root}", True, False]
    (finding,) = report["findings"]
    where = [finding[name] for name in ("key", "ledger", "entry", "block", "topic")]
    assert where == [key, 8, 39, None, "persistent://acme/cold/orders"]
    assert (finding["code"], finding["severity"]) == ("message.checksum", "error")
    assert finding["expected"].startswith("CRC-32C ")
    assert report["failures"] == []
    counts = [report["summary"][name] for name in ("codes", "objects", "entries", "errors")]
    assert counts == [{"message.checksum": 1}, 2, 80, 1]


def test_warnings_may_pass(offload, tmp_path):
    lay_out(tmp_path, LEDGER, attempt=1)
    key = lay_out(tmp_path, LEDGER, attempt=2)
    os.utime(tmp_path / f"{key}-index", (2e9, 2e9))
    result = offload("verify", tmp_path)
    assert (result.code, "ledger.superseded" in result.out) == (1, True)
    assert offload("verify", tmp_path, "--fail-on", "error").code == 0


def test_what_cannot_be_verified_is_named(offload, damaged):
    faults = "fault-plan:faults=fail-before stat #1"
    result = offload("verify", damaged[0], "--deep", "--layer", faults)
    assert result.code == 2
    assert "not verified" in result.err
    assert "-ledger-" in result.err
    assert "1 error, 0 warnings; 1 object could not be verified" in result.out


def test_a_tier_that_is_not_there_cannot_be_verified(offload, tmp_path):
    (tmp_path / "file").write_text("")
    assert offload("verify", tmp_path / "file").code == 2
    assert offload("verify", tmp_path, "--records", tmp_path / "nothing").code == 2


def test_only_so_many_are_shown(offload, tmp_path):
    for attempt in range(3):
        lay_out(tmp_path, LEDGER, attempt=attempt, parts=["data"])
    result = offload("verify", tmp_path, "--limit", "1")
    assert result.out.count("-ledger-7") == 1
    assert result.err == "2 more findings; ask with --limit, or for all with --json\n"
    assert result.out.splitlines()[-1].endswith("3 errors, 0 warnings")


def test_a_state_passes_over_what_was_sound(offload, damaged, tmp_path):
    root, _ = damaged
    state = tmp_path.parent / f"{tmp_path.name}.state"
    first = offload("verify", root, "--deep", "--state", state)
    assert "2 read to the last byte: 80 entries" in first.out
    second = offload("verify", root, "--deep", "--state", state)
    assert (second.code, "1 read to the last byte, 1 before: 40 entries" in second.out) == (1, True)
    state.write_text("a picture of a cat" * 100)
    broken = offload("verify", root, "--deep", "--state", state)
    assert (broken.code, "this is no file of verified objects" in broken.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        *((given, "--deep with --seal") for given in (["--state", "x"], ["--seal"], ["--by-checksums"])),
        *(
            (given, "--deep with --master")
            for given in (["--workers", "2"], ["--processes"], ["--master", "x"])
        ),
        (["--yes"], "only --seal writes anything"),
        (["--audit-log", "audit.jsonl"], "only --seal writes anything"),
        (["--deep", "--yes"], "only --seal writes anything"),
        (["--deep", "--seal", "--yes"], "--audit-log FILE"),
        (["--deep", "--master", "local[1]", "--workers", "2"], "--master without --workers, --processes"),
    ],
)
def test_wrong_use(offload, tmp_path, arguments, said):
    result = offload("verify", tmp_path, *arguments)
    assert (result.code, said in result.err) == (2, True), result.err


@pytest.mark.long
def test_as_a_process_with_processes(offload_process, tmp_path):
    lay_out_case(tmp_path, "java-damaged", "st-drift")
    result = offload_process("verify", tmp_path, "--deep", "--processes", "--workers", "1", "--json")
    assert result.code == 1
    codes = result.json["summary"]["codes"]
    assert {"object.wrong-length", "entry.bad-length", "block.bad-magic"} <= set(codes)


# --- checksums ---------------------------------------------------------------------------------------


def test_sealing_writes_checksums_and_says_so_before(offload, tmp_path):
    root, log = tmp_path / "tier", tmp_path / "audit.jsonl"
    key = lay_out(root, LEDGER, attempt=1)
    dry = offload("verify", root, "--deep", "--seal")
    assert (dry.code, dry.err) == (1, HOW_TO_DO_IT)
    assert dry.out.endswith("0 of them without a checksum; 1 would get checksums: nothing is wrong\n")
    arguments = ("verify", root, "--deep", "--seal", "--yes", "--audit-log", log)
    assert offload(*arguments).out.endswith("; 1 got checksums: nothing is wrong\n")
    (line,) = map(json.loads, log.read_text().splitlines())
    assert (line["action"], line["key"], line["ledger_id"]) == ("write", f"{key}-checksums", 7)
    assert offload(*arguments).out.endswith("; 1 with checksums beside them: nothing is wrong\n")
    summary = offload("verify", root, "--json").json["summary"]
    assert (summary["with_checksums"], summary["sealed"]) == (1, 0)


def test_a_sealed_block_that_was_changed_is_found(offload, tmp_path):
    root = tmp_path / "tier"
    key = lay_out(root, pip17_object([b"plain"] * 5, ledger_id=7), attempt=1)
    offload("verify", root, "--deep", "--seal", "--yes", "--audit-log", tmp_path / "audit.jsonl")
    (root / key).write_bytes((root / key).read_bytes().replace(b"plain", b"plane"))
    result = offload("verify", root, "--deep")
    assert result.code == 1
    assert "error: checksums.block: " in result.out
    assert f"{key}  ledger 7, block 1, byte 0" in result.out
