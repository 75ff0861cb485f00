"""`offload inspect --hex`: each byte of a block or an index, once, with what it means; also of damaged ones."""

from dataclasses import replace

import pytest
from entries import LedgerPart, entry, pip17_object, streaming_object
from golden import load_case
from mapfiles import lay_out_mapfile, mapfile
from tiers import lay_out, lay_out_case

from offload_core.format.codec.mapfile.sequence_file import FileCompression

BIG = "b4229ae0-cfa8-4e20-98ce-86ba1591f849-ledger-34"
TWO_BLOCKS = pip17_object([b"x" * 424] * 4, ledger_id=7, max_block_bytes=1000)
"""A ledger of two blocks of 1000 bytes."""


def dumped(offload, root, key, *given):
    """What is told, of which every byte is in exactly one span, in order."""
    result = offload("inspect", root, key, "--hex", "--json", *given)
    assert (result.code, result.err) == (0, "")
    said = result.json
    at = said["offset"]
    for span in said["spans"]:
        if span["length"]:
            assert span["offset"] == at
            at += span["length"]
    assert at == said["offset"] + said["length"]
    return said


def names(said):
    return [span["name"] for span in said["spans"]]


def values(said, name):
    return [span["value"] for span in said["spans"] if span["name"] == name]


def test_a_brokers_block_is_told_field_by_field(offload, broker):
    said = dumped(offload, broker, BIG)
    frame = ["entry length", "entry id"]
    assert names(said)[:14] == [
        *("magic", "header length", "block length", "first entry id", "zero", *frame),
        *("magic of the checksum", "CRC-32C of what follows"),
        *("length of message metadata", "message metadata", "payload", *frame),
    ]
    assert names(said)[-1] == "padding"
    assert said["spans"][0]["value"] == "FBDBABCB"
    assert {value.split(", ")[1] for value in values(said, "CRC-32C of what follows")} == {"right"}
    assert "producer_name" in values(said, "message metadata")[0]
    second = dumped(offload, broker, BIG, "--block", 2)
    assert second["offset"] == 5242880
    assert values(second, "first entry id") == values(second, "entry id")[:1]
    assert dumped(offload, broker, BIG, "--offset", 5242880 + 77) == second


def test_it_is_lines_for_people(offload, tmp_path):
    key = lay_out(tmp_path, pip17_object([b"x" * 200, b""], ledger_id=7))
    result = offload("inspect", tmp_path, key, "--hex")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0] == f"{key}, 352 bytes from 0 on"
    assert lines[1] == f"00000000  {'fb db ab cb':47}  | magic: FBDBABCB"
    assert lines[3] == f"0000000c  {'00 00 00 00 00 00 01 60':47}  | block length: 352"
    assert sum("… 72 bytes" in line for line in lines) == 1
    assert lines[-1].endswith("| entry id: 1")


def test_streaming_blocks_and_indexes_are_told(offload, tmp_path):
    parts = [LedgerPart(ledger_id=5, blocks=[[b"a"], [b"b"]]), LedgerPart(ledger_id=6, blocks=[[b"c"]])]
    key = lay_out(tmp_path, streaming_object(parts))
    said = dumped(offload, tmp_path, key, "--block", 3)
    assert values(said, "ledger id (streaming)") == ["6"]
    assert names(said)[-1] == "padding"
    index = dumped(offload, tmp_path, f"{key}-index")
    assert values(index, "ledger id") == ["5", "6"]
    assert values(index, "offset of its header") == ["0", "512", "1024"]
    assert values(index, "ledger info")[0].startswith("ledgerId: 5")


def test_an_index_of_one_ledger_is_told(offload, broker):
    said = dumped(offload, broker, f"{BIG}-index")
    assert said["spans"][0]["value"] == "DE47DE47"
    assert "quorumSize" in values(said, "BookKeeper's ledger metadata")[0]
    assert len(values(said, "part number")) == int(values(said, "number of blocks")[0]) == 3


@pytest.mark.parametrize("compression", FileCompression)
def test_mapfiles_are_told_by_the_fields_that_are_read(offload, tmp_path, compression):
    written = mapfile([b"a" * 10, b"bc"], ledger_id=2, compression=compression)
    lay_out_mapfile(tmp_path, written)
    key = written.key.data_key
    for part in (key, written.key.index_key):
        said = dumped(offload, tmp_path, part)
        assert names(said)[0] == "the magic of a SequenceFile" or said["offset"]
        assert "not explained" not in names(said)
    whole = dumped(offload, tmp_path, key, "--offset", 0)
    assert "the sync bytes" in names(whole)
    (tmp_path / key).write_bytes(written.data[:-3])
    cut = dumped(offload, tmp_path, key, "--offset", 0)
    assert any(span["wrong"] for span in cut["spans"])


# --- damage ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "data", "at", "told"),
    [
        (1000, b"\0", 1000, "this is not a block of a pip17 object"),
        (
            1012,
            b"\0\0\0\0\0\0\x03\xe9",
            1012,
            "it has 1000 bytes by the index or the object's end, 1001 by its header",
        ),
        (1128, b"\xff", 1128, "an entry's length is negative"),
        (1128, b"\x7f", 1128, "an entry's length reaches past its block"),
        (1135, b"\x09", 1132, "an entry is not the one that must come next"),
        (1564, b"\xff", 1564, "an entry's length is negative"),
    ],
)
def test_it_says_where_a_block_breaks_and_goes_on(offload, tmp_path, offset, data, at, told):
    new = TWO_BLOCKS.data[:offset] + data + TWO_BLOCKS.data[offset + len(data) :]
    key = lay_out(tmp_path, replace(TWO_BLOCKS, data=new))
    said = dumped(offload, tmp_path, key, "--block", 2)
    (wrong,) = (span for span in said["spans"] if span["wrong"])
    assert told in wrong["value"]
    assert wrong["offset"] == at
    if offset >= 1128:
        assert names(said)[-1] == "not explained"


def test_a_checksum_that_is_wrong_is_told(offload, tmp_path):
    payload = entry(b"payload").replace(b"payload", b"payroll")
    said = dumped(offload, tmp_path, lay_out(tmp_path, pip17_object([payload])))
    (wrong,) = (span for span in said["spans"] if span["wrong"])
    assert "but the bytes have" in wrong["value"]


@pytest.mark.parametrize("cut", [3, 20, 60, 200])
def test_an_index_that_is_cut_off_is_told_as_far_as_it_goes(offload, tmp_path, cut):
    key = lay_out(tmp_path, replace(TWO_BLOCKS, index=TWO_BLOCKS.index[:cut]))
    result = offload("inspect", tmp_path, f"{key}-index", "--hex", "--json")
    assert result.code == 0
    assert any(span["wrong"] for span in result.json["spans"]) == (cut < len(TWO_BLOCKS.index))


def test_without_an_index_a_block_is_found_by_its_own_header(offload, tmp_path):
    key = lay_out(tmp_path, TWO_BLOCKS, parts=["data"])
    assert dumped(offload, tmp_path, key)["length"] == 1000
    assert values(dumped(offload, tmp_path, key, "--offset", 1000), "entry id") == ["2", "3"]
    result = offload("inspect", tmp_path, key, "--hex", "--block", 2)
    assert result.code == 2
    assert "--offset BYTE" in result.err


def test_what_pulsar_damaged_is_told(offload, tmp_path):
    lay_out_case(tmp_path, "java-damaged", "st-drift")
    said = dumped(offload, tmp_path, load_case("java-damaged", "st-drift").key.data_key)
    assert any(span["wrong"] for span in said["spans"])


@pytest.mark.parametrize(
    "given",
    [
        ["--block", "1"],
        ["--hex", "--block", "9"],
        ["--hex", "--block", "1", "--offset", "0"],
        ["--hex", "--offset", "99999"],
    ],
)
def test_wrong_use_is_told(offload, tmp_path, given):
    key = lay_out(tmp_path, pip17_object([b"a"]))
    assert offload("inspect", tmp_path, key, *given).code == 2


def test_any_bytes_are_told(offload, tmp_path):
    written = pip17_object([b"x" * 30] * 3, ledger_id=7)
    for data in (b"\0", b"\xff" * 127, b"\xfb\xdb\xab\xcb", written.data[:150], written.data + b"more"):
        dumped(offload, tmp_path, lay_out(tmp_path, replace(written, data=data)))
