"""The columns of messages: for each name, the Arrow array of one group of entries.

A group is a run of entries whose payloads lie in one block and, once decompressed, one scratch buffer. Only the
columns that are asked for are made.
"""

from __future__ import annotations

import base64
import binascii
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError

from offload_core.format.messages.arrow_arrays import (
    Bytes,
    Constant,
    Table,
    checked_text,
    new_bytes,
    new_offsets,
    nulls,
    numbers_to_array,
    spans_to_array,
    times_to_array,
)
from offload_core.format.messages.kernels import column_spans as kernels
from offload_core.format.messages.kernels import entry_fields as f
from offload_core.format.messages.message_columns import EXTRA_MESSAGE_COLUMNS, MESSAGE_COLUMNS
from offload_hooks.errors import BadLengthError, MetadataError
from offload_proto.messages_pb2 import MessageIdData, MessageMetadata

SHORT_BYTES = 256
"""Most bytes of a name that is made once for all entries of a group, and cached for the next."""

MOST_REPEATED_BYTES = 1 << 28
"""Most bytes of a column that repeats a fact of an entry for each of its messages."""

TRANSACTION_STATES = ("committed", "aborted", "open")
"""By the states of `kernels.fields`."""

_EMPTY = np.empty(0, dtype=np.uint8)
_NEVER = -(2**63)
_PAIR = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The tables of a group: `entries` (a row each) and `messages` (a column each) int64, laid out by `kernels.fields`.

    `block` and `scratch` are uint8.

    `entry_ids` (int64) are the ids of the rows of `entries`. `first_chunks` has ledger and entry of the first chunk of
    a message that was joined, by the row of its last.
    """

    block: Bytes
    scratch: Bytes
    entries: Table
    messages: Table
    ledger_id: int
    partition: int
    entry_ids: npt.NDArray[np.int64]
    first_chunks: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def entry_rows(self) -> npt.NDArray[np.int64]:
        """For each message its entry's row."""
        rows: npt.NDArray[np.int64] = self.messages[f.M_ENTRY]
        return rows

    def of_entries(self, field: int) -> Table:
        """An entry's fact for each message."""
        facts: Table = self.entries[:, field][self.entry_rows]
        return facts

    def message_spans(self, field: int, scratch_flag: int, data_type: pa.DataType) -> pa.Array:
        """The column of a span that `messages` has; its length stands in the next field."""
        table = self.messages
        return spans_to_array(
            self.block,
            self.scratch,
            table[f.M_FLAGS],
            scratch_flag,
            table[field],
            table[field + 1],
            data_type,
        )

    def entry_spans(self, field: int, data_type: pa.DataType) -> pa.Array:
        """The column of a span that `entries` has; its length stands in the next field."""
        rows = self.entry_rows
        first, last = int(rows[0]), int(rows[-1]) + 1
        offsets = np.ascontiguousarray(self.entries[first:last, field])
        lengths = np.ascontiguousarray(self.entries[first:last, field + 1])
        if lengths[0] <= SHORT_BYTES and kernels.all_same(self.block, offsets, lengths):
            same = None if lengths[0] < 0 else self.block[offsets[0] : offsets[0] + lengths[0]].tobytes()
            return _repeated(same, data_type).rows(len(rows))
        repeated = int(np.maximum(self.of_entries(field + 1), 0).sum())
        if repeated > MOST_REPEATED_BYTES:
            raise BadLengthError(
                "a name of entries is too long to be repeated for each of their messages",
                expected=f"at most {MOST_REPEATED_BYTES} bytes in all",
                found=repeated,
            )
        array = spans_to_array(self.block, _EMPTY, offsets, 0, offsets, lengths, data_type)
        one_each = len(rows) == last - first and bool((np.diff(rows) == 1).all())
        return array if one_each else array.take(pa.array(rows - first))


@functools.lru_cache(maxsize=64)
def _repeated(data: bytes | None, data_type: pa.DataType) -> Constant:
    array = pa.array([data], type=pa.binary()).view(data_type)
    return Constant((checked_text(array) if pa.types.is_string(data_type) else array)[0])


def _value(group: Group) -> pa.Array:
    return group.message_spans(f.M_VALUE, f.VALUE_IN_SCRATCH, pa.binary())


def _key(group: Group) -> pa.Array:
    stored = group.message_spans(f.M_KEY, f.METADATA_IN_SCRATCH, pa.binary())
    if stored.null_count == len(stored):
        return stored
    encoded = np.flatnonzero(group.messages[f.M_FLAGS] & f.KEY_IS_BASE64)
    if len(encoded) == 0:
        return stored
    keys = stored.to_pylist()
    for row in encoded.tolist():
        if keys[row] is not None:
            try:
                keys[row] = base64.b64decode(keys[row], validate=True)
            except binascii.Error as error:
                entry_id = int(group.entry_ids[group.entry_rows[row]])
                raise MetadataError(
                    f"a key is not the base64 that it says: {error}", entry_id=entry_id
                ) from error
    return pa.array(keys, type=pa.binary())


def _message_id(group: Group) -> pa.Array:
    rows = len(group.entry_rows)
    buffer, values = new_bytes(rows * kernels.MESSAGE_ID_BYTES)
    offsets_buffer, offsets = new_offsets(rows)
    size = kernels.pack_message_ids(
        group.ledger_id,
        group.partition,
        group.entry_ids,
        group.entry_rows,
        group.messages[f.M_BATCH_INDEX],
        group.entries[:, f.E_BATCH_SIZE],
        values,
        offsets,
    )
    ids = pa.Array.from_buffers(
        pa.binary(), rows, [None, offsets_buffer, buffer.slice(0, size)], null_count=0
    )
    return _with_first_chunks(group, ids) if group.first_chunks else ids


def _with_first_chunks(group: Group, ids: pa.Array) -> pa.Array:
    """A chunked message's id also has that of its first chunk, where a consumer that seeks it begins."""
    packed = ids.to_pylist()
    for row, entry in enumerate(group.entry_rows.tolist()):
        if entry in group.first_chunks:
            message_id = MessageIdData.FromString(packed[row])
            first = message_id.first_chunk_message_id
            first.ledgerId, first.entryId = group.first_chunks[entry]
            if group.partition >= 0:
                first.partition = group.partition
            packed[row] = message_id.SerializeToString()
    return pa.array(packed, type=pa.binary())


def _properties(group: Group) -> pa.Array:
    rows = len(group.entry_rows)
    counts = group.messages[f.M_PROPERTIES]
    if not counts.any():
        return _no_properties().rows(rows)
    total = int(counts.sum())
    room = int((group.messages[f.M_METADATA_END] - group.messages[f.M_METADATA])[counts > 0].sum())
    (row_buffer, row_offsets), (key_offsets_buffer, key_offsets) = new_offsets(rows), new_offsets(total)
    (keys_buffer, keys), (values_buffer, values) = new_bytes(room), new_bytes(room)
    value_offsets_buffer, value_offsets = new_offsets(total)
    right = kernels.gather_properties(
        group.block,
        group.scratch,
        counts,
        group.messages[f.M_BATCH_INDEX],
        group.messages[f.M_FLAGS],
        group.messages[f.M_METADATA],
        group.messages[f.M_METADATA_END],
        row_offsets,
        keys,
        key_offsets,
        values,
        value_offsets,
    )
    if not right:
        raise MetadataError("a message's property lacks its key or value")
    entries = [
        checked_text(pa.Array.from_buffers(pa.string(), total, [None, offsets, data], null_count=0))
        for offsets, data in ((key_offsets_buffer, keys_buffer), (value_offsets_buffer, values_buffer))
    ]
    pairs = pa.StructArray.from_arrays(entries, fields=list(_PAIR))
    return pa.Array.from_buffers(
        MESSAGE_COLUMNS["__messageProperties"], rows, [None, row_buffer], null_count=0, children=[pairs]
    )


@functools.cache
def _no_properties() -> Constant:
    return Constant(pa.scalar([], type=MESSAGE_COLUMNS["__messageProperties"]))


def _parsed(
    counted: int, of: Callable[[MessageMetadata], object], data_type: pa.DataType
) -> Callable[[Group], pa.Array]:
    """A column of a list that few entries have, by the generated class; null where the field `counted` is 0."""

    def make(group: Group) -> pa.Array:
        rows = group.entry_rows
        if not group.entries[rows, counted].any():
            return nulls(data_type).rows(len(rows))
        by_entry = {
            row: of(_metadata(group, row)) if group.entries[row, counted] else None
            for row in np.unique(rows).tolist()
        }
        try:
            return pa.array([by_entry[row] for row in rows.tolist()], type=data_type)
        except pa.ArrowInvalid as error:
            raise MetadataError(f"a name in an entry's metadata is not UTF-8 text: {error}") from error

    return make


def _metadata(group: Group, row: int) -> MessageMetadata:
    entry = group.entries[row]
    stored = group.block[entry[f.E_METADATA] : entry[f.E_METADATA_END]].tobytes()
    try:
        return MessageMetadata.FromString(stored)
    except DecodeError as error:
        raise MetadataError(f"an entry's metadata cannot be parsed: {error}") from error


def _keys_of(metadata: MessageMetadata) -> list[dict[str, object]]:
    if not all(key.IsInitialized() for key in metadata.encryption_keys):
        raise MetadataError("an encryption key lacks its name or value")
    return [
        {"name": key.key, "value": key.value, "metadata": [(item.key, item.value) for item in key.metadata]}
        for key in metadata.encryption_keys
    ]


def _entry_number(field: int, data_type: pa.DataType, absent: int | None) -> Callable[[Group], pa.Array]:
    def make(group: Group) -> pa.Array:
        numbers = group.of_entries(field)
        return numbers_to_array(numbers, data_type, None if absent is None else numbers == absent)

    return make


def _batch_size(group: Group) -> pa.Array:
    sizes = np.where(group.messages[f.M_BATCH_INDEX] < 0, 0, group.of_entries(f.E_BATCH_SIZE))
    return numbers_to_array(sizes, pa.int32())


def _broker_index(group: Group) -> pa.Array:
    last = group.of_entries(f.E_BROKER_INDEX)
    batch_index = group.messages[f.M_BATCH_INDEX]
    later = np.where(batch_index < 0, 0, group.of_entries(f.E_BATCH_SIZE) - 1 - batch_index)
    return numbers_to_array(last - later, pa.int64(), last < 0)


def _transaction_state(group: Group) -> pa.Array:
    outside = (group.of_entries(f.E_TXN_MOST) == -1) | (group.of_entries(f.E_TXN_LEAST) == -1)
    states = pa.array(group.of_entries(f.E_TXN_STATE), mask=outside)
    return pa.array(TRANSACTION_STATES, type=pa.string()).take(states)


def _publish_time(group: Group) -> pa.Array:
    return times_to_array(group.of_entries(f.E_PUBLISH_TIME), _NEVER)


def _event_time(group: Group) -> pa.Array:
    return times_to_array(group.messages[f.M_EVENT_TIME], 0)


def _broker_publish_time(group: Group) -> pa.Array:
    return times_to_array(group.of_entries(f.E_BROKER_TIMESTAMP), -1)


MAKERS: dict[str, Callable[[Group], pa.Array]] = {
    "value": _value,
    "__key": _key,
    "__messageId": _message_id,
    "__publishTime": _publish_time,
    "__eventTime": _event_time,
    "__messageProperties": _properties,
    "__sequenceId": lambda group: numbers_to_array(group.messages[f.M_SEQUENCE_ID], pa.int64()),
    "__producerName": lambda group: group.entry_spans(f.E_PRODUCER, pa.string()),
    "__entryId": lambda group: numbers_to_array(group.entry_ids[group.entry_rows], pa.int64()),
    "__batchIndex": lambda group: numbers_to_array(group.messages[f.M_BATCH_INDEX], pa.int32()),
    "__batchSize": _batch_size,
    "__keyIsBase64": lambda group: pa.array(group.messages[f.M_FLAGS] & f.KEY_IS_BASE64 != 0),
    "__orderingKey": lambda group: group.message_spans(f.M_ORDERING_KEY, f.METADATA_IN_SCRATCH, pa.binary()),
    "__schemaVersion": lambda group: group.entry_spans(f.E_SCHEMA_VERSION, pa.binary()),
    "__nullValue": lambda group: pa.array(group.messages[f.M_FLAGS] & f.NULL_VALUE != 0),
    "__deliverAtTime": lambda group: times_to_array(group.of_entries(f.E_DELIVER_AT_TIME), -1),
    "__replicatedFrom": lambda group: group.entry_spans(f.E_REPLICATED_FROM, pa.string()),
    "__replicateTo": _parsed(
        f.E_REPLICATE_TO, lambda metadata: list(metadata.replicate_to), EXTRA_MESSAGE_COLUMNS["__replicateTo"]
    ),
    "__brokerPublishTime": _broker_publish_time,
    "__brokerIndex": _broker_index,
    "__txnIdMost": _entry_number(f.E_TXN_MOST, pa.int64(), -1),
    "__txnIdLeast": _entry_number(f.E_TXN_LEAST, pa.int64(), -1),
    "__txnState": _transaction_state,
    "__uuid": lambda group: group.entry_spans(f.E_UUID, pa.string()),
    "__chunkId": _entry_number(f.E_CHUNK_ID, pa.int32(), -1),
    "__numChunks": _entry_number(f.E_CHUNKS, pa.int32(), -1),
    "__chunkedSize": _entry_number(f.E_CHUNKED_SIZE, pa.int32(), -1),
    "__compression": _entry_number(f.E_COMPRESSION, pa.int32(), None),
    "__uncompressedSize": _entry_number(f.E_UNCOMPRESSED_SIZE, pa.int64(), -1),
    "__valueIsRaw": lambda group: pa.array(group.messages[f.M_FLAGS] & f.VALUE_IS_RAW != 0),
    "__encryptionAlgorithm": lambda group: group.entry_spans(f.E_ENCRYPTION_ALGORITHM, pa.string()),
    "__encryptionParam": lambda group: group.entry_spans(f.E_ENCRYPTION_PARAM, pa.binary()),
    "__encryptionKeys": _parsed(f.E_ENCRYPTION_KEYS, _keys_of, EXTRA_MESSAGE_COLUMNS["__encryptionKeys"]),
}
"""The maker of each column, but for those that are the same for a whole ledger."""
