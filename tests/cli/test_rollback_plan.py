"""`offload rollback plan` and `list`: what they say, and how they end."""

import pytest
from records import closed, managed_ledger, segment, still_open
from scenes.rollbacks import HOT, MIXED, file_of, in_one_object, streaming_tier
from tiers import TOPIC, uuid_of

from offload_core.metadata.records import OffloadContext


@pytest.fixture
def tier(tmp_path):
    with streaming_tier(tmp_path) as store:
        yield store


# --- plan --------------------------------------------------------------------------------------


def test_plan_names_each_ledger_and_what_to_do_and_ends_with_an_answer(offload, tier, tmp_path):
    result = offload("rollback", "plan", tmp_path / "tier", "--records", file_of(tmp_path, MIXED))
    assert (result.code, result.err) == (1, "")
    header, five, _, seven, *said = result.out.splitlines()
    assert header.split("  ")[0] == "topic"
    assert " ".join(five.split()) == (
        "acme/cold/orders 5 3 300 bytes 3 512 bytes complete there keep its hot copy; release its segments"
    )
    assert " ".join(seven.split()) == (
        "acme/cold/orders 7 2 200 bytes 2 512 bytes complete gone its only copy is in streaming objects"
    )
    assert said == [
        "5 ledgers of 1 topic; 3 of them have streaming segments",
        "2 ledgers, 7 entries, 700 bytes, have hot copies: keep these, and release their segments",
        "1 ledger, 2 entries, 200 bytes, are in streaming objects only: an old version will not find them",
        "an old version, put back now, would not find 9 entries of 3 ledgers",
        "Rolling back loses data.",
    ]


def test_plan_waits_for_what_is_open_and_ends_with_0_when_nothing_is_lost(offload, tier, tmp_path):
    def plan(info):
        result = offload("rollback", "plan", tmp_path / "tier", "--records", file_of(tmp_path, info))
        return result.code, result.out.splitlines()[-1]

    assert plan(HOT) == (1, "Rolling back loses nothing once these segments are released; not yet.")
    context = OffloadContext.of_segments([segment(uuid_of(1), None, complete=False)])
    assert plan(managed_ledger(still_open(5, context)))[0] == 1
    assert plan(managed_ledger(closed(5, 3), in_one_object(8, 1, 4))) == (0, "Rolling back loses nothing.")


def test_plan_without_records_says_what_it_cannot_know(offload, tier, tmp_path):
    result = offload("rollback", "plan", tmp_path / "tier")
    assert result.code == 1
    assert result.out.splitlines()[-3:] == [
        "without records it is not known which ledgers have hot copies, and what their records name",
        "1 streaming object cannot be read: which ledgers lie there is not known",
        "Whether rolling back loses something is not known.",
    ]
    assert "not known  look at its record" in result.out
    tier.delete([f"{uuid_of(number)}{part}" for number in (1, 2, 3) for part in ("", "-index")])
    result = offload("rollback", "plan", tmp_path / "tier")
    assert (result.code, result.out.splitlines()[-1]) == (0, "Rolling back loses nothing.")


def test_plan_in_json(offload, tier, tmp_path):
    result = offload("rollback", "plan", tmp_path / "tier", "--records", file_of(tmp_path, MIXED), "--json")
    assert result.code == 1
    said = result.json
    assert (said["records"], said["loses_nothing"], said["unread_objects"]) == (True, False, 0)
    assert said["needs"] == {"nothing": 0, "release": 2, "finish": 0, "only-copy": 1, "unknown": 0}
    (topic,) = said["topics"]
    assert (topic["topic"], topic["ledgers"]) == (TOPIC, 5)
    assert topic["streamed"][2] == {
        "ledger": 7,
        "need": "only-copy",
        "segments": "complete",
        "closed": True,
        "hot_copy": False,
        "one_object": False,
        "entries": 2,
        "size_bytes": 200,
        "streamed_entries": 2,
        "streamed_bytes": 512,
        "unseen_entries": 2,
        "problems": [],
    }


# --- list --------------------------------------------------------------------------------------


def test_list_has_all_that_has_the_key_of_a_streaming_object(offload, tier, tmp_path):
    result = offload("rollback", "list", tmp_path / "tier")
    assert (result.code, result.err) == (0, "")
    header, one, two, three, cat, counts = result.out.splitlines()
    assert header.startswith("data object")
    assert one.split()[:5] == [str(uuid_of(1)), "acme/cold/orders", "5–6", "1.1", "kB"]
    assert "complete" in two
    assert three.split()[1:4] == ["(unknown", "topic)", "–"]
    assert "no-index" in three
    assert "the data begins with 61207069, not 26A66D32" in cat
    assert counts.startswith("3 streaming objects, ")
    assert counts.endswith(": 2 complete, 1 no-index, 1 not-streaming")


def test_list_in_json(offload, tier, tmp_path):
    one, *_, cat = offload("rollback", "list", tmp_path / "tier", "--json").json["objects"]
    assert one.pop("modified_at").startswith("20")
    assert one == {
        "key": str(uuid_of(1)),
        "topic": TOPIC,
        "cluster": None,
        "ledgers": [5, 6],
        "data_bytes": 1024,
        "index_bytes": tier.stat(f"{uuid_of(1)}-index").size_bytes,
        "state": "complete",
        "detail": None,
    }
    assert cat["state"] == "not-streaming"


def test_list_of_a_tier_without_any(offload, tmp_path):
    (tmp_path / "empty").mkdir()
    result = offload("rollback", "list", tmp_path / "empty")
    assert (result.code, result.out) == (0, "0 streaming objects, 0 bytes\n")
