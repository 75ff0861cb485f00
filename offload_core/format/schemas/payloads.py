"""The last step of reading: record batches with `value` → record batches with typed columns.

Each message is decoded by the version of its schema that it names, and resolved to the reader's. What cannot be decoded
is an error, null columns with the payload beside them, or left out (`mode`). Source: docs/schemas.md.

The decoders are imported where one is made: readers that are not asked for typed columns start sooner without them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.messages.message_columns import (
    EXTRA_MESSAGE_COLUMNS,
    MESSAGE_COLUMNS,
    Mode,
    choose_columns,
)
from offload_core.format.schemas.payload_spans import Spans, ValueDecoder, spans_of
from offload_hooks.errors import OptionError, PayloadError, SchemaError, placed
from offload_hooks.schemas import SchemaHistory, SchemaVersion

CORRUPT_RECORD = "_corrupt_record"
"""The column of payloads that cannot be decoded, unless another name is asked for: Spark's word."""

_KNOWN = MESSAGE_COLUMNS | EXTRA_MESSAGE_COLUMNS
_OWN = {name: kind for name, kind in _KNOWN.items() if name != "value"}
_VALUE = "value"
_RAW = "__valueIsRaw"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payloads:
    """The schemas of a scan's payloads: plain values that cross to other processes.

    Attributes:
        histories: for each topic (of a partitioned one its base name) all versions of its schema.
        reader: the version that all are resolved to, for all topics; None for each topic's newest.
        mode: what becomes of payloads that cannot be decoded.
        corrupt_column: the name of their column, which is there in the mode PERMISSIVE.
    """

    histories: Mapping[str, SchemaHistory] = field(repr=False)
    reader: SchemaVersion | None = field(default=None, repr=False)
    mode: Mode = "FAILFAST"
    corrupt_column: str = CORRUPT_RECORD

    def with_topics(self, histories: Mapping[str, SchemaHistory]) -> Payloads:
        """The same with more topics."""
        return replace(self, histories={**self.histories, **histories})

    def reader_of(self, topic: str) -> SchemaVersion:
        """The version that a topic's messages are resolved to."""
        return self.reader or self.histories[topic].newest

    def value_fields(self) -> list[pa.Field]:
        """The columns in place of `value`: a record's fields, key and value, or the typed `value`.

        Raises:
            SchemaError: topics whose columns differ, a definition that is not right, a field named as a column of ours.
        """
        from offload_core.format.schemas.decoders import make_decoder

        found: tuple[str, pa.DataType] | None = None
        for topic in self.histories:
            reader = self.reader_of(topic)
            with placed(key=topic):
                data_type = make_decoder(reader, reader).data_type
            if found is None:
                found = topic, data_type
            elif not data_type.equals(found[1]):
                raise SchemaError(
                    f"the topics {found[0]} and {topic} have columns that differ",
                    expected=found[1],
                    found=data_type,
                    hint="Read them one by one, or choose a {reader_schema} for both.",
                )
        if found is None:
            raise OptionError("no topic has a schema")
        data_type = found[1]
        fields = list(data_type) if pa.types.is_struct(data_type) else [pa.field(_VALUE, data_type)]
        for each in fields:
            if each.name in _OWN or (each.name == self.corrupt_column and self.mode == "PERMISSIVE"):
                raise SchemaError(
                    f"a field of the schema is named as a column of ours: {each.name!r}",
                    hint="Read without schemas, and decode `value` in the program.",
                )
        return fields

    def schema(self, columns: Sequence[str] | None) -> pa.Schema:
        """The columns of a scan: those named, or the payload's and the default ones.

        Raises:
            OptionError: an unknown column, one that is named twice, or none; errors of `value_fields`.
        """
        payload = {each.name: each.type for each in self.value_fields()}
        if self.mode == "PERMISSIVE":
            payload[self.corrupt_column] = pa.binary()
        default = [*payload, *(name for name in MESSAGE_COLUMNS if name != _VALUE)]
        return choose_columns(columns, default, payload | _OWN, "of messages or of their schema")


class PayloadDecoder:
    """Decodes the batches of one topic.

    `needed` are the columns that the batches must have.
    """

    def __init__(self, payloads: Payloads, topic: str | None, schema: pa.Schema) -> None:
        from offload_core.format.schemas.cells import MOST_CELLS, count_cells
        from offload_core.format.schemas.decoders import make_decoder

        history = payloads.histories.get(topic or "")
        if history is None:
            raise SchemaError(
                f"the schemas of {topic or 'a topic without name'} are not known",
                hint="They are asked for where a scan or a stream begins: of a topic that came later, begin again.",
            )
        self._history, self._payloads, self._schema = history, payloads, schema
        self._reader = payloads.reader_of(topic or "")
        whole = make_decoder(self._reader, self._reader).data_type
        self._is_struct = pa.types.is_struct(whole)
        names = {each.name for each in whole} if self._is_struct else {_VALUE}
        self._wanted = [name for name in schema.names if name in names]
        self._type = make_decoder(self._reader, self._reader, self._wanted).data_type
        self._most_rows = max(1, MOST_CELLS // count_cells(self._type))
        own = [name for name in schema.names if name in _OWN]
        inner = [_VALUE, "__schemaVersion", "__key", "__entryId", _RAW]
        self.needed: tuple[str, ...] = tuple(dict.fromkeys([*own, *inner]))
        self._decoders: dict[bytes | None, ValueDecoder | SchemaError] = {}
        self._left_out = 0

    def decode(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The batch with typed columns, in as many parts as keep each within `MOST_CELLS`; none if nothing is left.

        Raises:
            PayloadError, SchemaError: a message that cannot be decoded (mode FAILFAST), with its entry.
        """
        from offload_core.format.schemas.cells import TooManyCells

        for begin in range(0, batch.num_rows, self._most_rows):
            waiting = [batch.slice(begin, self._most_rows)]
            while waiting:
                part = waiting.pop()
                try:
                    made = self._decode(part)
                except TooManyCells:
                    half = part.num_rows // 2
                    waiting += [part.slice(half), part.slice(0, half)]
                    continue
                if made.num_rows:
                    yield made

    def _decode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from pyarrow.compute import if_else

        spans, keys = spans_of(batch.column(_VALUE)), spans_of(batch.column("__key"))
        raw_rows = batch.column(_RAW).to_numpy(zero_copy_only=False)
        if raw_rows.any():
            if self._payloads.mode == "FAILFAST":
                raise PayloadError(
                    "a message is encrypted, or a chunk: its payload is as stored, and has no typed columns",
                    entry_id=_entry(batch, np.flatnonzero(raw_rows)[0]),
                    hint="Name a {key_provider}, or read without schemas.",
                )
            spans = replace(spans, lengths=np.where(raw_rows, -1, spans.lengths))
        array, faults = self._typed(spans, keys, batch.column("__schemaVersion"), batch)
        faults |= raw_rows
        columns = self._columns(array)
        if self._payloads.mode == "PERMISSIVE":
            nothing = pa.scalar(None, type=pa.binary())
            raw = if_else(pa.array(faults), batch.column(_VALUE), nothing)
            columns[self._payloads.corrupt_column] = raw
        made = pa.RecordBatch.from_arrays(
            [columns[name] if name in columns else batch.column(name) for name in self._schema.names],
            schema=self._schema,
        )
        if self._payloads.mode == "DROPMALFORMED" and faults.any():
            self._left_out += int(faults.sum())
            made = made.filter(pa.array(~faults))
        return made

    def report(self) -> None:
        """Log how many messages have been left out since the last report."""
        if self._left_out:
            _log.warning("%d messages are left out: their payloads cannot be decoded", self._left_out)
            self._left_out = 0

    def _columns(self, array: pa.Array) -> dict[str, pa.Array]:
        if not self._is_struct:
            return {_VALUE: array}
        return dict(zip((each.name for each in array.type), array.flatten(), strict=True))

    def _typed(
        self, spans: Spans, keys: Spans, versions: pa.Array, batch: pa.RecordBatch
    ) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        from offload_core.format.schemas.cells import MOST_ARROW_BYTES, TooManyCells

        encoded = versions.dictionary_encode(null_encoding="encode")
        indices = encoded.indices.to_numpy(zero_copy_only=False)
        groups = encoded.dictionary.to_pylist()
        parts, order, made_bytes = [], [], 0
        faults = np.zeros(len(spans), dtype=np.bool_)
        for i, version in enumerate(groups):
            rows = np.flatnonzero(indices == i)
            whole = len(groups) == 1
            part, wrong = self._part(
                version, spans if whole else spans.take(rows), keys if whole else keys.take(rows), rows, batch
            )
            parts.append(part)
            order.append(rows)
            made_bytes += 0 if whole else part.nbytes
            if made_bytes > MOST_ARROW_BYTES and len(spans) > 1:
                raise TooManyCells  # each version's own are not too many, but all together
            faults[rows] = wrong
        if len(parts) == 1:
            return parts[0], faults
        places = np.empty(len(spans), dtype=np.int64)
        places[np.concatenate(order)] = np.arange(len(spans))
        return pa.concat_arrays(parts).take(pa.array(places)), faults

    def _part(
        self,
        version: bytes | None,
        spans: Spans,
        keys: Spans,
        rows: npt.NDArray[np.int64],
        batch: pa.RecordBatch,
    ) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        from offload_core.format.schemas.decoders import KeyValues

        decoder = self._decoder(version)
        fails = self._payloads.mode == "FAILFAST"
        if isinstance(decoder, SchemaError):
            if fails and (spans.lengths >= 0).any():
                row = int(np.flatnonzero(spans.lengths >= 0)[0])
                raise decoder.at(entry_id=_entry(batch, rows[row]))
            return pa.nulls(len(spans), self._type), spans.lengths >= 0
        if isinstance(decoder, KeyValues):
            array, faults = decoder.decode(spans, keys)
        else:
            array, faults = decoder.decode(spans)
        if fails and faults.any():
            row = int(np.flatnonzero(faults)[0])
            error = decoder.explain(spans.bytes_of(row) or b"")
            error.offset = None  # it counts in the payload
            raise error.at(entry_id=_entry(batch, rows[row]))
        return array, faults

    def _decoder(self, version: bytes | None) -> ValueDecoder | SchemaError:
        from offload_core.format.schemas.decoders import make_decoder

        known = self._decoders.get(version)
        if known is None:
            try:
                known = make_decoder(self._writer(version), self._reader, self._wanted)
                if not known.data_type.equals(self._type):
                    raise SchemaError(
                        "two versions of a schema have columns that differ",
                        expected=self._type,
                        found=known.data_type,
                    )
            except SchemaError as error:
                known = error
                if self._payloads.mode != "FAILFAST":
                    _log.warning("schema version %s cannot be read: %s", _shown(version), error)
            self._decoders[version] = known
        return known

    def _writer(self, version: bytes | None) -> SchemaVersion:
        """The version that a message names; one that names none was written as the reader reads."""
        if not version:
            return self._reader
        number = int.from_bytes(version, "big", signed=True)
        found = self._history.find(number) if len(version) == 8 else None
        if found is None:
            raise SchemaError(
                "the version of a message's schema is not known",
                expected=f"one of {', '.join(str(each.version) for each in self._history.versions)}",
                found=_shown(version),
                hint="If the topic has had newer schemas since, pull them (offload schemas pull) and begin again.",
            )
        return found


def decoded(batches: Iterator[pa.RecordBatch], decoder: PayloadDecoder) -> Iterator[pa.RecordBatch]:
    """The batches with typed columns, but for those of which nothing is left."""
    for batch in batches:
        yield from decoder.decode(batch)


def _entry(batch: pa.RecordBatch, row: np.int64) -> int:
    return int(batch.column("__entryId")[int(row)].as_py())


def _shown(version: bytes | None) -> str:
    if not version:
        return "none"
    return str(int.from_bytes(version, "big", signed=True)) if len(version) == 8 else version.hex()
