"""`offload inspect`: one object's index and blocks, readable; by its key, or the topic and the ledger in it."""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.table import Table

from offload_core.format.codec.block_layout import BLOCK_HEADER_BYTES, Span, parse_block_header
from offload_core.format.codec.index import IndexedBlock, LedgerIndex, ObjectIndex
from offload_core.format.codec.mapfile.cursor import MapFileCursor
from offload_core.format.codec.mapfile.sequence_file import (
    BYTES_WRITABLE,
    SequenceFile,
    SequenceHeader,
    parse_header,
)
from offload_core.format.codec.object_format import ObjectKey, parse_key
from offload_core.format.codec.object_marks import ObjectMarks
from offload_core.format.messages.dump import dump_block, dump_index, dump_sequence_file
from offload_core.interfaces.cli.command_options import AsJson, RecordOptions, TierOptions, command
from offload_core.interfaces.cli.ledger_facts import (
    Mention,
    filter_note,
    find_mentions,
    record_to_json,
    recorded_state,
)
from offload_core.interfaces.cli.ls import inventory
from offload_core.interfaces.cli.terminal import (
    cell,
    id_ranges,
    out,
    print_line,
    print_streamed,
    print_table,
    printable,
    time,
)
from offload_core.metadata.catalogue import TierReader, parse_topic
from offload_core.metadata.catalogue.index_reading import MAX_INDEX_BYTES, read_index
from offload_core.metadata.catalogue.survey import FoundLedger
from offload_core.metadata.catalogue.topics import topic_selection
from offload_core.metadata.records.filter_record import indexed_filter
from offload_core.storage.tier import Tier
from offload_hooks.errors import (
    FormatError,
    ObjectNotFoundError,
    OptionError,
    UnknownLedgerError,
    UnknownTopicError,
    placed,
)
from offload_hooks.values import ObjectStat, utc_time

_RANGE_HEAD_BYTES = 1 << 16
"""Bytes that are read of each range of a MapFile."""


@command()
def inspect(
    where: TierOptions,
    records: RecordOptions,
    what: Annotated[
        str,
        typer.Argument(
            metavar="KEY|TOPIC",
            help="Key of a data object or of its index; or a topic, whose ledger --ledger names.",
            show_default=False,
        ),
    ],
    ledger: Annotated[
        int | None, typer.Option(min=0, help="With a topic: its ledger, if there are several.")
    ] = None,
    as_hex: Annotated[
        bool,
        typer.Option("--hex", help="The bytes of a block, or of the index if it is KEY, and what each is."),
    ] = False,
    block: Annotated[
        int | None, typer.Option(min=1, help="With --hex: which block, in the order of their places.")
    ] = None,
    offset: Annotated[
        int | None, typer.Option(min=0, help="With --hex: the block that has this byte of the data object.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show an object's index and blocks, and whether each block's header agrees with the index.

    With records also which ledgers' records name it, and whether they agree with it on its format.

    Examples:
        offload inspect s3://bucket/prefix 0c2e3f4a-0000-4000-8000-000000000000-ledger-17
        offload inspect s3://bucket/prefix acme/cold/orders --ledger 17
    """
    with where.open() as tier:
        parsed = parse_key(what)
        if parsed is None:
            parsed = _key_of_ledger(tier, records, what, ledger)
        elif ledger is not None:
            raise OptionError("a key needs no ledger", expected="--ledger with a topic")
        if as_hex:
            show_hex(tier.store, parsed, block, offset, as_json=as_json)
            return
        if block is not None or offset is not None:
            raise OptionError("--block and --offset need --hex", expected="--hex")
        recorded = records.read(tier)
        named_by = None if recorded is None else find_mentions(recorded, parsed)
        data_stat = _stat_data(tier.store, parsed)
        with _hinted(parsed, data_stat):
            index_stat = tier.store.stat(parsed.index_key)
            index = read_index(
                tier.store,
                parsed,
                index_bytes=index_stat.size_bytes,
                data_bytes=data_stat.size_bytes if data_stat else None,
            )
        headers = {
            block.offset: _check_header(tier.store, parsed, index, ledger, block, data_stat)
            for ledger in index.ledgers
            for block in ledger.blocks
        }
        if as_json:
            described = _to_json(parsed, index, index_stat, data_stat, headers)
            if named_by is not None:
                described["records"] = [_mention_to_json(mention) for mention in named_by]
            typer.echo(json.dumps(described, indent=2))
        else:
            if named_by is not None:
                _print_mentions(named_by)
            _print(parsed, index, index_stat, data_stat, headers)


def _key_of_ledger(tier: TierReader, records: RecordOptions, what: str, ledger_id: int | None) -> ObjectKey:
    """Return the key of the copy that a topic's ledger is read from, or of the newest attempt at it.

    Raises:
        OptionError: neither a key nor a topic; a topic of several ledgers, a ledger in several objects: all are named.
        UnknownTopicError, UnknownLedgerError: there is no such topic or ledger.
    """
    try:
        topic = parse_topic(what)
    except OptionError:
        raise OptionError(
            "this is neither the key of an offloaded object nor a topic",
            expected="<uuid>[-ledger-<id>][-index], <managed ledger>/<id>-<uuid>/data or /index, or "
            "tenant/namespace/topic",
            found=what,
        ) from None
    wanted = topic_selection([topic])
    assert wanted is not None
    with inventory(tier, "", records, wanted) as all_found:
        found = {
            each.ledger.ledger_id: each.ledger
            for each in all_found
            if isinstance(each, FoundLedger) and wanted(each.topic)
        }
    if not found:
        raise UnknownTopicError(
            f"nothing is known of this topic under {tier.store.describe().location}", found=what
        )
    if ledger_id is None and len(found) == 1:
        [ledger_id] = found
    if ledger_id not in found:
        ids = id_ranges(sorted(found))
        if ledger_id is None:
            raise OptionError("the topic has several ledgers", expected=f"--ledger, one of {ids}", found=what)
        raise UnknownLedgerError("the topic has no such ledger here", expected=ids, found=ledger_id)
    ledger = found[ledger_id]
    keys = [parse_key(key) for key in dict.fromkeys(extent.data_key for extent in ledger.extents)]
    newest = ledger.unread or next(reversed(ledger.attempts), None)
    keys = keys or ([] if newest is None else [newest.key])
    if not keys:
        raise UnknownLedgerError("no object has this ledger", found=ledger_id)
    if len(keys) > 1:
        names = ", ".join(each.data_key for each in keys if each is not None)
        raise OptionError(
            "the ledger lies in several objects", ledger_id=ledger_id, expected=f"one of the keys {names}"
        )
    [key] = keys
    assert key is not None
    return key


@contextmanager
def _hinted(key: ObjectKey, data: ObjectStat | None) -> Iterator[None]:
    """Have an error of an index, which may be missing, name what makes it anew from the data object."""
    try:
        yield
    except (FormatError, ObjectNotFoundError) as error:
        if data is not None and error.hint is None:
            error.hint = f"`offload repair URL {key.data_key}` makes it anew if the data object is right."
        raise


def _print_mentions(named_by: list[Mention]) -> None:
    for mention in named_by:
        state = recorded_state(mention.record)
        out.print(cell(f"ledger {mention.record.ledger_id} of {mention.topic}, by its record: {state}"))
    if not named_by:
        out.print("no record names it")


def _mention_to_json(mention: Mention) -> dict[str, Any]:
    return {
        "topic": str(mention.topic),
        "ledger": mention.record.ledger_id,
        "record": record_to_json(mention.record),
    }


def _stat_data(tier: Tier, key: ObjectKey) -> ObjectStat | None:
    try:
        return tier.stat(key.data_key)
    except ObjectNotFoundError:
        return None


def _check_header(
    tier: Tier,
    key: ObjectKey,
    index: ObjectIndex,
    ledger: LedgerIndex,
    block: IndexedBlock,
    data: ObjectStat | None,
) -> str:
    """`ok`, or the fault of the header in the data object; of a MapFile, with the first records of a range."""
    if index.sequence_file is not None:
        gaps = data is not None and ObjectMarks.of(data.user_metadata).skips_ids
        return _check_mapfile_range(tier, key, index.sequence_file, ledger, block, gaps=gaps)
    if data is None or block.offset + BLOCK_HEADER_BYTES > data.size_bytes:
        return "not there"
    head = tier.read_range(key.data_key, block.offset, BLOCK_HEADER_BYTES)
    try:
        with placed(key=key.data_key, ledger_id=ledger.ledger_id, block=block.part_number):
            header = parse_block_header(head, index.object_format, offset=block.offset)
    except FormatError as error:
        return str(error)
    wrong = [
        f"its {name} is {found}, by the index {expected}"
        for name, expected, found in (
            ("length", block.length, header.block_length),
            ("first entry", block.first_entry_id, header.first_entry_id),
            ("ledger", ledger.ledger_id, ledger.ledger_id if header.ledger_id is None else header.ledger_id),
        )
        if expected != found
    ]
    return "; ".join(wrong) or "ok"


def _check_mapfile_range(
    tier: Tier, key: ObjectKey, file: SequenceFile, ledger: LedgerIndex, block: IndexedBlock, *, gaps: bool
) -> str:
    length = min(block.length, _RANGE_HEAD_BYTES)
    data = tier.read_range(key.data_key, block.offset, length)
    more = length < block.length
    try:
        with placed(key=key.data_key):
            cursor = MapFileCursor(data, file, ledger.ledger_id, block, more=more, gaps=gaps)
            cursor.skip_to(block.first_entry_id)
    except FormatError as error:
        return str(error)
    return "ok"


def _print(
    key: ObjectKey,
    index: ObjectIndex,
    index_stat: ObjectStat,
    data: ObjectStat | None,
    headers: dict[int, str],
) -> None:
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_row("format", index.object_format.value)
    if index.sequence_file is not None:
        facts.add_row("compression", index.sequence_file.header.compression.value)
    facts.add_row("data object", cell(f"{key.data_key}, {_size_note(index, data)}"))
    facts.add_row("index object", cell(f"{key.index_key}, {index_stat.size_bytes:,} bytes"))
    lost = ObjectMarks.of((data or index_stat).user_metadata).lost
    if lost is not None:
        facts.add_row("lost entries", cell(f"it was saved from a damaged object, and lacks {lost.pack()}"))
    print_table(facts)
    metadata = Table(box=None, show_header=False, pad_edge=False)
    for name, value in sorted((data or index_stat).user_metadata.items()):
        metadata.add_row(cell(name), cell(value))
    if metadata.rows:
        out.print("\n[bold]user metadata[/bold]")
        print_table(metadata)
    for ledger in index.ledgers:
        out.print(f"\n[bold]ledger {ledger.ledger_id}[/bold]")
        about = Table("name", "fact", box=None, show_header=False, pad_edge=False)
        for field in dataclasses.fields(ledger.metadata):
            value = getattr(ledger.metadata, field.name)
            if field.repr and value not in (None, ()):
                about.add_row(field.name, cell(_shown(field.name, value)))
        record = indexed_filter(ledger)
        if record is not None:
            about.add_row("filtered", cell(filter_note([record])))
        print_table(about, prose=("fact",))
        table = Table(box=None, pad_edge=False)
        for column in ("part", "offset", "length", "first entry", "last entry"):
            table.add_column(column, justify="right")
        table.add_column("header")
        for block in ledger.blocks:
            last = "–" if block.end_entry_id is None else str(block.end_entry_id - 1)
            place = (block.part_number, block.offset, block.length, block.first_entry_id)
            table.add_row(*(str(fact) for fact in place), last, cell(headers[block.offset]))
        print_table(table, drop=("last entry",), prose=("header",))
    if any(each != "ok" for each in headers.values()):
        out.print()
        print_line(f"It is damaged: `offload repair URL {key.data_key}` shows what can be saved.")


def _shown(name: str, value: Any) -> str:
    """Return a fact of a ledger as people read it."""
    if name.endswith("_ms") and value:
        return f"{value}, {time(utc_time(value / 1000))}"
    if not isinstance(value, tuple):
        return str(_plain(value))
    if name == "ensembles":
        return "; ".join(f"from entry {each.first_entry_id} on {', '.join(each.members)}" for each in value)
    return ", ".join(f"{one}={_plain(other)}" for one, other in value)


def _size_note(index: ObjectIndex, data: ObjectStat | None) -> str:
    if data is None:
        return "not there"
    note = f"{data.size_bytes:,} bytes"
    return note if data.size_bytes == index.data_length else f"{note}; its index says {index.data_length:,}"


def _to_json(
    key: ObjectKey,
    index: ObjectIndex,
    index_stat: ObjectStat,
    data: ObjectStat | None,
    headers: dict[int, str],
) -> dict[str, Any]:
    lost = ObjectMarks.of((data or index_stat).user_metadata).lost
    return {
        "format": index.object_format.value,
        **_compression(index),
        "data_key": key.data_key,
        "data_bytes": data.size_bytes if data else None,
        "data_bytes_by_index": index.data_length,
        "index_key": key.index_key,
        "index_bytes": index_stat.size_bytes,
        "user_metadata": dict((data or index_stat).user_metadata),
        "lost_entries": None if lost is None else lost.pack(),
        "ledgers": [
            {
                "ledger": ledger.ledger_id,
                "metadata": _plain(ledger.metadata),
                "filter": None if (record := indexed_filter(ledger)) is None else record.to_json(),
                "blocks": [{**_plain(block), "header": headers[block.offset]} for block in ledger.blocks],
            }
            for ledger in index.ledgers
        ],
    }


def _compression(index: ObjectIndex) -> dict[str, str]:
    """Of a MapFile."""
    file = index.sequence_file
    return {} if file is None else {"compression": file.header.compression.value}


def _plain(value: Any) -> Any:
    """Dataclasses as dicts without the fields that their repr hides, enums by name, bytes as text or hex."""
    if dataclasses.is_dataclass(value):
        shown = (field.name for field in dataclasses.fields(value) if field.repr)
        return {name: _plain(getattr(value, name)) for name in shown}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bytes):
        return value.decode() if value.isascii() and value.decode().isprintable() else value.hex()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


MOST_BYTES = 64 << 20
"""Bytes that are shown of a longer block, and of an object whose index has no blocks."""

_LINE = 16
_LINES_SHOWN = 8
"""Lines that are shown of a long span."""


def show_hex(tier: Tier, key: ObjectKey, block: int | None, offset: int | None, *, as_json: bool) -> None:
    """Print the annotated bytes of what is under `key`: an index, or one of a data object's blocks.

    Raises:
        OptionError: no such block, or a place after the object's end.
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
    """Offset and length of the requested block: by the index, else by its own header."""
    try:
        blocks = _blocks(tier, key, size)
    except (FormatError, ObjectNotFoundError) as error:
        if number is not None:
            raise OptionError(
                f"the index does not tell which block that is: {error}", expected="--offset BYTE"
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
                "spans": (_span_to_json(each, data, base) for each in spans),
            }
        )
        return
    out.print(cell(f"{key}, {len(data):,} bytes from {base:,} on"))
    for span in spans:
        for line in _lines(span, data, base):
            typer.echo(line)


def _lines(span: Span, data: memoryview, base: int) -> Iterator[str]:
    text = f"{span.name}: {span.value}" if span.value else span.name
    text = printable(f"!! {text}" if span.is_wrong else text)
    if not span.length:
        yield f"{span.offset:08x}  {'':47}  | {text}"
        return
    starts = range(span.offset, span.end, _LINE)
    for start in starts[:_LINES_SHOWN]:
        some = data[start - base : min(start + _LINE, span.end) - base]
        yield f"{start:08x}  {some.hex(' '):47}  | {text}".rstrip()
        text = ""
    left = span.end - starts[min(_LINES_SHOWN, len(starts)) - 1] - _LINE
    if left > 0:
        yield f"{'':8}  {f'… {left:,} bytes':47}  |"


def _span_to_json(span: Span, data: memoryview, base: int) -> dict[str, Any]:
    begin = span.offset - base
    return {
        "offset": span.offset,
        "length": span.length,
        "name": span.name,
        "value": span.value or None,
        "wrong": span.is_wrong,
        "hex": data[begin : begin + min(span.length, _LINE * _LINES_SHOWN)].hex(),
    }
