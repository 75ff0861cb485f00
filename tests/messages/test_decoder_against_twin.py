"""The kernels read of any entries what the plain twin reads: the same rows, in order, in every column."""

from __future__ import annotations

import base64
from typing import Any

from entries import CODECS, batch_entry, encrypted_entry, entry, marker, single
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes.messages import decoded_rows, reference_rows

from offload_core.format.messages.message_decoder import EntryCounts
from offload_proto.messages_pb2 import BrokerEntryMetadata

UINT64S = st.one_of(st.integers(0, 200), st.integers(0, 2**64 - 1))
INT32S = st.one_of(st.integers(-1, 3), st.integers(-(2**31), 2**31 - 1))
TIMES_MS = st.one_of(st.just(0), st.integers(1_600_000_000_000, 1_900_000_000_000), UINT64S)
TEXT = st.text(max_size=6)
PROPERTIES = st.lists(st.tuples(st.sampled_from(["", "a", "ключ", "b"]) | TEXT, TEXT), max_size=4)
VALUES = st.one_of(st.just(b""), st.binary(max_size=30), st.integers(0, 400).map(lambda n: b"ab" * n))
CODEC = st.sampled_from(sorted(CODECS))

UNKNOWN_FIELDS = st.lists(
    st.sampled_from(
        [
            bytes([0xFA, 0x3E, 3]) + b"new",  # 1007, bytes
            bytes([0x80, 0x3F, 0x80, 0x01]),  # 1008, varint
            bytes([0x8D, 0x3F, 1, 2, 3, 4]),  # 1009, fixed32
            bytes([0x91, 0x3F, 1, 2, 3, 4, 5, 6, 7, 8]),  # 1010, fixed64
            bytes([0xFA, 0xFF, 0xFF, 0xFF, 0x0F, 0]),  # 2^29 − 1, empty
            bytes([0x0D, 1, 2, 3, 4]),  # 1 with another wire type
            bytes([0x08, 5]),  # the same
            bytes([0x12, 1, 9]),  # 2 with another wire type
        ]
    ),
    max_size=3,
).map(b"".join)


def some_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


KEYS = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"partition_key": TEXT}),
    st.fixed_dictionaries({"partition_key": TEXT, "partition_key_b64_encoded": st.just(False)}),
    st.fixed_dictionaries(
        {
            "partition_key": st.binary(max_size=5).map(lambda key: base64.b64encode(key).decode()),
            "partition_key_b64_encoded": st.just(True),
        }
    ),
    st.just({"partition_key_b64_encoded": True}),
    st.just({"null_partition_key": True}),
)
ENTRY_FIELDS = some_of(
    producer_name=TEXT,
    sequence_id=UINT64S,
    publish_time=TIMES_MS,
    event_time=TIMES_MS,
    schema_version=st.binary(max_size=8),
    ordering_key=st.binary(max_size=4),
    replicated_from=TEXT,
    replicate_to=st.lists(TEXT, max_size=2),
    deliver_at_time=st.integers(-(2**63), 2**63 - 1),
    highest_sequence_id=UINT64S,
    txnid_least_bits=UINT64S,
    txnid_most_bits=UINT64S,
    uuid=TEXT,
    num_chunks_from_msg=st.sampled_from([-1, 0, 1]),
    chunk_id=INT32S,
    total_chunk_msg_size=INT32S,
    properties=PROPERTIES,
    unknown=UNKNOWN_FIELDS,
)
FRAME = st.fixed_dictionaries(
    {
        "checksum": st.booleans(),
        "broker": st.none()
        | st.builds(BrokerEntryMetadata, broker_timestamp=TIMES_MS, index=UINT64S)
        | st.builds(BrokerEntryMetadata),
    }
)
SINGLES = st.builds(
    lambda payload, fields, key: single(payload, **fields | key),
    st.none() | VALUES,
    some_of(
        properties=PROPERTIES,
        compacted_out=st.booleans(),
        event_time=TIMES_MS,
        ordering_key=st.binary(max_size=4),
        sequence_id=UINT64S,
        null_value=st.booleans(),
        null_partition_key=st.booleans(),
    ),
    KEYS,
)
WHOLE = st.builds(
    lambda payload, codec, null, *fields: entry(
        payload, compression=codec, **null, **{k: v for part in fields for k, v in part.items()}
    ),
    VALUES,
    CODEC,
    some_of(null_value=st.booleans()),
    ENTRY_FIELDS,
    KEYS,
    FRAME,
)
BATCHES = st.builds(
    lambda messages, codec, *fields: batch_entry(
        messages, singles=True, compression=codec, **{k: v for part in fields for k, v in part.items()}
    ),
    st.lists(SINGLES, max_size=6),
    CODEC,
    ENTRY_FIELDS,
    KEYS,
    FRAME,
)
RAW = st.builds(
    lambda payload, names, codec, batch, *fields: encrypted_entry(
        payload, names=names, compression=codec, **batch, **{k: v for part in fields for k, v in part.items()}
    ),
    VALUES,
    st.lists(TEXT, min_size=1, max_size=3),
    CODEC,
    some_of(num_messages_in_batch=st.integers(0, 5)),
    ENTRY_FIELDS,
    KEYS,
    FRAME,
)
CHUNKS = st.builds(
    lambda payload, chunks, codec, fields, frame: entry(
        payload, compression=codec, **fields | frame | {"num_chunks_from_msg": chunks}
    ),
    VALUES,
    st.integers(2, 2**31 - 1),
    CODEC,
    ENTRY_FIELDS,
    FRAME,
)
MARKERS = st.builds(
    lambda kind, fields, frame: marker(kind, **fields | frame),
    st.sampled_from([-1, 0, 10, 13, 20, 21, 22]),
    ENTRY_FIELDS,
    FRAME,
)
ENTRIES = st.lists(st.one_of(WHOLE, BATCHES, BATCHES, RAW, CHUNKS, MARKERS), max_size=5)


@settings(deadline=None)  # the first example may compile
@given(ENTRIES, st.booleans(), st.sampled_from([-1, 0, 3, 2**31 - 1]), st.sampled_from([0, 9, 2**40]))
def test_rows_are_those_of_the_twin(entries, verify_checksums, partition, first_entry_id):
    options = {
        "verify_checksums": verify_checksums,
        "partition": partition,
        "first_entry_id": first_entry_id,
        "ledger_id": 2**40 + first_entry_id,
    }
    assert decoded_rows(entries, **options) == reference_rows(entries, **options)


@settings(deadline=None)  # the first example may compile
@given(st.lists(st.one_of(WHOLE, BATCHES, RAW, MARKERS), min_size=1, max_size=3), st.data())
def test_any_choice_of_columns_gives_the_same_values(entries: list[bytes], data: st.DataObject):
    rows = reference_rows(entries)
    columns = data.draw(st.lists(st.sampled_from(sorted(ALL)), min_size=1, max_size=4, unique=True))
    assert decoded_rows(entries, columns=columns) == [{name: row[name] for name in columns} for row in rows]


ALL = frozenset(reference_rows([entry(b"")])[0])


@settings(deadline=None)  # the first example may compile
@given(st.lists(RAW, max_size=2), st.lists(CHUNKS, max_size=2), st.lists(MARKERS, max_size=2))
def test_what_is_passed_on_raw_is_counted(encrypted, chunks, markers):
    counts = EntryCounts()
    plain = {"columns": ["value", "__txnIdMost"], "counts": counts}
    decoded_rows([*encrypted, *chunks, *markers], **plain)
    assert counts.encrypted == len(encrypted)
    assert counts.chunks == len(chunks)
