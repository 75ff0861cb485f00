"""Tiers to export, and what an export's targets hold, as rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from entries import LedgerPart, batch_entry, entry, pip17_object, streaming_object
from pyiceberg.catalog import load_catalog
from tiers import Names, lay_out

from pulsar_offload import open_tier, scan

DAY_MS = 86_400_000
FIRST_DAY_MS = 19_700 * DAY_MS  # 2023-12-09
ORDERS = "acme/cold/orders"
POSITION = ("__topic", "__ledgerId", "__entryId", "__batchIndex")


def messages(text: str, count: int, *, day: int = 0) -> list[bytes]:
    """Entries of a ledger, every third a batch of two; `day` is when they were published."""
    made = []
    for number in range(count):
        time = FIRST_DAY_MS + day * DAY_MS + number
        payload = f"{text}:{number}:".encode() + bytes([number % 251]) * 300
        if number % 3 == 2:
            made.append(batch_entry([payload, payload + b"second"], publish_time=time))
        else:
            made.append(
                entry(payload, publish_time=time, properties=[("number", str(number))], partition_key=text)
            )
    return made


def add_ledger(
    tier: Path, ledger_id: int, entries: Sequence[bytes], *, partition: int = 0, block_bytes: int = 2048
) -> None:
    """A whole ledger of `acme/cold/orders-partition-N`, in blocks of about this size."""
    lay_out(
        tier,
        pip17_object(entries, ledger_id=ledger_id, max_block_bytes=block_bytes),
        attempt=ledger_id,
        names=Names(managed_ledger=f"acme/cold/persistent/orders-partition-{partition}"),
    )


def add_segment(tier: Path, ledger_id: int, first: int, blocks: Sequence[Sequence[bytes]]) -> None:
    """A streaming segment of a ledger of `acme/cold/streamed`, from entry `first` on."""
    part = LedgerPart(ledger_id=ledger_id, blocks=blocks, first_entry_id=first)
    lay_out(
        tier,
        streaming_object([part]),
        attempt=1000 * ledger_id + first,
        names=Names(managed_ledger="acme/cold/persistent/streamed"),
    )


def add_bad_ledger(tier: Path) -> None:
    """Ledger 9 of the second partition, in whose entry 1 a byte is wrong."""
    entries = messages("ledger 9", 3)
    entries[1] = entries[1][:-1] + b"?"
    add_ledger(tier, 9, entries, partition=1)


def two_partitions(tier: Path) -> Path:
    """Two partitions of two ledgers each, of several blocks, over two days."""
    for ledger_id in (3, 4, 5, 6):
        entries = messages(f"ledger {ledger_id}", 12, day=ledger_id // 5)
        add_ledger(tier, ledger_id, entries, partition=ledger_id % 2)
    return tier


def scanned(tier: Path, **options: Any) -> list[dict[str, Any]]:
    """All rows of a tier, by position."""
    with open_tier(tier) as reader:
        return in_order(scan(reader, **options).to_table())


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    """Rows by topic and position, without partition columns; of types that Arrow compares."""
    names = [name for name in table.schema.names if name not in ("topic", "date")]
    return sorted(table.select(names).to_pylist(), key=lambda row: tuple(row[name] for name in POSITION))


def parquet_table(folder: Path) -> pa.Table:
    """A folder as any reader of Parquet reads it."""
    return ds.dataset(folder, format="parquet", partitioning="hive").to_table()


def parquet_rows(folder: Path) -> list[dict[str, Any]]:
    """The same as rows."""
    return in_order(parquet_table(folder))


def parquet_files(folder: Path) -> dict[str, int]:
    """The visible files that have rows, and their sizes."""
    paths = folder.rglob("topic=*/*/[!_]*.parquet")
    return {str(path.relative_to(folder)): path.stat().st_size for path in paths}


def as_earlier_versions_left_it(folder: Path) -> Path:
    """Bring the state of a folder's exports back into the file of its newest manifest, which is returned."""
    settled = max(folder.rglob("_*.parquet"))
    state = json.loads(pq.read_metadata(settled).metadata[b"pulsar-offload.export"])
    del state["columns"]
    manifest = folder / "_offload_export" / f"{state['number']:020d}.json"
    manifest.write_text(json.dumps(state))
    settled.unlink()
    return manifest


def delta_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of a Delta table, by its own reader."""
    query = QueryBuilder().register("exported", DeltaTable(folder)).execute("select * from exported")
    return in_order(pa.table(query.read_all()))


def iceberg_options(folder: Path) -> dict[str, str]:
    """The properties of a catalog in SQLite."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def iceberg_table(folder: Path) -> Any:
    """The table `exports.orders` of that catalog."""
    return load_catalog("test", **iceberg_options(folder)).load_table("exports.orders")


def iceberg_rows(folder: Path) -> list[dict[str, Any]]:
    """The rows of the Iceberg table, by its own reader."""
    return in_order(iceberg_table(folder).scan().to_arrow())


def target_of(kind: str, folder: Path) -> dict[str, Any]:
    """The arguments of `TierReader.export` for a target of this kind in a folder."""
    if kind == "iceberg":
        folder.mkdir(parents=True, exist_ok=True)
        return {"to": "iceberg:test/exports.orders", "to_options": iceberg_options(folder)}
    return {"to": f"delta:{folder}" if kind == "delta" else str(folder)}


def rows_of(kind: str, folder: Path) -> list[dict[str, Any]]:
    """The rows of a target of this kind."""
    return {"parquet": parquet_rows, "delta": delta_rows, "iceberg": iceberg_rows}[kind](folder)
