"""`offload inspect --hex`: the bytes of a block or an index, line by line, with what they mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from offload_core.format.codec.block_header import BLOCK_HEADER_BYTES, parse_block_header
from offload_core.format.codec.index import IndexedBlock
from offload_core.format.codec.mapfile.header import BYTES_WRITABLE, SequenceHeader, parse_header
from offload_core.format.codec.named_fields import Span
from offload_core.format.codec.object_format import ObjectKey
from offload_core.format.codec.object_marks import ObjectMarks
from offload_core.interfaces.cli.json_document import print_streamed
from offload_core.interfaces.cli.shared import cell, out, printable
from offload_core.maintenance.inventory.dump import dump_block, dump_index, dump_sequence_file
from offload_core.metadata.catalogue.index_reading import MAX_INDEX_BYTES, read_index
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError, ObjectNotFoundError, OptionError

MOST_BYTES = 64 << 20
"""Of a longer block, and of an object whose index tells no blocks, so much is shown."""

_LINE = 16
_LINES_SHOWN = 8
"""Of a long span; the first of its lines."""


def show_hex(tier: Tier, key: ObjectKey, block: int | None, offset: int | None, *, as_json: bool) -> None:
    """Print the annotated bytes of what is under `key`: an index, or one of a data object's blocks.

    Raises:
        OptionError: no such block, or a place behind the object's end.
    """
    if block is not None and offset is not None:
        raise OptionError("a block is chosen by one of them", expected="--block or --offset")
    if key.is_index:
        size = tier.stat(key.index_key).size_bytes
        data = _read(tier, key.index_key, 0, min(size, MAX_INDEX_BYTES))
        _show(key.index_key, data, 0, dump_index(data, key), as_json=as_json)
        return
    stat = tier.stat(key.data_key)
    begin, length = _place(tier, key, stat.size_bytes, block, offset)
    if not 0 <= begin <= stat.size_bytes:
        raise OptionError("the object ends before that", expected=f"0 to {stat.size_bytes}", found=begin)
    data = _read(tier, key.data_key, begin, min(length, stat.size_bytes - begin, MOST_BYTES))
    if key.is_mapfile:
        header = _header_of(tier, key, stat.size_bytes) if begin else None
        spans = dump_sequence_file(data, base=begin, header=header)
    else:
        spans = dump_block(data, key.object_format, begin, gaps=ObjectMarks.of(stat.user_metadata).skips_ids)
    _show(key.data_key, data, begin, spans, as_json=as_json)


def _read(tier: Tier, key: str, offset: int, length: int) -> memoryview:
    return tier.read_range(key, offset, length) if length else memoryview(b"")


def _place(tier: Tier, key: ObjectKey, size: int, number: int | None, offset: int | None) -> tuple[int, int]:
    """Where the block begins that is asked for, and how long it is: by the index, else by its own header."""
    try:
        blocks = _blocks(tier, key, size)
    except (FormatError, ObjectNotFoundError) as error:
        if number is not None:
            raise OptionError(
                f"which block that is, the index does not tell: {error}", expected="--offset BYTE"
            ) from error
        begin = offset or 0
        return begin, _length_by_header(tier, key, begin, size)
    if offset is not None:
        found = next((each for each in blocks if each.offset <= offset < each.offset + each.length), None)
        return (offset, size - offset) if found is None else (found.offset, found.length)
    if not 1 <= (number or 1) <= len(blocks):
        raise OptionError("there is no such block", expected=f"1 to {len(blocks)}", found=number)
    chosen = blocks[(number or 1) - 1]
    return chosen.offset, chosen.length


def _blocks(tier: Tier, key: ObjectKey, size: int) -> list[IndexedBlock]:
    index = read_index(tier, key, index_bytes=tier.stat(key.index_key).size_bytes, data_bytes=size)
    blocks = [block for ledger in index.ledgers for block in ledger.blocks]
    return sorted(blocks, key=lambda each: each.offset)


def _length_by_header(tier: Tier, key: ObjectKey, begin: int, size: int) -> int:
    if key.is_mapfile:
        return size - begin
    head = _read(tier, key.data_key, begin, max(0, min(BLOCK_HEADER_BYTES, size - begin)))
    try:
        return parse_block_header(head, key.object_format, offset=begin).block_length
    except FormatError:
        return size - begin


def _header_of(tier: Tier, key: ObjectKey, size: int) -> SequenceHeader:
    return parse_header(_read(tier, key.data_key, 0, min(size, 1 << 16)), BYTES_WRITABLE)


# --- printing ----------------------------------------------------------------------------------


def _show(key: str, data: memoryview, base: int, spans: Iterator[Span], *, as_json: bool) -> None:
    if as_json:
        print_streamed(
            {
                "key": key,
                "offset": base,
                "length": len(data),
                "spans": (_to_json(each, data, base) for each in spans),
            }
        )
        return
    out.print(cell(f"{key}, {len(data):,} bytes from {base:,} on"))
    for span in spans:
        for line in _lines(span, data, base):
            typer.echo(line)


def _lines(span: Span, data: memoryview, base: int) -> Iterator[str]:
    said = f"{span.name}: {span.value}" if span.value else span.name
    said = printable(f"!! {said}" if span.is_wrong else said)
    if not span.length:
        yield f"{span.offset:08x}  {'':47}  | {said}"
        return
    starts = range(span.offset, span.end, _LINE)
    for start in starts[:_LINES_SHOWN]:
        some = data[start - base : min(start + _LINE, span.end) - base]
        yield f"{start:08x}  {some.hex(' '):47}  | {said}".rstrip()
        said = ""
    left = span.end - starts[min(_LINES_SHOWN, len(starts)) - 1] - _LINE
    if left > 0:
        yield f"{'':8}  {f'… {left:,} bytes':47}  |"


def _to_json(span: Span, data: memoryview, base: int) -> dict[str, Any]:
    begin = span.offset - base
    return {
        "offset": span.offset,
        "length": span.length,
        "name": span.name,
        "value": span.value or None,
        "wrong": span.is_wrong,
        "hex": data[begin : begin + min(span.length, _LINE * _LINES_SHOWN)].hex(),
    }
