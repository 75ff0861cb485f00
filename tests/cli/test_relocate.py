"""`offload relocate`: what it says, how it ends, and that readers follow: records, a mapping, or a bucket alone."""

import json
import re
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from commands import COMMAND
from golden import topic_rows
from managed_ledgers import NAME
from scenes.moves import MovedTopic
from tiers import TOPIC, lay_out_broker_objects
from waiting import wait_for

from offload_core.maintenance.relocate import make_moves, throttled
from offload_core.metadata.records import (
    ManagedLedgerInfo,
    OtherRole,
    other_copies,
    pack_managed_ledger_info,
    read_copies,
)
from offload_core.writing.offload_filters import recorded_filters
from pulsar_offload import open_tier, scan

pytestmark = pytest.mark.long


@pytest.fixture
def url(tmp_path):
    """Of the records."""
    return f"sqlite:{tmp_path}/records.db"


@pytest.fixture
def world(tmp_path, url):
    """Two ledgers of one object each, and one in two segments."""
    made = MovedTopic.make(tmp_path, url)
    ledgers = [made.add_ledger(count) for count in (20, 10, 15)]
    for ledger_id in ledgers[:2]:
        made.offload(ledger_id)
    made.stream((ledgers[2], 9), (ledgers[2], 14))
    yield made
    made.records.store.close()


@pytest.fixture
def arguments(world, tmp_path):
    """Of a relocation from one folder to the other."""
    return ["relocate", str(tmp_path / "source"), "--to", str(tmp_path / "target")]


def done(tmp_path):
    return ["--yes", "--audit-log", str(tmp_path / "audit.jsonl")]


def scanned(tier, **given):
    """All entries that a scan finds there."""
    with open_tier(tier) as reader:
        rows = scan(reader, TOPIC, level="entries", **given).to_table().to_pylist()
    return [(row["__ledgerId"], row["__entryId"], row["value"]) for row in rows]


def test_a_dry_run_says_what_would_be_moved_and_moves_nothing(world, arguments, url, offload):
    before = world.info
    result = offload(*arguments, "--records", url)
    assert result.code == 1
    assert "4 copies" in result.out
    assert "would be moved; nothing was" in result.out
    assert (world.info, world.keys(world.target)) == (before, [])


def test_copies_are_moved_and_scans_by_the_records_follow(world, arguments, url, offload, tmp_path):
    before = scanned(tmp_path / "source", records=url)
    assert len(before) == 45
    result = offload(*arguments, "--records", url, *done(tmp_path), "--json")
    assert result.code == 0
    [topic] = result.json["topics"]
    assert [move["ledgers"] for move in topic["moves"]] == [[0], [1], [2], [2]]
    assert all(move["error"] is None and move["uuid"] for move in topic["moves"])
    assert scanned(tmp_path / "target", records=url) == before
    actions = [json.loads(line)["action"] for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert sorted(actions) == ["record"] * 8 + ["write"] * 4
    again = offload(*arguments, "--records", url, *done(tmp_path))
    assert (again.code, "0 of 0 copies" in again.out) == (0, True)
    assert "Already there: 3 ledgers." in again.out
    late = offload(*arguments, "--records", url, *done(tmp_path), "--delete-source", "--grace", "0")
    assert late.code == 0
    assert late.out.count("deleted") == 4
    assert world.keys(world.source) == []
    assert other_copies(world.info) == ()
    assert scanned(tmp_path / "target", records=url) == before


def test_old_copies_of_later_topics_go_though_one_stays(world, arguments, url, offload, tmp_path):
    assert offload(*arguments, "--records", url, *done(tmp_path)).code == 0
    world.records.write(NAME.replace("orders", "archive"), gone_copies(world.info), None)
    given = ["--delete-source", "--grace", "0", "--json"]
    result = offload(*arguments, "--records", url, *done(tmp_path), *given)
    said = result.json
    assert result.code == 1
    assert [each["topic"] for each in said["deleted"]] == [TOPIC] * 4
    [left] = said["not_deleted"]
    assert left["topic"] == TOPIC.replace("orders", "archive")
    assert "what took their place is not there as a whole" in left["error"]
    assert world.keys(world.source) == []
    assert other_copies(world.info) == ()
    people = offload(*arguments, "--records", url, *done(tmp_path), *given[:-1])
    assert (people.code, "archive: old copies are not deleted: " in people.err) == (1, True)


def test_copies_go_through_a_filter_and_segments_stay(world, arguments, url, offload, tmp_path):
    before = scanned(tmp_path / "source", records=url)
    through = [*arguments, "--records", url, "--filter", "transactions", "--filter-mode", "gap"]
    dry = offload(*through, "--json")
    [topic] = dry.json["topics"]
    assert [(move["ledgers"], move["how"]) for move in topic["moves"]] == [
        ([0], "filtered"),
        ([1], "filtered"),
    ]
    assert [each["ledgers"] for each in topic["left"]] == [[2]]
    assert world.keys(world.target) == []
    result = offload(*through, *done(tmp_path))
    assert result.code == 1, "segments stay"
    assert "ledger 2 stays where it is: it is in segments" in result.out
    names = [[record.name for record in recorded_filters(ledger)] for ledger in world.info.in_order]
    assert names == [["transactions"], ["transactions"], []]
    whole = offload(*through, *done(tmp_path), "--format", "pip17")
    assert whole.code == 0, whole.out + whole.err
    assert scanned(tmp_path / "target", records=url) == before


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["--filter", "transactions"], "--records with --format, --filter"),
        (["--records", "URL", "--filter", "transactions", "--filter-mode", "hole"], "hole"),
        (["--records", "URL", "--filter-mode", "gap"], "--filter with --filter-mode"),
        (["--records", "URL", "--filter", "disabled"], "disabled"),
        (["--records", "URL", "--filter", "transactions", "--merge"], "filtered first"),
    ],
)
def test_a_filter_needs_what_it_decides_by(world, arguments, url, offload, given, expected):
    result = offload(*arguments, *(url if each == "URL" else each for each in given))
    assert (result.code, expected in result.err) == (2, True), result.err
    assert world.keys(world.target) == []


def gone_copies(info):
    """The ledgers in one object, whose copies took the place of others, and are not there."""
    first = info.in_order[0]
    assert first.context is not None
    return ManagedLedgerInfo(ledgers=(replace(first, context=replace(first.context, uuid=uuid4())),))


@pytest.mark.nightly
def test_processes_that_are_killed_with_the_command_leave_nothing_that_stays(
    world, arguments, url, offload, tmp_path
):
    before = scanned(tmp_path / "source", records=url)
    given = [*arguments, "--records", url, "--processes", "--workers", "2", *done(tmp_path)]
    process = subprocess.Popen([COMMAND, *given, "--rate", "200"], stdout=subprocess.DEVNULL)
    wait_for(lambda: process.poll() is None and any(map(Path.is_file, (tmp_path / "target").rglob("*"))))
    process.kill()
    process.wait()
    begun = {copy.uuid for copy in other_copies(world.info) if copy.role is OtherRole.REPLACEMENT}
    assert begun
    assert world.read_all() == world.entries
    result = offload(*given, "--json")
    moves = result.json["topics"][0]["moves"]
    assert (result.code, [move["error"] for move in moves]) == (0, [None] * len(moves))
    assert scanned(tmp_path / "target", records=url) == before
    named = {str(uuid) for uuid in read_copies(world.info)}
    assert {key[:36] for key in world.keys(world.target)} == named
    assert begun.isdisjoint(read_copies(world.info))


def test_of_what_was_broken_off_it_does_not_say_that_it_stayed(
    world, arguments, url, offload, tmp_path, monkeypatch
):
    def broken_off(*given, **named):
        with closing(make_moves(*given, **named)) as outcomes:
            yield next(outcomes)
        raise KeyboardInterrupt

    monkeypatch.setattr("offload_core.interfaces.cli.relocate.make_moves", broken_off)
    result = offload(*arguments, "--records", url, *done(tmp_path))
    assert "1 of 4 copies" in result.out
    assert result.out.count("  broken off") == 3
    assert "others may have been moved as well" in result.out


@pytest.mark.parametrize(
    "given",
    [
        *(["--format", each] for each in ("pip17", "streaming", "mapfile")),
        ["--merge", "--segment-size", "1M"],
    ],
    ids=lambda given: given[-1],
)
def test_copies_change_their_format_or_are_merged(world, arguments, url, offload, tmp_path, given):
    before = scanned(tmp_path / "source", records=url)
    assert offload(*arguments, "--records", url, *given, *done(tmp_path)).code == 0
    assert scanned(tmp_path / "target", records=url) == before
    keys = world.keys(world.target)
    assert {"-ledger-" in key for key in keys} == {"pip17" in given}
    assert {key.startswith(f"{NAME}/") for key in keys} == {"mapfile" in given}
    assert len(keys) == 6 or "--merge" not in given


def test_old_copies_are_garbage_where_the_new_ones_can_be_seen(world, arguments, url, offload, tmp_path):
    before = scanned(tmp_path / "source", records=url)
    assert offload(*arguments, "--records", url, *done(tmp_path)).code == 0
    collect = ["gc", tmp_path / "source", "--records", url, "--not-shared", "--clock-skew", "0"]
    collect += ["--grace", "0", "--accept-short-grace", *done(tmp_path)]
    stored = world.keys(world.source)
    assert offload(*collect).code == 0
    assert world.keys(world.source) == stored
    wrong = offload(*collect, "--moved-to", tmp_path / "tarket")
    assert (wrong.code, wrong.out, "tarket does not exist" in wrong.err) == (2, "", True)
    assert offload(*collect, "--moved-to", tmp_path / "target").code == 0
    assert world.keys(world.source) == []
    assert scanned(tmp_path / "target", records=url) == before


def test_what_fails_is_said_and_the_others_are_moved(world, arguments, url, offload, tmp_path):
    damaged = next(key for key in world.keys(world.source) if key.endswith("-ledger-0"))
    path = tmp_path / "source" / damaged
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    path.write_bytes(path.read_bytes()[:300] + b"\xff" + path.read_bytes()[301:])
    result = offload(*arguments, "--records", url, *done(tmp_path))
    assert result.code == 1
    assert "ledger 0 is not moved: a new copy is not sound" in result.err
    assert "3 of 4 copies" in result.out


def test_records_that_are_not_ours_stay_and_readers_follow_a_mapping(world, arguments, offload, tmp_path):
    record = tmp_path / "a-record"
    record.write_bytes(pack_managed_ledger_info(world.info))
    records, mapping = f"{TOPIC}={record}", tmp_path / "mapping.jsonl"
    before = scanned(tmp_path / "source", records=records)
    kept = record.read_bytes()
    given = [*arguments, "--records", records, "--mapping", mapping]
    assert offload(*given).code == 1
    assert not mapping.exists()
    result = offload(*given, "--format", "streaming", *done(tmp_path))
    assert result.code == 0
    assert f"/managed-ledgers/{NAME}: ledger 0: segment " in result.out
    assert "driver local" in result.out
    assert record.read_bytes() == kept
    own = {"relocations": str(mapping)}
    assert scanned(tmp_path / "target", records=records, records_options=own) == before
    by_mapping = ("--records", records, "--records-option", f"relocations={mapping}")
    shown = offload("ls", tmp_path / "target", *by_mapping)
    assert (shown.code, "missing" in shown.out) == (0, False)
    torn = mapping.read_bytes() + b'{"version": 1, "st'
    mapping.write_bytes(torn)
    assert offload(*given, "--format", "streaming").code == 0
    assert mapping.read_bytes() == torn  # a dry run writes nothing
    again = offload(*given, "--format", "streaming", *done(tmp_path), "--json")
    assert (again.code, again.json["topics"][0]["moves"]) == (0, [])
    assert len(again.json["changes"]) == 4
    # the operator has changed the records accordingly, in part: both are right
    world.move_all(world.wanted(ledger_ids=frozenset([1])))
    record.write_bytes(pack_managed_ledger_info(world.info))
    assert scanned(tmp_path / "target", records=records, records_options=own) == before


def test_a_bucket_alone_is_copied_under_the_same_keys(offload, tmp_path):
    source, target = tmp_path / "broker", tmp_path / "there"
    target.mkdir()
    lay_out_broker_objects(source, ["avro", "batch"])
    given = ["relocate", source, "--to", target, "--topic", "acme/cold/avro"]
    dry = offload(*given)
    assert (dry.code, "missing" in dry.out, list(target.iterdir())) == (1, True, [])
    assert dry.out.splitlines()[-2:] == [
        "2 pairs of objects: 2 missing, 198.0 kB",
        "198.0 kB would be copied; nothing was",
    ]
    state = ["--state", tmp_path / "state"]
    made = offload(*given, *state, *done(tmp_path))
    assert (made.code, made.err) == (0, "")
    assert re.fullmatch(
        r"2 pairs of objects: 2 copied, 198\.0 kB, in [0-9]+\.[0-9] s", made.out.splitlines()[-1]
    )
    names = {path.name for path in source.iterdir()}
    copied = {path.name for path in target.iterdir()}
    assert 0 < len(copied) < len(names)
    with open_tier(target) as tier:
        rows = scan(tier, "acme/cold/avro").to_table()
    assert len(rows) == len(topic_rows("avro"))
    for again in (state, []):
        result = offload(*given, *again, *done(tmp_path))
        assert (result.code, "copied" in result.out, "there" in result.out) == (0, False, True)
    everything = offload("relocate", source, "--to", target, *done(tmp_path))
    assert (everything.code, {path.name for path in target.iterdir()}) == (0, names)


@pytest.mark.parametrize("half", ["data", "index"])
def test_what_lies_there_under_the_same_key_is_not_overwritten(offload, tmp_path, half):
    source, target = tmp_path / "broker", tmp_path / "there"
    lay_out_broker_objects(source, ["avro"])
    lay_out_broker_objects(target, ["avro"])
    indexes = sorted(target.glob("*-index"))
    key, name = indexes[0], indexes[1].name
    key.write_bytes(b"another")
    other = source / (name if half == "index" else name.removesuffix("-index"))
    (target / other.name).unlink()
    result = offload("relocate", source, "--to", target, *done(tmp_path))
    assert result.code == 1
    assert "conflict" in result.out
    assert key.read_bytes() == b"another"
    assert (target / other.name).read_bytes() == other.read_bytes()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--yes"], "--audit-log"),
        (["--format", "streaming"], "without records"),
        (["--merge"], "without records"),
        (["--records", "{url}", "--state", "f"], "records say what there is"),
        (["--records", "{url}", "--ledger", "1"], "--topic with --ledger"),
        (["--records", "{url}", "--mapping", "f", "--delete-source"], "a live Pulsar"),
        (["--live", "--records", "{url}"], "--live without --records"),
        (["--live", "--delete-source"], "`offload gc` deletes"),
        (["--live"], "which running cluster"),
        (["--records", "{url}", "--config", "f"], "--config with --live"),
        (["--records", "{url}", "--merge", "--format", "pip17"], "in streaming objects"),
        (["--records", "http://127.0.0.1:1"], "only reads"),
        (["--records", "{url}", "--topic", "acme/cold/none"], "persistent://acme/cold/orders, found"),
        (["--records", "{url}", "--topic", TOPIC, "--ledger", "77"], "no such ledger (ledger 77)"),
        (["--topic", "acme/cold/none"], "found acme/cold/none"),
        (["--records", f"{TOPIC}=a-file"], "go with --mapping FILE"),
        (["--master", "local[2]", "--workers", "2", "--yes", "--audit-log", "log"], "Spark decides"),
        (["--rate", "0"], "at least one byte"),
        (["--rate", "fast"], "not a size"),
        (["--topic", "orders"], "nothing is known of this topic"),
    ],
)
def test_wrong_use_is_refused(arguments, url, offload, tmp_path, monkeypatch, given, message):
    monkeypatch.chdir(tmp_path)
    result = offload(*arguments, *(each.format(url=url) for each in given))
    assert result.code == 2
    assert message in result.err


def test_a_relocation_is_throttled(world, arguments, url, offload, tmp_path, monkeypatch):
    from offload_layers.rate_limit import RateLimitLayer

    waited = []
    monkeypatch.setattr(RateLimitLayer, "sleep", staticmethod(waited.append))
    monkeypatch.setattr(RateLimitLayer, "clock", staticmethod(lambda: 0.0))
    assert offload(*arguments, "--records", url, "--rate", "1000", *done(tmp_path)).code == 0
    read = sum(world.source.stat(key).size_bytes for key in world.keys(world.source))
    assert max(waited) > read / 1000 - 1, "at the latest the last bytes came when that was due"


@pytest.mark.parametrize(
    ("given", "share"), [([], 1000), (["--processes", "--workers", "4"], 250), (["--workers", "4"], 1000)]
)
def test_each_process_has_its_share_of_a_rate(world, arguments, url, offload, monkeypatch, given, share):
    shares = []

    def note(tier, bytes_per_s):
        shares.append(bytes_per_s)
        return throttled(tier, bytes_per_s)

    monkeypatch.setattr("offload_core.interfaces.cli.relocate.throttled", note)
    assert offload(*arguments, "--records", url, "--rate", "1000", *given).code == 1
    assert shares == [share, share]
