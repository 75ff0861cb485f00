"""The golden objects under `tests/golden`, as values. Where they come from: `tests/golden/README.md`."""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offload_core.codec.object_format import ObjectKey, parse_key

GOLDEN = Path(__file__).parents[1] / "golden"
BROKER = GOLDEN / "broker" / "s3"

PIP17_CASES = sorted(path.name for path in (GOLDEN / "offloader" / "pip17").iterdir())
STREAMING_CASES = sorted(path.name for path in (GOLDEN / "offloader" / "streaming").iterdir())
TOPICS = sorted(path.name for path in (BROKER / "topics").iterdir())

# Not recorded beside the cases: the smallest that S3 takes, but for the case that is named after the default.
PIP17_MAX_BLOCK_BYTES = dict.fromkeys(PIP17_CASES, 5 << 20) | {"default-64mb-block": 64 << 20}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEntry:
    """One line of `entries.jsonl`."""

    ledger_id: int
    entry_id: int
    length: int
    crc32: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenCase:
    """A data and an index object, and what a right reader returns (of damaged ones: what was offered)."""

    name: str
    key: ObjectKey
    data: bytes
    index: bytes
    data_sha256: str
    index_sha256: str
    entries: tuple[ExpectedEntry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenObject:
    """A broker's data and index object."""

    key: ObjectKey
    data: bytes
    index: bytes


def load_case(folder: str, name: str) -> GoldenCase:
    """A case of `offloader/<folder>` (pip17, streaming, java-damaged)."""
    path = GOLDEN / "offloader" / folder / name
    case = json.loads((path / "case.json").read_text())
    key = parse_key(case["data"]["key"])
    assert key is not None
    data = gzip.decompress((path / "data.bin.gz").read_bytes())
    index = gzip.decompress((path / "index.bin.gz").read_bytes())
    for stored, bytes_ in ((case["data"], data), (case["index"], index)):
        assert (len(bytes_), hashlib.sha256(bytes_).hexdigest()) == (stored["size"], stored["sha256"])
    return GoldenCase(
        name=name,
        key=key,
        data=data,
        index=index,
        data_sha256=case["data"]["sha256"],
        index_sha256=case["index"]["sha256"],
        entries=tuple(_expected(line) for line in (path / "entries.jsonl").read_text().splitlines()),
    )


def as_entries(rows: Iterable[Mapping[str, Any]]) -> list[ExpectedEntry]:
    """Rows of level `entries` as `entries.jsonl` has them."""
    return [
        ExpectedEntry(
            ledger_id=row["__ledgerId"],
            entry_id=row["__entryId"],
            length=len(row["value"]),
            crc32=zlib.crc32(row["value"]),
            sha256=hashlib.sha256(row["value"]).hexdigest(),
        )
        for row in rows
    ]


def _expected(line: str) -> ExpectedEntry:
    entry = json.loads(line)
    crc = entry["crc32"]
    return ExpectedEntry(
        ledger_id=entry["ledger_id"],
        entry_id=entry["entry_id"],
        length=entry["length"],
        crc32=int(crc, 16) if isinstance(crc, str) else crc,
        sha256=entry["sha256"],
    )


@functools.cache
def _keys_by_topic() -> dict[str, list[ObjectKey]]:
    keys: dict[str, list[ObjectKey]] = {}
    for stored in json.loads((BROKER / "objects.json").read_text()):
        key = parse_key(stored["key"])
        assert key is not None
        if not key.is_index:
            keys.setdefault(stored["metadata"]["managedledgername"].rsplit("/", 1)[1], []).append(key)
    return {topic: sorted(of_topic, key=lambda key: key.ledger_id or 0) for topic, of_topic in keys.items()}


def topic_objects(topic: str) -> list[GoldenObject]:
    """The objects of a topic `persistent://acme/cold/<topic>`, in order of their ledgers."""
    return [
        GoldenObject(
            key=key,
            data=gzip.decompress((BROKER / "objects" / f"{key.data_key}.gz").read_bytes()),
            index=gzip.decompress((BROKER / "objects" / f"{key.index_key}.gz").read_bytes()),
        )
        for key in _keys_by_topic().get(topic, [])
    ]


def topic_rows(topic: str, broker: Path = BROKER) -> list[dict[str, Any]]:
    """What a Pulsar client read from the topic, in order."""
    path = broker / "topics" / topic / "expected.jsonl.gz"
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def sent_in_transactions() -> list[dict[str, Any]]:
    """What the client of the topic `txn` sent, with the transactions' outcomes."""
    return [json.loads(line) for line in (BROKER / "txn-sent.jsonl").read_text().splitlines()]
