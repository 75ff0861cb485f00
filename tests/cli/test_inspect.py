"""`offload inspect`: one object's index and blocks, right ones and damaged ones."""

import re
from dataclasses import replace

import pytest
from entries import LedgerPart, entry, pip17_object, streaming_object
from golden import load_case
from tiers import TOPIC, Names, lay_out, lay_out_case

BIG = "b4229ae0-cfa8-4e20-98ce-86ba1591f849-ledger-34"


def test_an_objects_index_and_blocks_are_shown(offload, broker):
    result = offload("inspect", broker, BIG)
    assert (result.code, result.err) == (0, "")
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert lines[0] == "format pip17"
    assert lines[1].startswith(f"data object {BIG}, 11,")
    assert lines[2] == f"index object {BIG}-index, 241 bytes"
    assert "managedledgername acme/cold/persistent/big" in lines
    assert "ledger 34" in lines
    assert "last_entry_id 999" in lines
    assert lines[lines.index("part offset length first entry last entry header") + 1].startswith(
        "1 0 5242880 0 "
    )
    assert [line.split()[-1] for line in lines[-3:]] == ["ok", "ok", "ok"]
    assert lines[-1].split()[4] == "999"
    assert offload("inspect", broker, f"{BIG}-index").out == result.out


def test_json_says_all_of_it(offload, tmp_path):
    lay_out_case(tmp_path, "streaming", "3-ledgers-5-blocks")
    case = load_case("streaming", "3-ledgers-5-blocks")
    result = offload("inspect", tmp_path, case.key.data_key, "--json")
    assert (result.code, result.err) == (0, "")
    shown = result.json
    assert shown["format"] == "streaming"
    assert (shown["data_key"], shown["index_key"]) == (case.key.data_key, case.key.index_key)
    assert shown["data_bytes"] == shown["data_bytes_by_index"] == len(case.data)
    assert shown["index_bytes"] == len(case.index)
    assert shown["user_metadata"]["pulsarclustername"] == "golden"
    assert {each["ledger"]: len(each["blocks"]) for each in shown["ledgers"]} == {15: 1, 16: 3, 17: 1}
    blocks = [block for ledger in shown["ledgers"] for block in ledger["blocks"]]
    assert {block["header"] for block in blocks} == {"ok"}
    assert sorted(block["offset"] for block in blocks) == [i * 5242880 for i in range(5)]
    assert set(blocks[0]) == {"part_number", "offset", "length", "first_entry_id", "end_entry_id", "header"}
    assert {ledger["metadata"]["ledger_id"] for ledger in shown["ledgers"]} == {15, 16, 17}


def test_metadata_of_a_ledger_is_json_that_people_can_read(offload, broker):
    metadata = offload("inspect", broker, BIG, "--json").json["ledgers"][0]["metadata"]
    assert metadata["state"] == "CLOSED"
    assert metadata["digest_type"] == "CRC32C"
    assert ["pulsar/managed-ledger", "acme/cold/persistent/big"] in metadata["custom"]
    assert "password" not in metadata


def test_facts_of_a_ledger_are_text_that_people_can_read(offload, broker):
    lines = [" ".join(line.split()) for line in offload("inspect", broker, BIG).out.splitlines()]
    assert "ensembles from entry 0 on 127.0.0.1:33295" in lines
    assert (
        "custom component=managed-ledger, pulsar/managed-ledger=acme/cold/persistent/big, application=pulsar"
        in lines
    )
    assert any(re.fullmatch(r"ctime_ms 17952157\d+, 2026-11-20 23:03Z", line) for line in lines)
    assert not any(line.startswith("password") for line in lines)


def test_an_object_is_found_by_its_topic_and_ledger(offload, broker):
    by_key = offload("inspect", broker, BIG).out
    assert offload("inspect", broker, "acme/cold/big", "--ledger", 34).out == by_key
    assert (
        offload("inspect", broker, "persistent://acme/cold/jstring", "--json").json["ledgers"][0]["ledger"]
        == 42
    )
    several = offload("inspect", broker, "acme/cold/big")
    assert (several.code, several.out) == (2, "")
    assert "the topic has several ledgers: expected --ledger, one of 34–35" in several.err
    other = offload("inspect", broker, "acme/cold/big", "--ledger", 36)
    assert (other.code, "no such ledger here: expected 34–35, found 36" in other.err) == (2, True)
    unknown = offload("inspect", broker, "acme/cold/nothing")
    assert (unknown.code, "nothing is known of this topic" in unknown.err) == (2, True)
    assert offload("inspect", broker, BIG, "--ledger", 34).code == 2


def test_a_ledger_of_several_objects_is_asked_for_by_key(offload, tmp_path):
    parts = [[LedgerPart(ledger_id=5, blocks=[[entry(b"a")]])]]
    parts.append([LedgerPart(ledger_id=5, first_entry_id=1, blocks=[[entry(b"b")]])])
    keys = [lay_out(tmp_path, streaming_object(each), attempt=number) for number, each in enumerate(parts, 1)]
    shown = offload("inspect", tmp_path, TOPIC)
    assert shown.code == 2
    assert (
        f"the ledger lies in several objects (ledger 5): expected one of the keys {keys[0]}, {keys[1]}"
        in shown.err
    )


TWO_BLOCKS = pip17_object([b"x" * 424] * 4, ledger_id=7, max_block_bytes=1000)
"""A ledger of two blocks of 1000 bytes."""


@pytest.mark.parametrize(
    ("offset", "data", "told"),
    [
        (1000, b"\0", "expected FBDBABCB, found 00DBABCB"),
        (1012, b"\0\0\0\0\0\0\x03\xe9", "its length is 1001, by the index 1000"),
        (1012, b"\0\0\0\0\0\0\x03\xe7", "its length is 999, by the index 1000"),
        (1020, b"\0\0\0\0\0\0\0\x05", "its first entry is 5, by the index 2"),
        (1019, b"\xe9\0\0\0\0\0\0\0\x05", "1001, by the index 1000; its first entry is 5, by the index 2"),
    ],
)
def test_a_damaged_header_is_told_for_its_block(offload, tmp_path, offset, data, told):
    new = TWO_BLOCKS.data[:offset] + data + TWO_BLOCKS.data[offset + len(data) :]
    key = lay_out(tmp_path, replace(TWO_BLOCKS, data=new))
    result = offload("inspect", tmp_path, key, "--json")
    assert result.code == 0
    first, second = result.json["ledgers"][0]["blocks"]
    assert first["header"] == "ok"
    assert told in second["header"]
    assert told in offload("inspect", tmp_path, key).out


def test_a_data_object_that_is_shorter_than_its_index_says_is_shown_as_far_as_it_goes(offload, tmp_path):
    key = lay_out(tmp_path, replace(TWO_BLOCKS, data=TWO_BLOCKS.data[:1100]))
    shown = offload("inspect", tmp_path, key, "--json").json
    assert (shown["data_bytes"], shown["data_bytes_by_index"]) == (1100, 2000)
    assert [block["header"] for block in shown["ledgers"][0]["blocks"]] == ["ok", "not there"]
    assert "1,100 bytes; its index says 2,000" in offload("inspect", tmp_path, key).out


def test_what_pulsar_damaged_is_shown(offload, tmp_path):
    lay_out_case(tmp_path, "java-damaged", "st-drift")
    key = load_case("java-damaged", "st-drift").key.data_key
    shown = offload("inspect", tmp_path, key, "--json").json
    assert (shown["data_bytes"], shown["data_bytes_by_index"]) == (10584076, 10524076)
    assert [block["header"] == "ok" for block in shown["ledgers"][0]["blocks"][:2]] == [True, False]


def test_an_index_that_cannot_be_read_is_an_error(offload, tmp_path):
    lay_out_case(tmp_path, "java-damaged", "v1-oversized-entry")
    key = load_case("java-damaged", "v1-oversized-entry").key
    result = offload("inspect", tmp_path, key.data_key)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("offload: an index leaves less than a header's room for a block")
    assert key.index_key in result.err
    assert f"`offload repair URL {key.data_key}` makes it anew if the data object is right." in result.err


def test_a_missing_data_object_is_told(offload, tmp_path):
    key = lay_out(tmp_path, pip17_object([b"a"]), parts=["index"])
    shown = offload("inspect", tmp_path, key, "--json").json
    assert shown["data_bytes"] is None
    assert shown["data_bytes_by_index"] == 141
    assert shown["ledgers"][0]["blocks"][0]["header"] == "not there"
    assert shown["user_metadata"]["role"] == "index"
    text = offload("inspect", tmp_path, key).out
    assert f"{key}, not there" in text
    assert text.endswith(f"\nIt is damaged: `offload repair URL {key}` shows what can be saved.\n")


def test_a_missing_index_is_an_error_that_names_it(offload, tmp_path):
    key = lay_out(tmp_path, pip17_object([b"a"]), parts=["data"])
    result = offload("inspect", tmp_path, key)
    assert (result.code, result.out) == (2, "")
    assert f"{key}-index" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    "key", ["readme.txt", "", "../../etc/passwd", "00000000-0000-4000-8000-000000000000-ledger-x"]
)
def test_what_is_no_key_of_an_object_is_refused(offload, tmp_path, key):
    result = offload("inspect", tmp_path, key)
    assert result.code == 2
    assert result.err.startswith(
        "offload: this is neither the key of an offloaded object nor a topic: expected <uuid>"
    )


def test_user_metadata_is_shown_as_it_is(offload, tmp_path):
    key = lay_out(tmp_path, pip17_object([b"a"]), names=Names(cluster="[red]east[/red]"))
    assert "[red]east[/red]" in offload("inspect", tmp_path, key).out
