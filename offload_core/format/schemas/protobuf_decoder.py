"""From a Protobuf message to its Arrow columns, and to the tables that the kernel reads payloads by.

Every field has a slot (`schemas.cells`). Slots are given depth first: those in a list, a map or a message follow its
own. A **frame** is what gets a cell in each of its slots at once: the message itself, and an item of a list or map;
messages in it that are no items lie in the same frame. Source: docs/schemas.md, "Protobuf".
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from offload_core.format.messages.arrow_arrays import Bytes
from offload_core.format.schemas.cells import Column, Room, Symbols, too_many_cells
from offload_core.format.schemas.kernels import operations as op
from offload_core.format.schemas.kernels import wire
from offload_core.format.schemas.kernels.protobuf_payloads import read_messages
from offload_core.format.schemas.payload_spans import Spans, spans_of_one
from offload_core.format.schemas.protobuf_reference import read_message
from offload_core.format.schemas.protobuf_types import EnumType, FieldType, MessageType
from offload_hooks.errors import BadLengthError, FormatError, SchemaError

MOST_SLOTS = 4096

_UNSIGNED = pa.decimal128(20, 0)
_TYPES: dict[str, pa.DataType] = {
    "double": pa.float64(),
    "float": pa.float32(),
    "int64": pa.int64(),
    "uint64": _UNSIGNED,
    "int32": pa.int32(),
    "fixed64": _UNSIGNED,
    "fixed32": pa.int64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "uint32": pa.int64(),
    "sfixed32": pa.int32(),
    "sfixed64": pa.int64(),
    "sint32": pa.int32(),
    "sint64": pa.int64(),
}

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufTables:
    """The columns of a message, and the kernel's tables.

    Attributes:
        root: the column of a whole message.
        owners: int64 per slot: the slot of the list or map that it lies in, −1 for none.
        is_list: uint8 per slot: whether it is of a list or map.
        initial, initially_there: per slot the cell that a frame begins with, and whether it is there.
        fields: int64 (fields × `wire.FIELD_PARTS`), of each message in the order of their numbers.
        messages: int64 (messages × `wire.MESSAGE_PARTS`), the first is the whole.
        numbers: int64, ranges that those name.
        pool: uint8, the bytes of defaults.
    """

    root: Column
    owners: Numbers
    is_list: npt.NDArray[np.uint8]
    initial: Numbers
    initially_there: npt.NDArray[np.uint8]
    fields: Numbers
    messages: Numbers
    numbers: Numbers
    pool: npt.NDArray[np.uint8]


def make_layout(message: MessageType, chosen: Collection[str] | None = None) -> ProtobufTables:
    """The layout of a message; `chosen` are those of its own fields that become columns, None for all.

    Raises:
        SchemaError: too many columns.
    """
    builder = _Builder()
    slot = builder.slot(-1, is_there=True)
    builder.frames[0] = -1
    root = builder.struct(message, slot, -1, None if chosen is None else frozenset(chosen))
    return ProtobufTables(
        root=root,
        owners=np.array(builder.owners, dtype=np.int64),
        is_list=np.array(builder.is_list, dtype=np.uint8),
        initial=np.array(builder.initial, dtype=np.int64),
        initially_there=np.array(builder.there, dtype=np.uint8),
        fields=np.array(builder.fields, dtype=np.int64).reshape(-1, wire.FIELD_PARTS),
        messages=np.array(builder.finished(), dtype=np.int64).reshape(-1, wire.MESSAGE_PARTS),
        numbers=np.array([*builder.numbers, 0], dtype=np.int64),
        pool=np.frombuffer(bytes(builder.pool) or b"\0", dtype=np.uint8),
    )


class _Builder:
    def __init__(self) -> None:
        self.owners: list[int] = []
        self.is_list: list[int] = []
        self.initial: list[int] = []
        self.there: list[int] = []
        self.fields: list[list[int]] = []
        self.messages: list[list[int]] = []
        self.frames: dict[int, int] = {}  # of messages that are frames: the slots' owner
        self.numbers: list[int] = []
        self.pool = bytearray()
        self._symbols: dict[int, Symbols] = {}  # by the ids of enums
        self._closed: dict[int, int] = {}

    def slot(self, owner: int, *, is_list: bool = False, is_there: bool = False, initial: int = 0) -> int:
        if len(self.owners) >= MOST_SLOTS:
            raise SchemaError("a Protobuf message has too many columns", expected=f"at most {MOST_SLOTS}")
        self.owners.append(owner)
        self.is_list.append(is_list)
        self.initial.append(initial)
        self.there.append(is_there)
        return len(self.owners) - 1

    def struct(
        self, message: MessageType, slot: int, owner: int, chosen: Collection[str] | None = None
    ) -> Column:
        """The column of a message that has its slot; its fields go to the table together, one after another."""
        place = len(self.messages)
        self.messages.append([])
        children, rows = [], []
        spans: dict[str, tuple[int, int]] = {}
        oneofs: dict[int, list[int]] = {}
        for field in message.fields:
            if chosen is not None and field.name not in chosen:
                rows.append((field, -1, -1))
                continue
            begin, inner = len(self.owners), len(self.messages)
            children.append(self._field(field, owner, is_part=message.is_entry))
            rows.append((field, begin, inner))
            spans[field.name] = (begin, len(self.owners))
            if field.oneof >= 0:
                oneofs.setdefault(field.oneof, []).extend(spans[field.name])
        clears = {}
        for oneof, bounds in oneofs.items():
            clears[oneof] = (len(self.numbers), len(bounds) // 2)
            self.numbers += bounds
        begin = len(self.fields)
        for field, at, inner in sorted(rows, key=lambda row: row[0].number):
            if at >= 0 or field.oneof in clears:
                self.fields.append(self._row(field, at, inner, *clears.get(field.oneof, (0, 0))))
        self.messages[place] = [begin, len(self.fields) - begin, int(message.is_entry)]
        names = [field.name for field in message.fields if field.name in spans]
        types = [(name, child.data_type) for name, child in zip(names, children, strict=True)]
        return Column(data_type=pa.struct(types), slot=slot, children=tuple(children))

    def finished(self) -> list[list[int]]:
        """The rows of messages, of frames with their slots and which of these are lists."""
        finished = []
        by_owner: dict[int, list[int]] = {}
        for slot, owner in enumerate(self.owners):
            by_owner.setdefault(owner, []).append(slot)
        for place, row in enumerate(self.messages):
            ranges = []
            slots = by_owner.get(self.frames[place], []) if place in self.frames else []
            for chosen in (slots, [slot for slot in slots if self.is_list[slot]]):
                ranges += [len(self.numbers), len(chosen)]
                self.numbers += chosen
            finished.append([*row, *ranges])
        return finished

    def _field(self, field: FieldType, owner: int, *, is_part: bool) -> Column:
        if not field.is_repeated:
            default = 0 if field.default is None else self._cell(field, field.default)
            is_there = is_part or field.default is not None
            slot = self.slot(owner, is_there=is_there, initial=default)
            if field.message is not None:
                return self.struct(field.message, slot, owner)
            return self._scalar(field, slot)
        slot = self.slot(owner, is_list=True, is_there=True)
        if field.message is None:
            item = self._scalar(field, self.slot(slot))
        else:
            self.frames[len(self.messages)] = slot
            item = self.struct(field.message, self.slot(slot, is_there=True), slot)
            if field.message.is_entry:
                parts = {name: i for i, name in enumerate(each.name for each in field.message.fields)}
                key, value = item.children[parts["key"]], item.children[parts["value"]]
                data_type = pa.map_(key.data_type, value.data_type)
                return Column(data_type=data_type, slot=slot, children=(key, value), keeps_last_keys=True)
        return Column(data_type=pa.list_(item.data_type), slot=slot, children=(item,))

    def _row(self, field: FieldType, slot: int, inner: int, clears: int, clears_count: int) -> list[int]:
        symbols, symbols_count = 0, 0
        if slot >= 0 and field.enum is not None and field.enum.is_closed:
            symbols, symbols_count = self._closed_enum(field.enum), len(field.enum.symbols)
        is_bytes = field.kind in ("message", "group") and field.message is None
        kind = wire.KINDS["bytes" if is_bytes else field.kind]
        repeats = int(field.is_repeated)
        return [
            field.number, kind, wire.WIRE_TYPES[kind], slot, repeats, inner,
            clears, clears_count, symbols, symbols_count,
        ]  # fmt: skip

    def _closed_enum(self, enum: EnumType) -> int:
        """The place where the numbers of a closed enum begin in `numbers`."""
        if id(enum) not in self._closed:
            self._closed[id(enum)] = len(self.numbers)
            self.numbers += sorted(enum.symbols)
        return self._closed[id(enum)]

    def _scalar(self, field: FieldType, slot: int) -> Column:
        if field.kind == "enum" and field.enum is not None:
            return Column(data_type=pa.string(), slot=slot, symbols=self._symbols_of(field.enum))
        if field.kind in ("enum", "message", "group"):
            return Column(data_type=pa.int32() if field.kind == "enum" else pa.binary(), slot=slot)
        data_type = _TYPES[field.kind]
        return Column(data_type=data_type, slot=slot, is_unsigned=data_type == _UNSIGNED)

    def _symbols_of(self, enum: EnumType) -> Symbols:
        if id(enum) not in self._symbols:
            known = sorted(enum.symbols.items())
            self._symbols[id(enum)] = Symbols(
                texts=tuple(symbol for _, symbol in known),
                numbers=np.array([number for number, _ in known], dtype=np.int64),
            )
        return self._symbols[id(enum)]

    def _cell(self, field: FieldType, value: Any) -> int:
        """A default as a cell."""
        if field.kind in ("string", "bytes"):
            data = value.encode() if isinstance(value, str) else value
            cell = op.IN_POOL | len(self.pool) << op.SPAN_BITS | len(data)
            self.pool += data
            return int(cell)
        if field.kind in ("float", "double"):
            return int(struct.unpack("<q", struct.pack("<d", value))[0])
        return int(value) - (1 << 64 if int(value) >> 63 > 0 else 0)


class ProtobufValues:
    """Decodes messages of a type; `fields` are those to read, None for all."""

    def __init__(self, message: MessageType, fields: Collection[str] | None = None) -> None:
        self._message, self._fields = message, fields
        self._layout = make_layout(message, fields)
        self.data_type: pa.DataType = self._layout.root.data_type
        self._room = Room(self._layout.owners)

    def decode(self, spans: Spans) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
        """See `ValueDecoder`."""
        if len(spans.data) > op.LONGEST:
            raise BadLengthError("a batch is too large", expected=f"at most {op.LONGEST} bytes")
        array, faults = self._read(spans)
        return array, faults != 0

    def _read(self, spans: Spans) -> tuple[pa.Array, Bytes]:
        layout = self._layout
        read = functools.partial(
            read_messages,
            spans.data,
            spans.offsets,
            spans.lengths,
            layout.messages,
            layout.fields,
            layout.numbers,
            layout.owners,
            layout.is_list,
            layout.initial,
            layout.initially_there,
        )
        cells, faults = self._room.fill(read, spans.lengths, data=spans.data, pool=layout.pool)
        return cells.array_of_rows(layout.root, faults), faults

    def explain(self, payload: bytes) -> FormatError:
        """See `ValueDecoder`."""
        if self._read(spans_of_one(payload))[1][0] == op.TOO_MANY_CELLS:
            return too_many_cells(payload)
        try:
            read_message(payload, self._message, self._fields)
        except FormatError as error:
            return error
        raise AssertionError("the message is right")
