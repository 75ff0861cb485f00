"""`offload inspect`: one object's index and blocks, readable."""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Annotated, Any

import typer
from rich.table import Table

from offload_core.format.codec.block_header import BLOCK_HEADER_BYTES, parse_block_header
from offload_core.format.codec.cursor import open_cursor
from offload_core.format.codec.index import IndexedBlock, LedgerIndex, ObjectIndex
from offload_core.format.codec.mapfile.header import SequenceFile
from offload_core.format.codec.object_format import ObjectKey, parse_key
from offload_core.format.codec.object_marks import ObjectMarks
from offload_core.interfaces.cli.looking.dump import show_hex
from offload_core.interfaces.cli.looking.filtered import filter_note, filter_to_json
from offload_core.interfaces.cli.looking.recorded import (
    Mention,
    find_mentions,
    record_to_json,
    recorded_state,
)
from offload_core.interfaces.cli.shared import (
    AsJson,
    Debug,
    Driver,
    Layers,
    Records,
    RecordsOptions,
    StorageOptions,
    Url,
    cell,
    named,
    opened,
    out,
    reported,
)
from offload_core.metadata.catalogue.index_reading import read_index
from offload_core.metadata.records.filter_record import indexed_filter
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError, ObjectNotFoundError, OptionError, placed
from offload_hooks.values import ObjectStat

_STRETCH_BEGIN_BYTES = 1 << 16
"""How much of each stretch of a MapFile is looked at."""


def inspect(
    url: Url,
    key: Annotated[str, typer.Argument(help="Key of a data object or of its index.", show_default=False)],
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
    records: Records = None,
    records_option: RecordsOptions = None,
    driver: Driver = None,
    option: StorageOptions = None,
    layer: Layers = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show an object's index and blocks, and whether each block's beginning agrees with the index.

    With records also which ledgers' records name it, and whether they agree with it on its format.
    """
    with reported(debug), opened(url, driver, option, layer) as tier:
        parsed = parse_key(key)
        if parsed is None:
            raise OptionError(
                "this is not the key of an offloaded object",
                expected="<uuid>[-ledger-<id>][-index], or <managed ledger>/<id>-<uuid>/data or /index",
                found=key,
            )
        if as_hex:
            show_hex(tier.store, parsed, block, offset, as_json=as_json)
            return
        if block is not None or offset is not None:
            raise OptionError("--block and --offset are of --hex", expected="--hex")
        named_by = (
            None
            if records is None
            else find_mentions(tier.records(records, named(records_option, "the records")), parsed)
        )
        index_stat = tier.store.stat(parsed.index_key)
        data_stat = _stat_data(tier.store, parsed)
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
    """`ok`, or what is wrong with the header in the data object; of a MapFile, with a stretch's first records."""
    if index.sequence_file is not None:
        return _check_stretch(tier, key, index, index.sequence_file, ledger, block)
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


def _check_stretch(
    tier: Tier,
    key: ObjectKey,
    index: ObjectIndex,
    file: SequenceFile,
    ledger: LedgerIndex,
    block: IndexedBlock,
) -> str:
    length = min(block.length, _STRETCH_BEGIN_BYTES)
    data = tier.read_range(key.data_key, block.offset, length)
    more = length < block.length
    try:
        with placed(key=key.data_key):
            cursor = open_cursor(
                data, index.object_format, ledger.ledger_id, block, sequence_file=file, more=more
            )
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
    for name, value in sorted((data or index_stat).user_metadata.items()):
        facts.add_row(cell(name), cell(value))
    lost = ObjectMarks.of((data or index_stat).user_metadata).lost
    if lost is not None:
        facts.add_row("lost entries", cell(f"it was saved from a damaged object, and lacks {lost.pack()}"))
    out.print(facts)
    for ledger in index.ledgers:
        out.print(f"\n[bold]ledger {ledger.ledger_id}[/bold]")
        about = Table(box=None, show_header=False, pad_edge=False)
        for name, value in _plain(ledger.metadata).items():
            about.add_row(name, cell(str(value)))
        record = indexed_filter(ledger)
        if record is not None:
            about.add_row("filtered", cell(filter_note([record])))
        out.print(about)
        table = Table(box=None, pad_edge=False)
        for column in ("part", "offset", "length", "first entry", "last entry"):
            table.add_column(column, justify="right")
        table.add_column("header")
        for block in ledger.blocks:
            last = "–" if block.end_entry_id is None else str(block.end_entry_id - 1)
            place = (block.part_number, block.offset, block.length, block.first_entry_id)
            table.add_row(*(str(fact) for fact in place), last, cell(headers[block.offset]))
        out.print(table)


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
                "filter": None if (record := indexed_filter(ledger)) is None else filter_to_json(record),
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
    """Dataclasses as dicts, enums by name, bytes as text or hex."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, bytes):
        return value.decode() if value.isascii() and value.decode().isprintable() else value.hex()
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
