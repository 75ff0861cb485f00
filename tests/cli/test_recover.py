"""`offload recover`: what it says, what it writes, and how it ends."""

import json
from contextlib import closing

import pytest
from commands import HOW_TO_DO_IT
from scenes.rollbacks import NAMELESS, info_in, put_segment, put_whole, store_of
from tiers import MANAGED_LEDGER, TOPIC

from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import open_store


@pytest.fixture
def tier(tmp_path):
    """Ledgers 5 and 6 in a segment, 8 in an object of its own."""
    with open_store(tmp_path / "tier") as store:
        put_segment(store, 1, (5, 0, 3), (6, 0, 4))
        put_whole(store, 2, 8, 2)
        yield store


def test_it_says_what_it_would_do_and_what_is_not_known(offload, tier, tmp_path):
    result = offload("recover", tmp_path / "tier")
    assert (result.code, result.err) == (1, "")
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert lines[0] == "acme/cold/orders: 3 ledgers, 9 entries: would be written"
    assert lines[1].startswith("open-ledger ledger 5, entry 2 it was open when it was offloaded last")
    assert "1 topic: would be written" in lines
    assert lines[-1] == "Records need a place: --into URL."
    into = offload(
        "recover", tmp_path / "tier", "--into", f"sqlite:{tmp_path}/r.db", "--into-option", "create=true"
    )
    assert (into.code, into.err) == (1, HOW_TO_DO_IT)
    assert "need a place" not in into.out
    assert "cursors and subscriptions: where consumers were" in lines
    assert list(tmp_path.iterdir()) == [tmp_path / "tier"]


def test_it_writes_once_and_says_the_second_time_that_all_is_there(offload, tier, tmp_path):
    url, log = f"sqlite:{tmp_path}/records.db", tmp_path / "audit.jsonl"
    given = ("recover", tmp_path / "tier", "--into", url, "--into-option", "create=true")
    result = offload(*given, "--yes", "--audit-log", log, "--json", "--hot", tmp_path / "hot")
    assert (result.code, result.err) == (0, "")
    said = result.json
    (topic,) = said["topics"]
    assert (topic["topic"], topic["outcome"], topic["written"]) == (TOPIC, "new", True)
    assert [each["ledger"] for each in topic["ledgers"]] == [5, 6, 8]
    assert {each["code"] for each in topic["unknown"]} == {"open-ledger"}
    assert said["never_known"]
    assert said["approximate"]
    (line,) = map(json.loads, log.read_text().splitlines())
    assert (line["action"], line["managed_ledger"]) == ("record", MANAGED_LEDGER)
    assert line["after"] == "3 ledgers, 9 entries"
    assert [each.ledger_id for each in info_in(url).ledgers] == [5, 6, 8]
    with closing(FileLedgerStore(tmp_path / "hot")) as hot, closing(hot.create({})) as writer:
        assert writer.ledger_id > 8
    again = offload(*given, "--yes", "--audit-log", log)
    assert again.code == 0
    assert again.out.startswith("acme/cold/orders: 3 ledgers, 9 entries: there already\n")
    assert len(log.read_text().splitlines()) == 1
    verified = offload("verify", tmp_path / "tier", "--records", url, "--deep")
    assert verified.code == 0, verified.out


def test_another_record_stays_and_the_exit_code_says_so(offload, tier, tmp_path):
    url = store_of(tmp_path, ManagedLedgerInfo())
    result = offload("recover", tmp_path / "tier", "--into", url, "--yes", "--audit-log", tmp_path / "log")
    assert result.code == 1
    assert "another record is there, and stays" in result.out
    assert info_in(url) == ManagedLedgerInfo()


def test_what_is_in_no_record_makes_it_end_with_1(offload, tier, tmp_path):
    put_segment(tier, 3, (9, 0, 2), names=NAMELESS)
    into = ("--into", f"sqlite:{tmp_path}/records.db", "--into-option", "create=true")
    into += ("--yes", "--audit-log", str(tmp_path / "log"))
    result = offload("recover", tmp_path / "tier", *into)
    assert result.code == 1
    assert "(unknown topic): 0 ledgers, 0 entries: no record" in result.out
    assert offload("recover", tmp_path / "tier", *into, "--topic", "acme/cold/orders").code == 0


@pytest.mark.parametrize("given", [["--yes"], ["--yes", "--into", "sqlite:x.db"], ["--topic", "nonsense"]])
def test_wrong_use_is_told(offload, tier, tmp_path, given):
    assert offload("recover", tmp_path / "tier", *given).code == 2


def test_nothing_to_recover_is_said(offload, tmp_path):
    result = offload("recover", tmp_path)
    assert (result.code, result.out.splitlines()[0]) == (0, "no topics: nothing to be recovered was found")
