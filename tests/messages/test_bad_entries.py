"""Entries that are not what they should be: refused with their place, or read as the twin reads them."""

from __future__ import annotations

import struct
import tracemalloc

import google_crc32c
import pytest
from entries import CODECS, batch_entry, chunk_entries, encrypted_entry, entry, frame_entry, marker, single
from hypothesis import given
from hypothesis import strategies as st
from scenes.messages import ALL_COLUMNS, decoded_rows, reference_rows

from offload_hooks.errors import (
    BadLengthError,
    ChecksumError,
    DecompressionError,
    FormatError,
    MetadataError,
    TruncatedError,
)
from offload_proto.messages_pb2 import LZ4, ZLIB, BrokerEntryMetadata, EncryptionKeys, MessageMetadata

BROKER = BrokerEntryMetadata(broker_timestamp=1_700_000_000_000, index=41)
GOOD = entry(b"good")

ENTRIES = {
    "single": entry(b"hello", properties=[("k", "v")], partition_key="key", event_time=3),
    "base64 key": entry(b"hello", partition_key="aGk=", partition_key_b64_encoded=True),
    "broker metadata": entry(b"hello", broker=BROKER),
    "batch": batch_entry([b"one", b"", b"three"]),
    "lz4 batch": batch_entry([b"one" * 9, b"two"], compression=LZ4, broker=BROKER),
    "batch with properties": batch_entry(
        [single(b"x", properties=[("a", "b"), ("a", "c")], partition_key="k"), single(None)], singles=True
    ),
    "encrypted": encrypted_entry(b"secret"),
    "chunk": chunk_entries(b"chunked message", 8)[0],
    "marker": marker(),
}
KINDS = pytest.mark.parametrize("kind", sorted(ENTRIES))


def outcome(bad, rows_of=decoded_rows, **options):
    try:
        return rows_of([bad], **options)
    except FormatError as error:
        return error


def assert_like_twin(bad, **options):
    """Whether an entry is refused, by the decoder as by its twin."""
    found, right = outcome(bad, **options), outcome(bad, reference_rows, **options)
    if isinstance(found, FormatError):
        assert (found.ledger_id, found.entry_id) == (7, 0)
        assert found.offset is not None
        # Only of groups, a part of protobuf that Pulsar never used, does the twin accept more.
        assert isinstance(right, FormatError) or found.what == "an entry's metadata is not right"
        return True
    assert not isinstance(right, FormatError), right
    assert found == right
    return False


def refusal(bad, **options):
    """The error of an entry between two good ones, whose place must be right."""
    with pytest.raises(FormatError) as caught:
        decoded_rows([GOOD, bad, GOOD], first_entry_id=40, block_offset=1000, **options)
    error = caught.value
    start = 1000 + 12 + len(GOOD) + 12
    assert (error.ledger_id, error.entry_id) == (7, 41)
    assert start <= error.offset <= start + len(bad)
    error.offset -= start
    return error


def without_checksum(bad):
    at = bad.index(b"\x0e\x01")
    return bad[:at] + bad[at + 6 :]


# --- truncated and flipped ---------------------------------------------------------------------


@KINDS
def test_a_shorter_entry_is_refused_at_every_length(kind):
    whole = ENTRIES[kind]
    for length in range(len(whole)):
        assert isinstance(refusal(whole[:length]), FormatError)


@KINDS
def test_a_shorter_entry_without_checksum_is_read_as_the_twin_reads_it(kind):
    whole = without_checksum(ENTRIES[kind])
    refused = sum(assert_like_twin(whole[:length]) for length in range(len(whole) + 1))
    assert refused >= 4


@KINDS
def test_every_flipped_bit_is_noticed_by_the_checksum(kind):
    whole = ENTRIES[kind]
    covered = whole.index(b"\x0e\x01")
    for bit in range(covered * 8, len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        assert isinstance(outcome(bytes(flipped)), FormatError)


@KINDS
def test_every_flipped_bit_is_read_as_the_twin_reads_it_when_checksums_are_left_alone(kind, sample):
    whole = ENTRIES[kind]
    for bit in sample(range(len(whole) * 8), 9):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        assert_like_twin(bytes(flipped), verify_checksums=False)


@given(
    st.sampled_from(sorted(ENTRIES)),
    st.lists(
        st.tuples(st.integers(0, 200), st.integers(0, 30), st.binary(max_size=8)), min_size=1, max_size=3
    ),
)
def test_spliced_entries_are_read_as_the_twin_reads_them(kind, splices):
    bad = without_checksum(ENTRIES[kind])
    for at, size, new in splices:
        bad = bad[:at] + new + bad[at + size :]
    assert_like_twin(bad)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_the_twin_reads_them(bad):
    assert_like_twin(bad)


@given(st.binary(max_size=60), st.booleans())
def test_any_metadata_is_read_as_the_twin_reads_it(metadata, in_batch):
    required = b"\x0a\x01p\x10\x01\x18\x01"
    if in_batch:
        bad = entry(struct.pack(">i", len(metadata)) + metadata, num_messages_in_batch=1)
    else:
        bad = frame_entry(required + metadata, b"payload")
    assert_like_twin(bad)


# --- one fault each ----------------------------------------------------------------------------


def test_a_wrong_checksum_is_named():
    body = GOOD[6:]
    right = google_crc32c.value(body)
    error = refusal(b"\x0e\x01" + struct.pack(">I", right ^ 1) + body)
    assert isinstance(error, ChecksumError)
    assert (error.offset, error.expected, error.found) == (2, f"CRC-32C {right ^ 1:08x}", f"{right:08x}")


REQUIRED = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString()


@pytest.mark.parametrize(
    ("bad", "kind", "offset"),
    [
        (b"", TruncatedError, 0),
        (b"\0\0\0", TruncatedError, 0),
        (struct.pack(">i", -1), BadLengthError, 0),
        (struct.pack(">i", 1), BadLengthError, 0),
        (struct.pack(">i", 2**31 - 1) + b"x", BadLengthError, 0),
        (b"\x0e\x02" + struct.pack(">i", -1) + GOOD, BadLengthError, 2),
        (b"\x0e\x02" + struct.pack(">i", 999) + GOOD, BadLengthError, 2),
        (b"\x0e\x02" + struct.pack(">i", 1) + b"\xff" + GOOD, MetadataError, 6),
        (b"\x0e\x02" + struct.pack(">i", 2) + b"\x1a\x01" + GOOD, MetadataError, 6),
        (frame_entry(b"\xff", b""), MetadataError, 10),
        (frame_entry(b"", b""), MetadataError, 10),
        (frame_entry(REQUIRED[:-2], b""), MetadataError, 10),
        (frame_entry(REQUIRED[3:], b""), MetadataError, 10),
        (frame_entry(b"\x08\x01" + REQUIRED[3:], b""), MetadataError, 10),
        (frame_entry(REQUIRED[:3] + REQUIRED[5:], b""), MetadataError, 10),
        (frame_entry(REQUIRED + b"\x22\x02\x0a\x00", b""), MetadataError, 0),
        (frame_entry(REQUIRED + b"\x22\x03\x0a\x05k", b""), MetadataError, 0),
        (frame_entry(REQUIRED + b"\x00\x01", b""), MetadataError, 10),
        (frame_entry(REQUIRED + b"\x0e\x01", b""), MetadataError, 10),
        (frame_entry(REQUIRED + b"\x98\x80\x80\x80\x80\x01\x01", b""), MetadataError, 10),
        (frame_entry(REQUIRED + b"\x18" + b"\xff" * 10 + b"\x01", b""), MetadataError, 10),
        (frame_entry(REQUIRED + b"\x6a\x03\x0a\x01k", b""), MetadataError, 0),
    ],
)
def test_a_fault_of_an_entrys_head_is_named(bad, kind, offset):
    error = refusal(bad)
    assert (type(error), error.offset) == (kind, offset)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"properties": [("k", "v")]}, None),
        ({"num_messages_in_batch": 2}, "the length of metadata of message 1 of a batch is cut off"),
        ({"num_messages_in_batch": 0}, "a batch goes on after its last message"),
        ({"num_messages_in_batch": -5}, "a batch goes on after its last message"),
        ({"num_messages_in_batch": 2**31 - 1}, "the length of metadata of message 1 of a batch is cut off"),
    ],
)
def test_a_batch_count_that_lies_is_refused(options, what):
    bad = entry(single(b"only one message"), **options)
    if what is None:
        assert decoded_rows([bad])[0]["__batchIndex"] == -1
        return
    error = refusal(bad)
    assert isinstance(error, BadLengthError)
    assert (error.what, error.offset) == (what, 0)


def test_a_batch_count_that_is_too_small_is_refused():
    error = refusal(batch_entry([b"a", b"b", b"c"], num_messages_in_batch=2))
    assert isinstance(error, BadLengthError)
    assert (error.expected, error.found) == ("the end after 2 messages", "7 more bytes")


@pytest.mark.parametrize("size", [-1, 2, 2**31 - 1])
def test_a_message_of_a_batch_must_fit_and_say_its_size(size):
    error = refusal(batch_entry([single(b"x", payload_size=size)], singles=True))
    assert isinstance(error, BadLengthError)
    assert error.what == "message 0 of a batch has a length that does not fit"
    assert (error.expected, error.found) == ("0 to 1", size)
    error = refusal(entry(struct.pack(">i", 0) + bytes(8), num_messages_in_batch=1))
    assert (type(error), error.expected) == (MetadataError, "payload_size")


@pytest.mark.parametrize("codec", sorted(set(CODECS) - {0}))
@pytest.mark.parametrize("off", [-1, 1, -20, 1000])
def test_a_size_that_lies_is_refused(codec, off):
    payload = b"twenty bytes and one."
    error = refusal(entry(payload, compression=codec, uncompressed_size=len(payload) + off))
    assert isinstance(error, DecompressionError)
    assert error.expected == f"{len(payload) + off} bytes"


@pytest.mark.parametrize("codec", sorted(set(CODECS) - {0}))
@pytest.mark.parametrize("size", [65, 2**32 - 1])
def test_a_size_larger_than_allowed_is_refused(codec, size):
    error = refusal(entry(b"x" * 65, compression=codec, uncompressed_size=size), max_message_bytes=64)
    assert isinstance(error, DecompressionError)
    assert (error.expected, error.found) == ("at most 64 bytes (option max_message_bytes)", size)
    assert decoded_rows([entry(b"x" * 64, compression=codec)], max_message_bytes=64)[0]["value"] == b"x" * 64


@pytest.mark.parametrize("codec", sorted(set(CODECS) - {0}))
def test_a_compressed_entry_must_say_its_size(codec):
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, compression=codec)
    error = refusal(frame_entry(metadata.SerializeToString(), CODECS[codec](b"x")))
    assert isinstance(error, DecompressionError)
    assert error.found == "none"


@pytest.mark.parametrize("codec", [5, -1, 2**31 - 1])
def test_an_unknown_compression_is_refused(codec):
    error = refusal(entry(b"x", compression=codec))
    assert isinstance(error, DecompressionError)
    assert (error.expected, error.found) == ("0 NONE, 1 LZ4, 2 ZLIB, 3 ZSTD, 4 SNAPPY", codec)


@pytest.mark.parametrize("codec", sorted(set(CODECS) - {0}))
def test_a_broken_payload_is_refused_at_every_shorter_length(codec):
    payload = b"something that compresses, that compresses" * 3
    compressed = CODECS[codec](payload)
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, compression=codec, uncompressed_size=len(payload)
    ).SerializeToString()
    for length in range(len(compressed) - 4 if codec == ZLIB else len(compressed)):
        assert isinstance(refusal(frame_entry(metadata, compressed[:length])), DecompressionError)


NOT_UTF8 = b"\xff\xfe"


@pytest.mark.parametrize(
    ("bad", "column"),
    [
        (frame_entry(b"\x0a\x02" + NOT_UTF8 + b"\x10\x01\x18\x01", b""), "__producerName"),
        (frame_entry(REQUIRED + b"\xd2\x01\x02" + NOT_UTF8, b""), "__uuid"),
        (frame_entry(REQUIRED + b"\x72\x02" + NOT_UTF8, b""), "__encryptionAlgorithm"),
        (frame_entry(REQUIRED + b"\x22\x06\x0a\x02" + NOT_UTF8 + b"\x12\x00", b""), "__messageProperties"),
        (frame_entry(REQUIRED + b"\x22\x06\x0a\x00\x12\x02" + NOT_UTF8, b""), "__messageProperties"),
        (frame_entry(REQUIRED + b"\x6a\x06\x0a\x02" + NOT_UTF8 + b"\x12\x00", b""), "__encryptionKeys"),
        (frame_entry(REQUIRED + b"\x6a\x02\x0a\x00", b""), "__encryptionKeys"),
        (frame_entry(REQUIRED + b"\x6a\x02\x0a\x07", b""), "__encryptionKeys"),
        (frame_entry(REQUIRED + b"\x22\x02\x0a\x00", b""), "__messageProperties"),
    ],
)
def test_a_fault_that_only_a_column_sees_names_the_entry(bad, column):
    error = refusal(bad, columns=["value", column])
    assert isinstance(error, MetadataError)
    assert refusal(bad, columns=ALL_COLUMNS).what == error.what
    others = [name for name in ALL_COLUMNS if name != column]
    assert len(decoded_rows([GOOD, bad], columns=others)) == 2


@pytest.mark.parametrize("key", ["a", "====", "a b=", "ключ", "aGk"])
def test_a_key_that_is_not_base64_is_refused(key):
    bad = entry(b"", partition_key=key, partition_key_b64_encoded=True)
    error = refusal(bad)
    assert isinstance(error, MetadataError)
    assert error.what.startswith("a key is not the base64 that it says")
    in_batch = batch_entry(
        [single(b"x"), single(b"y", partition_key=key, partition_key_b64_encoded=True)], singles=True
    )
    assert isinstance(refusal(in_batch), MetadataError)


# --- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        entry(b"x" * 100, num_messages_in_batch=2**31 - 1),
        entry(b"x", compression=LZ4, uncompressed_size=2**32 - 1),
        entry(b"x", compression=LZ4, uncompressed_size=2**32 - 1, num_messages_in_batch=2**31 - 1),
        frame_entry(REQUIRED + b"\x22\xff\xff\xff\xff\x07", b""),
    ],
)
def test_counts_that_lie_take_no_memory(bad):
    tracemalloc.start()
    try:
        assert isinstance(outcome(bad), FormatError)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ("producer_name", "__producerName"),
        ("uuid", "__uuid"),
        ("encryption_algo", "__encryptionAlgorithm"),
        ("schema_version", "__schemaVersion"),
    ],
)
def test_a_long_name_is_not_repeated_without_end(field, column):
    name = b"n" * 200_000 if field == "schema_version" else "n" * 200_000
    bad = batch_entry([b""] * 4_000, **{field: name})
    error = refusal(bad, columns=[column])
    assert isinstance(error, BadLengthError)
    assert 200_000 * 4_000 <= error.found < 200_001 * 4_000
    assert len(decoded_rows([bad], columns=["value"])) == 4_000


def test_encryption_keys_of_a_batch_entry_are_of_its_one_row():
    keys = [EncryptionKeys(key="k", value=b"v")]
    rows = decoded_rows([batch_entry([b"a", b"b"], encryption_keys=keys)])
    assert [row["__encryptionKeys"] for row in rows] == [[{"name": "k", "value": b"v", "metadata": []}]]
