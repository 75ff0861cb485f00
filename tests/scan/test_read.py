"""Tasks to batches: sizes, empty and large entries, bytes that are wrong, metadata that lies."""

from dataclasses import replace

import pyarrow as pa
import pytest
from entries import batch_entry, chunk_entries, encrypted_entry, entry, ledger_metadata, pip17_object
from tiers import TOPIC, in_memory, lay_out

from offload_core.format.codec.index import BlockEntry
from offload_core.format.codec.pip17 import pack_pip17_index
from offload_core.format.messages.message_columns import ENTRY_COLUMNS, MESSAGE_COLUMNS
from offload_core.format.messages.message_decoder import BATCH_BYTES
from offload_core.metadata.catalogue import TopicName
from offload_core.reading.scan import Position
from offload_hooks.errors import (
    BadMagicError,
    ChecksumError,
    DecompressionError,
    EntryOrderError,
    FormatError,
    IndexMismatchError,
    OptionError,
)
from offload_proto.messages_pb2 import ZSTD
from pulsar_offload import open_tier, scan

KEY = "00000000-0000-4000-8000-000000000000-ledger-7"


def changed(written, offset, data):
    return replace(written, data=written.data[:offset] + data + written.data[offset + len(data) :])


def sizes(batches):
    return [[len(value) for value in batch["value"].to_pylist()] for batch in batches]


# --- batches -----------------------------------------------------------------------------------


def test_an_entry_larger_than_a_batch_has_one_for_itself():
    large = BATCH_BYTES + 1
    tier = in_memory(
        pip17_object([b"a", b"b" * large, b"c" * 3 * large, b"d", b"e"], max_block_bytes=64 << 20)
    )
    batches = list(scan(tier, level="entries"))
    assert sizes(batches) == [[1], [large], [3 * large], [1, 1]]
    assert [batch["__entryId"].to_pylist() for batch in batches] == [[0], [1], [2], [3, 4]]


def test_entries_are_put_into_batches_of_about_a_mebibyte():
    tier = in_memory(pip17_object([b"x" * 300_000] * 10, max_block_bytes=64 << 20))
    batches = list(scan(tier, level="entries"))
    assert sum(batch.num_rows for batch in batches) == 10
    assert all(300_000 <= batch["value"].nbytes <= BATCH_BYTES + 300_000 for batch in batches)


def test_many_empty_entries_are_read():
    tier = in_memory(pip17_object([b""] * 50_000, max_block_bytes=64 << 20))
    table = scan(tier, level="entries").to_table()
    assert table["__entryId"].to_pylist() == list(range(50_000))
    assert table["value"].to_pylist() == [b""] * 50_000
    assert {batch.num_rows for batch in table.to_batches()} == {16384, 50_000 - 3 * 16384}


def test_empty_entries_among_others_keep_their_places():
    payloads = [b"", b"a", b"", b"", b"bc", b""]
    tier = in_memory(pip17_object(payloads, max_block_bytes=128 + 3 * 12 + 2))
    assert scan(tier, level="entries", columns=["value"]).to_table()["value"].to_pylist() == payloads


def test_a_large_message_is_read_whole():
    value = bytes(range(256)) * 12_000
    entries = [entry(b"before"), entry(value, compression=ZSTD), batch_entry([b"in", value]), entry(b"after")]
    tier = in_memory(pip17_object(entries, max_block_bytes=64 << 20))
    found = scan(tier, columns=["value"]).to_table()["value"].to_pylist()
    assert found == [b"before", value, b"in", value, b"after"]


@pytest.mark.parametrize(
    ("level", "columns"),
    [
        ("messages", None),
        ("entries", None),
        ("messages", ["__entryId", "value"]),
        ("entries", ["__ledgerId"]),
        ("messages", ["__txnIdMost", "__compression", "__encryptionKeys"]),
    ],
)
def test_every_batch_has_the_scans_schema(level, columns):
    tier = in_memory(pip17_object([entry(b"a"), batch_entry([b"b", b"c"])]))
    planned = scan(tier, level=level, columns=columns)
    names = columns or list(ENTRY_COLUMNS if level == "entries" else MESSAGE_COLUMNS)
    assert planned.schema.names == names
    for batch in planned:
        assert batch.schema == planned.schema
        batch.validate(full=True)


@pytest.mark.parametrize(
    "options",
    [
        {"level": "blocks"},
        {"columns": ["valu"]},
        {"columns": []},
        {"columns": ["value", "value"]},
        {"level": "entries", "columns": ["__key"]},
    ],
)
def test_levels_and_columns_that_there_are_not_are_refused_before_anything_is_read(options):
    tier = in_memory(pip17_object([b"a"]))
    with pytest.raises(OptionError):
        scan(tier, **options)
    assert tier.store._chain._plugins[0].reads == []


# --- bytes that are wrong ----------------------------------------------------------------------


def two_blocks():
    """Entries 0 and 1 in a block of 1000 bytes, 2 and 3 in another."""
    return pip17_object([entry(b"x" * 370)] * 4, ledger_id=7, max_block_bytes=1000)


def fail(tier, **options):
    """Rows that came before the error, and the error."""
    batches: list[pa.RecordBatch] = []
    with pytest.raises(FormatError) as caught:
        batches.extend(scan(tier, **options))
    return sum(batch.num_rows for batch in batches), caught.value


@pytest.mark.parametrize("level", ["messages", "entries"])
@pytest.mark.parametrize(
    ("offset", "data", "kind"),
    [
        (1000, b"\0", BadMagicError),
        (1012, b"\0\0\0\0\0\0\x03\xe9", FormatError),
        (1020, b"\0\0\0\0\0\0\0\x03", IndexMismatchError),
        (1128, b"\x7f\xff\xff\xff", FormatError),
        (1132, b"\0\0\0\0\0\0\0\x09", EntryOrderError),
    ],
)
def test_a_block_that_is_not_what_its_index_says_is_an_error_that_names_the_place(level, offset, data, kind):
    rows, error = fail(in_memory(changed(two_blocks(), offset, data)), level=level)
    assert rows == 2
    assert isinstance(error, kind)
    assert (error.key, error.ledger_id, error.block) == (KEY, 7, 2)
    assert 1000 <= error.offset <= 1132


def test_a_flipped_payload_bit_is_found_by_the_checksum_unless_told_not_to():
    written = changed(two_blocks(), 1700, b"\x00")
    rows, error = fail(in_memory(written))
    assert isinstance(error, ChecksumError)
    assert (error.key, error.ledger_id, error.entry_id) == (KEY, 7, 3)
    assert 1000 < error.offset <= 1700
    assert rows <= 3
    assert scan(in_memory(written), verify_checksums=False).to_table().num_rows == 4
    assert scan(in_memory(written), level="entries").to_table().num_rows == 4


@pytest.mark.parametrize("entry_id", [1, 2])
def test_a_block_with_an_entry_more_than_its_index_says_is_an_error_where_all_of_it_is_asked_for(entry_id):
    """The index says that the second block begins with entry 1: the first would have one entry, and has two."""
    written = two_blocks()
    blocks = [BlockEntry(first_entry_id=i, part_number=1 + i, offset=1000 * i) for i in range(2)]
    index = pack_pip17_index(ledger_metadata([b""] * 4), blocks, len(written.data))
    tier = in_memory(replace(written, index=index))
    _, error = fail(tier, level="entries", stop={TopicName(TOPIC): Position(7, entry_id)})
    assert (error.key, error.ledger_id, error.block, error.entry_id) == (KEY, 7, 1, 2)


def test_a_payload_that_decompresses_to_too_much_is_an_error():
    tier = in_memory(pip17_object([entry(b"x" * 1001, compression=ZSTD)]))
    _, error = fail(tier, max_message_bytes=1000)
    assert isinstance(error, DecompressionError)
    assert (error.key, error.ledger_id, error.entry_id) == (KEY, 7, 0)
    assert scan(tier, max_message_bytes=1001).to_table().num_rows == 1


# --- warnings ----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["messages", "entries"])
@pytest.mark.parametrize("difference", [-1, 1])
def test_a_ledger_whose_metadata_lies_about_its_length_is_read_with_a_warning(caplog, level, difference):
    payloads = [entry(b"a"), entry(b"b")]
    length = sum(map(len, payloads))
    metadata = ledger_metadata(payloads, length=length + difference)
    tier = in_memory(pip17_object(payloads, ledger_id=7, metadata=metadata))
    assert scan(tier, level=level).to_table().num_rows == 2
    (message,) = caplog.messages
    assert message.startswith(
        f"{KEY} (ledger 7) holds {length} bytes of entries, its metadata states {length + difference}: "
    )


@pytest.mark.parametrize("level", ["messages", "entries"])
def test_a_ledger_whose_metadata_is_right_is_read_without_a_word(caplog, level):
    tier = in_memory(pip17_object([entry(b"a" * 100)] * 9, max_block_bytes=500))
    assert scan(tier, level=level).to_table().num_rows == 9
    assert scan(tier, level=level, task_bytes=1).to_table().num_rows == 9
    assert caplog.messages == []


@pytest.mark.parametrize(
    "bounds", [{"start": Position(7, 4)}, {"stop": Position(7, 4)}, {"stop": Position(7, 4, 1)}]
)
def test_a_part_of_a_ledger_is_not_compared_with_the_length_of_all_of_it(caplog, bounds):
    payloads = [entry(b"a" * 100)] * 9
    tier = in_memory(pip17_object(payloads, metadata=ledger_metadata(payloads, length=1)))
    scan(tier, **{name: {TopicName(TOPIC): position} for name, position in bounds.items()}).to_table()
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            [encrypted_entry(b"?"), encrypted_entry(b"?"), entry(b"a")],
            "2 encrypted entries are passed on as ciphertext (column __valueIsRaw)",
        ),
        (
            chunk_entries(b"abc", 1),
            "3 chunks of messages are passed on one by one (columns __uuid, __chunkId)",
        ),
    ],
)
def test_entries_that_are_passed_on_raw_are_counted_in_a_warning(caplog, entries, message):
    tier = in_memory(pip17_object(entries, max_block_bytes=400))
    assert scan(tier, chunks="raw").to_table().num_rows == len(entries)
    assert caplog.messages == [f"{TOPIC}: {message}"]


# --- open_tier ---------------------------------------------------------------------------------


def test_a_tier_is_opened_by_path_url_and_drivers_name(tmp_path):
    lay_out(tmp_path, pip17_object([b"a"]))
    for tier in (
        open_tier(tmp_path),
        open_tier(str(tmp_path)),
        open_tier(tmp_path.as_uri()),
        open_tier("local", root=str(tmp_path)),
        open_tier(tmp_path.as_uri(), driver="local"),
    ):
        with tier:
            assert scan(tier, level="entries").to_table().num_rows == 1


@pytest.mark.parametrize(
    ("url", "options", "known"), [("s4://bucket/prefix", {}, "file"), ("s4", {"bucket": "b"}, "local")]
)
def test_an_unknown_scheme_or_driver_is_refused_with_those_that_are_known(url, options, known):
    with pytest.raises(LookupError, match=f"'s4'.*{known}"):
        open_tier(url, **options)


def test_an_unknown_option_is_refused_by_its_name(tmp_path):
    with pytest.raises(OptionError, match="bucket"):
        open_tier(tmp_path, bucket="b")


def test_a_tier_that_is_not_there_is_an_error_when_it_is_read(tmp_path):
    with open_tier(tmp_path / "nowhere") as tier, pytest.raises(FileNotFoundError, match="nowhere"):
        tier.catalogue()
