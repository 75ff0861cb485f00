"""The columns of entries and messages: names, Arrow types, which are there unless asked otherwise.

Names and types are those of streamnative/pulsar-spark, so that a query can union a live read with ours. All columns
are nullable, all binary is plain `binary`: Spark takes no other. Source: docs/columns.md.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import pyarrow as pa

from offload_hooks.errors import OptionError

Mode = Literal["FAILFAST", "PERMISSIVE", "DROPMALFORMED"]
"""Treatment of a message that cannot be read: Spark's words."""

MODES: tuple[Mode, ...] = ("FAILFAST", "PERMISSIVE", "DROPMALFORMED")

Level = Literal["messages", "entries"]

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_KEY_VALUES = pa.map_(pa.string(), pa.string())

MESSAGE_COLUMNS: dict[str, pa.DataType] = {
    "value": pa.binary(),
    "__key": pa.binary(),
    "__topic": pa.string(),
    "__messageId": pa.binary(),
    "__publishTime": _TIMESTAMP,
    "__eventTime": _TIMESTAMP,
    "__messageProperties": _KEY_VALUES,
    "__partition": pa.int32(),
    "__sequenceId": pa.int64(),
    "__producerName": pa.string(),
    "__ledgerId": pa.int64(),
    "__entryId": pa.int64(),
    "__batchIndex": pa.int32(),
}
"""The columns of messages that are there unless `columns` asks for others."""

EXTRA_MESSAGE_COLUMNS: dict[str, pa.DataType] = {
    "__batchSize": pa.int32(),
    "__keyIsBase64": pa.bool_(),
    "__orderingKey": pa.binary(),
    "__schemaVersion": pa.binary(),
    "__nullValue": pa.bool_(),
    "__deliverAtTime": _TIMESTAMP,
    "__replicatedFrom": pa.string(),
    "__replicateTo": pa.list_(pa.string()),
    "__brokerPublishTime": _TIMESTAMP,
    "__brokerIndex": pa.int64(),
    "__txnIdMost": pa.int64(),
    "__txnIdLeast": pa.int64(),
    "__txnState": pa.string(),
    "__uuid": pa.string(),
    "__chunkId": pa.int32(),
    "__numChunks": pa.int32(),
    "__chunkedSize": pa.int32(),
    "__compression": pa.int32(),
    "__uncompressedSize": pa.int64(),
    "__valueIsRaw": pa.bool_(),
    "__encryptionAlgorithm": pa.string(),
    "__encryptionParam": pa.binary(),
    "__encryptionKeys": pa.list_(
        pa.struct([("name", pa.string()), ("value", pa.binary()), ("metadata", _KEY_VALUES)])
    ),
}
"""Columns of messages that are there only when `columns` names them."""

ENTRY_COLUMNS: dict[str, pa.DataType] = {
    "value": pa.binary(),
    "__topic": pa.string(),
    "__ledgerId": pa.int64(),
    "__entryId": pa.int64(),
}
"""The columns of entries."""


def arrow_schema(level: Level, columns: Sequence[str] | None = None) -> pa.Schema:
    """The schema of a scan: the default columns of `level`, or those named, in that order.

    Raises:
        OptionError: an unknown level or column (the known ones are listed), a column named twice, or none.
    """
    if level not in ("messages", "entries"):
        raise OptionError("there is no such level", expected="messages or entries", found=level)
    default = ENTRY_COLUMNS if level == "entries" else MESSAGE_COLUMNS
    known = default if level == "entries" else MESSAGE_COLUMNS | EXTRA_MESSAGE_COLUMNS
    return choose_columns(columns, default, known, f"at level {level}")


def choose_columns(
    columns: Sequence[str] | None, default: Iterable[str], known: Mapping[str, pa.DataType], where: str
) -> pa.Schema:
    """The schema of the columns named, in that order, or of the `default` ones; `where` is for errors.

    Raises:
        OptionError: a column that is not among the `known` (which are listed), one named twice, or none.
    """
    chosen = list(default) if columns is None else list(columns)
    if not chosen:
        raise OptionError("no column is asked for", expected=", ".join(known))
    seen: set[str] = set()
    for column in chosen:
        if column not in known:
            close = difflib.get_close_matches(column, known, n=1)
            raise OptionError(
                f"there is no column {column!r} {where}",
                expected=", ".join(known),
                hint=f"Did you mean {close[0]!r}?" if close else None,
            )
        if column in seen:
            raise OptionError(f"column {column!r} is asked for twice")
        seen.add(column)
    return pa.schema([pa.field(column, known[column]) for column in chosen])
