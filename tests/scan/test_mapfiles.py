"""MapFiles read through `open_tier`: what Pulsar wrote, parts of ledgers, gaps, topics of several formats, damage."""

import functools
from dataclasses import replace
from random import Random

import pyarrow as pa
import pytest
from entries import LedgerPart, entry, pip17_object, streaming_object
from golden import COLUMNS, assert_topic_is_as_expected
from mapfiles import FILESYSTEM, FILESYSTEM_TOPICS, lay_out_golden, lay_out_mapfile, mapfile
from tiers import TOPIC, MemoryDriver, lay_out, numbered

from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_core.metadata.catalogue import parse_topic
from offload_core.reading.scan.positions import Position
from offload_core.storage.tier import Tier
from offload_hooks.errors import BadLengthError, ChecksumError, EntryOrderError, FormatError
from pulsar_offload import TierReader, open_tier, scan

pytestmark = pytest.mark.long

EACH = pytest.mark.parametrize("compression", FileCompression)
RANDOM = Random(11)
LARGE = {i: RANDOM.randbytes(9000) for i in range(700)}
"""6 MB: several stretches."""


@functools.cache
def large(compression):
    return mapfile(LARGE, compression=compression)


def entries_of(root, **options):
    with open_tier(root) as tier:
        table = scan(tier, level="entries", **options).to_table()
    places = zip(table["__ledgerId"].to_pylist(), table["__entryId"].to_pylist(), strict=True)
    return dict(zip(places, table["value"].to_pylist(), strict=True))


def expected_of(*written):
    return {(ledger, i): payload for each in written for ledger, i, payload in each.entries}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("topic", FILESYSTEM_TOPICS)
@pytest.mark.parametrize("has_checksums", [True, False])
def test_every_message_of_a_topic_is_as_pulsars_clients_read_it(tmp_path, topic, has_checksums):
    lay_out_golden(tmp_path)
    if not has_checksums:
        for path in tmp_path.rglob(".*.crc"):
            path.unlink()
    with open_tier(tmp_path) as tier:
        for task_bytes in (128 << 20, 1):
            planned = scan(tier, f"acme/cold/{topic}", columns=COLUMNS, task_bytes=task_bytes)
            assert_topic_is_as_expected(planned.to_table().to_pylist(), topic, FILESYSTEM)


@EACH
def test_a_large_ledger_is_split_between_tasks(tmp_path, compression):
    written = large(compression)
    lay_out_mapfile(tmp_path, written)
    with open_tier(tmp_path) as tier:
        planned = scan(tier, level="entries", task_bytes=1, min_partitions=99)
        assert 3 <= len(planned.tasks) <= 6
        assert planned.data_bytes == len(written.data)
    for options in ({}, {"task_bytes": 1}, {"task_bytes": 2 << 20}):
        found = entries_of(tmp_path, **options)
        assert found == expected_of(written)
        assert list(found) == list(expected_of(written))


@EACH
@pytest.mark.parametrize(
    ("start", "stop"), [(0, 1), (127, 128), (126, 400), (300, 300), (399, 700), (650, 9999)]
)
def test_a_part_of_a_ledger_is_read(tmp_path, compression, start, stop):
    written = large(compression)
    lay_out_mapfile(tmp_path, written)
    name = parse_topic(TOPIC)
    bounds = {
        "start": {name: Position(ledger_id=7, entry_id=start)},
        "stop": {name: Position(ledger_id=7, entry_id=stop)},
    }
    asked = {place: value for place, value in expected_of(written).items() if start <= place[1] < stop}
    assert entries_of(tmp_path, topics=TOPIC, **bounds) == asked
    assert entries_of(tmp_path, topics=TOPIC, task_bytes=1, **bounds) == asked


@EACH
def test_gaps_are_read_over_wherever_they_are(tmp_path, compression):
    for step, index_interval in ((2, 128), (3, 1), (50, 16)):
        entries = {i: payload for i, payload in LARGE.items() if i % step == 0 or i == 699}
        written = mapfile(entries, compression=compression, index_interval=index_interval, ledger_id=step)
        lay_out_mapfile(tmp_path / str(step), written)
        for options in ({}, {"task_bytes": 1}):
            assert entries_of(tmp_path / str(step), **options) == expected_of(written)


@EACH
def test_a_topic_of_all_three_formats_reads_as_one(tmp_path, compression):
    def messages(first, count):
        return [entry(b"message %d" % i, sequence_id=i) for i in range(first, first + count)]

    pip17 = pip17_object(messages(0, 30), ledger_id=5, max_block_bytes=600)
    streaming = streaming_object(
        [
            LedgerPart(ledger_id=6, blocks=[messages(30, 10), messages(40, 10)]),
            LedgerPart(ledger_id=8, blocks=[messages(150, 7)]),
        ]
    )
    middle = mapfile(messages(50, 100), ledger_id=7, compression=compression)
    last = mapfile(messages(157, 3), ledger_id=9, compression=compression)
    lay_out(tmp_path, pip17, attempt=1)
    lay_out(tmp_path, streaming, attempt=2)
    lay_out_mapfile(tmp_path, middle)
    lay_out_mapfile(tmp_path, last)
    with open_tier(tmp_path) as tier:
        (topic,) = tier.catalogue().topics
        formats = [known.value for ledger in topic.ledgers for known in ledger.formats]
        assert formats == ["pip17", "streaming", "mapfile", "streaming", "mapfile"]
        for task_bytes in (128 << 20, 1):
            table = scan(tier, TOPIC, task_bytes=task_bytes).to_table()
            assert table["value"].to_pylist() == [b"message %d" % i for i in range(160)]
            assert sorted(set(table["__ledgerId"].to_pylist())) == [5, 6, 7, 8, 9]


@pytest.mark.sampled(6)
@EACH
@pytest.mark.parametrize("ranges_ahead", [0, 3])
def test_a_large_entry_is_fetched_about_once(compression, ranges_ahead):
    payloads = [b"before", RANDOM.randbytes(9 << 20), b"behind"]
    written = mapfile(payloads, compression=compression)
    driver = MemoryDriver(numbered(written), range_bytes=256 << 10, ranges_ahead=ranges_ahead)
    tier = TierReader(Tier(driver))
    assert scan(tier, level="entries").to_table()["value"].to_pylist() == payloads
    fetched = sum(length for key, _, length in driver.reads if key.endswith("/data"))
    assert fetched < 1.6 * len(written.data)


# --- damage ------------------------------------------------------------------------------------


def damaged(root, written, at):
    """The file with a flipped bit, and the checksums that it had."""
    lay_out_mapfile(root, written)
    data = bytearray(written.data)
    data[at] ^= 1
    (root / written.key.data_key).write_bytes(data)
    return replace(written, data=bytes(data))


def test_a_payload_that_changed_is_noticed_by_the_checksums(tmp_path):
    written = large(FileCompression.NONE)
    at = written.data.index(LARGE[333]) + 4321
    damaged(tmp_path, written, at)
    for options in ({}, {"task_bytes": 1}):
        with pytest.raises(ChecksumError) as caught:
            entries_of(tmp_path, **options)
        assert (caught.value.key, caught.value.offset) == (written.key.data_key, at // 512 * 512)
    found = entries_of(tmp_path, verify_checksums=False)
    assert {place for place, value in found.items() if value != expected_of(written)[place]} == {(7, 333)}


def test_every_byte_of_a_ledger_that_is_read_whole_is_verified(tmp_path):
    written = mapfile([b"x" * 900, b"y" * 900], compression=FileCompression.NONE)
    for at in range(0, len(written.data), 97):
        damaged(tmp_path, written, at)
        with open_tier(tmp_path) as tier:
            problems = tier.catalogue().problems
        if not problems:
            with pytest.raises((ChecksumError, EntryOrderError) if at > 300 else FormatError):
                entries_of(tmp_path)


def test_checksums_that_do_not_cover_the_file_are_an_error(tmp_path):
    written = large(FileCompression.RECORD)
    lay_out_mapfile(tmp_path, written)
    checksums = (tmp_path / written.key.data_key).with_name(".data.crc")
    checksums.write_bytes(checksums.read_bytes()[:-4])
    with pytest.raises(BadLengthError, match="does not cover") as caught:
        entries_of(tmp_path)
    assert caught.value.key == f"{written.key.data_key.removesuffix('data')}.data.crc"
    assert entries_of(tmp_path, verify_checksums=False) == expected_of(written)


def test_an_entry_that_is_broken_inside_is_named_without_a_byte_that_is_not_there(tmp_path):
    broken = bytearray(entry(b"hello"))
    broken[-1] ^= 1
    for compression in FileCompression:
        written = mapfile([entry(b"fine"), bytes(broken)], compression=compression)
        lay_out_mapfile(tmp_path, written)
        with open_tier(tmp_path) as tier, pytest.raises(ChecksumError) as caught:
            scan(tier).to_table()
        error = caught.value
        assert (error.key, error.ledger_id, error.entry_id) == (written.key.data_key, 7, 1)
        assert (error.offset is None) == (compression is not FileCompression.NONE)


def test_batches_are_of_about_a_mebibyte(tmp_path):
    payloads = [bytes(100) for _ in range(60_000)]
    for compression in FileCompression:
        lay_out_mapfile(tmp_path, mapfile(payloads, compression=compression))
        with open_tier(tmp_path) as tier:
            batches: list[pa.RecordBatch] = list(scan(tier, level="entries"))
        assert sum(batch.num_rows for batch in batches) == 60_000
        assert len(batches) <= 14
