"""MapFiles that Pulsar's filesystem offloader wrote: read as Pulsar reads them, written as it wrote them."""

from __future__ import annotations

import hashlib
import json

import pytest
from mapfiles import (
    DEFLATES_AS_HADOOP,
    OFFLOADER_CASES,
    GoldenMapFile,
    golden_mapfiles,
    read_mapfile,
    rewritten,
)

from offload_core.format.codec.mapfile.crc_files import make_checksums, verify_whole
from offload_core.format.codec.mapfile.index_file import parse_index_file, parse_mapfile
from offload_core.format.codec.mapfile.sequence_file import (
    BYTES_WRITABLE,
    LONG_WRITABLE,
    FileCompression,
    pack_header,
    parse_whole_header,
)

GOLDEN = golden_mapfiles()
EACH = pytest.mark.parametrize("name", sorted(GOLDEN))


def test_the_golden_files_have_both_ways_of_compression():
    found = {parse_whole_header(each.data, BYTES_WRITABLE).compression for each in GOLDEN.values()}
    assert found == {FileCompression.RECORD, FileCompression.BLOCK}
    assert len(GOLDEN) == 5


@pytest.mark.parametrize("case", sorted(path.name for path in OFFLOADER_CASES.iterdir()))
def test_every_entry_is_read_as_pulsar_reads_it(case):
    lines = (OFFLOADER_CASES / case / "entries.jsonl").read_text().splitlines()
    expected = [
        (entry["ledger_id"], entry["entry_id"], entry["length"], entry["sha256"])
        for entry in map(json.loads, lines)
    ]
    (ledger_id,) = {ledger for ledger, *_ in expected}
    found = read_mapfile(GOLDEN[f"{case}-{ledger_id}"])
    assert expected == [
        (ledger, entry_id, len(payload), hashlib.sha256(payload).hexdigest())
        for ledger, entry_id, payload in found
    ]


@EACH
@pytest.mark.parametrize("window_bytes", [97, 512, 20_000])
def test_any_windows_give_the_same_entries(name, window_bytes):
    assert read_mapfile(GOLDEN[name], window_bytes=window_bytes) == read_mapfile(GOLDEN[name])


@EACH
def test_every_entry_of_the_metadata_is_there(name):
    each = GOLDEN[name]
    metadata = parse_mapfile(each.index, each.data, len(each.data), 1).ledgers[0].metadata
    entries = read_mapfile(each)
    assert [entry_id for _, entry_id, _ in entries] == list(range(metadata.last_entry_id + 1))
    assert sum(len(payload) for *_, payload in entries) == metadata.length


@EACH
def test_a_header_is_read_and_written_back(name):
    each = GOLDEN[name]
    for data, value_class in ((each.data, BYTES_WRITABLE), (each.index, LONG_WRITABLE)):
        header = parse_whole_header(data, value_class)
        assert data.startswith(pack_header(header))
        assert header.length == len(pack_header(header))


@EACH
def test_checksums_are_verified_and_made(name):
    each = GOLDEN[name]
    for data, checksums in ((each.data, each.data_checksums), (each.index, each.index_checksums)):
        verify_whole(data, checksums)
        assert make_checksums(data) == checksums


def test_an_index_points_at_every_128th_record():
    each = GOLDEN["300-entries-2002"]
    assert parse_index_file(each.index, 1000).keys.tolist() == [-1, 127, 255]


def test_an_index_over_blocks_points_at_the_block_that_holds_a_key():
    each = GOLDEN["broker-13"]
    records = parse_index_file(each.index, 1000)
    assert records.keys.tolist() == [-1, 127]
    blocks = parse_mapfile(each.index, each.data, len(each.data), 13, stretch_bytes=1).ledgers[0].blocks
    assert [(block.first_entry_id, block.end_entry_id) for block in blocks] == [(0, 127), (0, 139)]
    assert read_mapfile(each, stretch_bytes=1) == read_mapfile(each)


@EACH
def test_what_we_write_is_what_pulsar_wrote(name):
    each = GOLDEN[name]
    data, index = rewritten(each)
    again = GoldenMapFile(key=each.key, data=data, index=index, data_checksums=b"", index_checksums=b"")
    assert read_mapfile(again) == read_mapfile(each)
    if DEFLATES_AS_HADOOP:
        assert data == each.data
        assert index == each.index
