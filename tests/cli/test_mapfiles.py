"""`offload ls`, `inspect` and `cat` on what Pulsar's filesystem offloader stored."""

import pytest
from mapfiles import FILESYSTEM_OBJECTS, lay_out_golden, lay_out_mapfile, mapfile

from offload_core.format.codec.mapfile.sequence_file import FileCompression

BATCH = "acme/cold/persistent/batch/13-dbe377da-b1fe-46bd-824b-814014508e34"


@pytest.mark.parametrize(
    "tier",
    [(str(FILESYSTEM_OBJECTS),), ("filesystem", "--option", f"fileSystemURI=file://{FILESYSTEM_OBJECTS}")],
)
def test_topics_are_listed(offload, tier):
    result = offload("ls", *tier, "--json")
    assert (result.code, result.err) == (0, "")
    shown = result.json
    assert shown["problems"] == []
    ledgers = {
        (topic["topic"], ledger["ledger"], ledger["entries"], *ledger["formats"], *ledger["read_from"])
        for topic in shown["topics"]
        for ledger in topic["ledgers"]
    }
    assert len(ledgers) == 3
    assert ("persistent://acme/cold/batch", 13, 139, "mapfile", f"{BATCH}/data") in ledgers


@pytest.mark.parametrize("name", ["data", "index"])
def test_a_ledger_is_inspected_by_either_key(offload, name):
    result = offload("inspect", FILESYSTEM_OBJECTS, f"{BATCH}/{name}")
    assert (result.code, result.err) == (0, "")
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert lines[:4] == [
        "format mapfile",
        "compression block",
        f"data object {BATCH}/data, 303,206 bytes",
        f"index object {BATCH}/index, 214 bytes",
    ]
    assert "last_entry_id 138" in lines
    assert lines[-1] == "1 0 303206 0 138 ok"


def test_a_stretch_that_is_not_where_the_index_says_is_shown(offload, tmp_path):
    payloads = [bytes([i]) * 30_000 for i in range(100)]
    written = mapfile(payloads, compression=FileCompression.NONE, index_interval=1)
    lay_out_mapfile(tmp_path, written)
    result = offload("inspect", tmp_path, written.key.data_key, "--json")
    shown = result.json
    assert shown["compression"] == "none"
    blocks = shown["ledgers"][0]["blocks"]
    assert [block["header"] for block in blocks] == ["ok"] * 3
    data = bytearray(written.data)
    data[blocks[1]["offset"] + 15] ^= 1  # the key of the stretch's first record
    (tmp_path / written.key.data_key).write_bytes(data)
    shown = offload("inspect", tmp_path, written.key.data_key, "--json").json
    headers = [block["header"] for block in shown["ledgers"][0]["blocks"]]
    assert (headers[0], headers[2]) == ("ok", "ok")
    assert headers[1].startswith("a key is not above the one before it")


def test_an_index_without_data_is_an_error(offload, tmp_path):
    lay_out_golden(tmp_path)
    (tmp_path / f"{BATCH}/data").unlink()
    result = offload("inspect", tmp_path, f"{BATCH}/index")
    assert result.code == 2
    assert f"{BATCH}/data" in result.err


def test_messages_are_written_out(offload):
    result = offload("cat", FILESYSTEM_OBJECTS, "--topic", "acme/cold/avro", "--format", "jsonl")
    assert (result.code, result.err) == (0, "")
    assert len(result.out.splitlines()) == 2500
