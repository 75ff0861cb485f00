"""Documents of each kind that others can write, changed in any way: a value or an `OffloadError`, nothing else."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from random import Random
from types import SimpleNamespace
from uuid import UUID

import pytest

from offload_core.format.codec.block_checksums import (
    BlockChecksums,
    pack_block_checksums,
    parse_block_checksums,
)
from offload_core.format.codec.ledger_metadata import (
    Ensemble,
    LedgerInfo,
    LedgerMetadata,
    LedgerState,
    pack_ledger_info,
    pack_ledger_metadata,
    parse_ledger_info,
    parse_ledger_metadata,
)
from offload_core.format.codec.object_format import parse_block_checksums_key, parse_checksum_key, parse_key
from offload_core.format.codec.object_marks import ObjectMarks, parse_lost
from offload_core.interfaces.engines.spark.source_options import parse_options
from offload_core.maintenance.inventory.prices import parse_prices
from offload_core.maintenance.verify.verified_objects import VerifiedObjects
from offload_core.metadata.catalogue.admin_records import join_record
from offload_core.metadata.catalogue.listing import Pair
from offload_core.metadata.catalogue.topics import parse_topic
from offload_core.metadata.records.attempts import LEASE_PROPERTY, lease_of
from offload_core.metadata.records.filter_record import parse_filter_record
from offload_core.metadata.records.managed_ledger_info import LedgerRecord, parse_managed_ledger_info
from offload_core.metadata.records.offload_context import (
    REPLACED_PROPERTY,
    REPLACEMENT_PROPERTY,
    DriverMetadata,
    OffloadContext,
)
from offload_core.metadata.records.relocations import read_mapping
from offload_core.metadata.records.replacements import others_of
from offload_core.reading.export.iceberg_target import STATE, parse_state
from offload_core.reading.export.manifest import decode_manifest
from offload_core.reading.scan.positions import parse_offsets, parse_position, position_of_message_id
from offload_core.reading.scan.pruning import parse_time
from offload_core.writing.audit import read_audit_log
from offload_drivers import replaced_sidecar
from offload_drivers.sidecar import decode_sidecar
from offload_drivers.upload_records import decode_record
from offload_hooks.errors import OffloadError
from offload_hooks.json_text import read_json

UUID_TEXT = "00000000-0000-4000-8000-000000000007"
CASES = 300
CASES_AT_NIGHT = 30_000

HOSTILE = [
    "1" * 5000,
    "-" + "9" * 400,
    str(2**63),
    str(2**64),
    "-1",
    "1e999",
    "-1e400",
    "1.0",
    "0.5",
    "NaN",
    "Infinity",
    "true",
    "null",
    '""',
    '"x"',
    "[]",
    "{}",
    "[[]]",
    '{"a": 1}',
    "[" * 100_000,
    "[" * 900 + "]" * 900,
    '{"a":' * 400 + "1" + "}" * 400,
    '"\\ud800"',
    '"\\u0000"',
    '"' + "1" * 5000 + '"',
    '"' + "9" * 19 + '"',
    '"٣"',
    '"1_0"',
    '" 1"',
    '"9999-12-31T23:59:59.999999-23:59"',
    '"0001-01-01T00:00:00+23:59"',
    '"{00000000-0000-4000-8000-000000000007}"',
    '"urn:uuid:00000000000040008000000000000007"',
    '"٠0000000-0000-4000-8000-000000000007"',
    '"9999999999999999999:9999999999999999999"',
    '"x' + "ü" * 3000 + '"',
]
"""JSON texts of values that no field has, or hardly any."""

REPLACEMENT = {
    "uuid": UUID_TEXT,
    "form": "segment",
    "since": 5,
    "driver": "aws-s3",
    "properties": {"bucket": "b"},
    "segment": UUID_TEXT,
}
COUNT = {"ledger_id": 3, "stop_entry_id": 9, "entries": 9, "payload_bytes": 90, "unchecked": 0}
PRICES = {
    "name": "n",
    "as_of": "2026-01-01",
    "currency": "EUR",
    "gb_bytes": 1000,
    "default_class": "a",
    "classes": {"a": {"storage_per_gb_month": 0.5, "minimum_days": 3}},
}


def with_property(name, text):
    driver = DriverMetadata(name="aws-s3", properties=((name, text),))
    context = OffloadContext(uuid=UUID(UUID_TEXT), complete=True, driver=driver)
    return LedgerRecord(info=LedgerInfo(ledger_id=3), context=context)


def read_log(tmp_path, line):
    path = tmp_path / "audit.jsonl"
    path.write_bytes(line + b"\n" + line)
    return list(read_audit_log(path))


def read_steps(tmp_path, line):
    path = tmp_path / "mapping.jsonl"
    path.write_bytes(line + b"\n")
    return read_mapping(path)


def read_state(tmp_path, row):
    path = tmp_path / "verified.db"
    pair = Pair(parse_key(f"{UUID_TEXT}-ledger-3"))
    if not path.exists():
        with VerifiedObjects(path, "here") as state:
            state.add(pair, ())
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        value: object = row.decode() if row.isascii() else row
        file.execute("UPDATE verified SET counts = ?", (value,))
    with VerifiedObjects(path, "here") as state:
        return state.find(pair)


JSON: Mapping[str, tuple[object, Callable[[Path, bytes], object]]] = {
    "sidecar": (
        {"version": 1, "content_type": "a/b", "user_metadata": {"role": "data"}},
        lambda _, data: decode_sidecar(data, "k"),
    ),
    "sidecar of a replaced object": (
        {
            "version": 1,
            "content_type": "a/b",
            "user_metadata": {"role": "data"},
            "upload": "u",
            "replaced": {"modified_ms": 5, "length": 9, "content_type": "a/b", "user_metadata": {}},
        },
        lambda _, data: replaced_sidecar.decode(data, "k"),
    ),
    "upload": (
        {"version": 1, "key": "k", "content_type": "a/b", "user_metadata": {}},
        lambda _, data: decode_record(data, "0" * 32),
    ),
    "filter record": (
        {
            "version": 1,
            "filter": "f",
            "mode": "gap",
            "stop": [3, 4],
            "kept": [1, 2],
            "dropped": [3, 4],
            "causes": {"aborted (1,2)": [3, 4]},
        },
        lambda _, data: parse_filter_record(data).aborted,
    ),
    "relocation": (
        {
            "version": 1,
            "step": "done",
            "managed_ledger": "t/n/persistent/x",
            "ledgers": [3],
            "uuid": UUID_TEXT,
            "form": "ledger",
            "replaces": [UUID_TEXT],
            "driver": "aws-s3",
            "properties": {"bucket": "b"},
            "segment": None,
            "since": 5,
            "done": 6,
            "filters": {"3": "{}"},
        },
        read_steps,
    ),
    "replacement": (
        REPLACEMENT,
        lambda _, data: others_of(with_property(REPLACEMENT_PROPERTY, data.decode(errors="surrogateescape"))),
    ),
    "replaced": (
        [REPLACEMENT],
        lambda _, data: others_of(with_property(REPLACED_PROPERTY, data.decode(errors="surrogateescape"))),
    ),
    "manifest": (
        {
            "version": 1,
            "number": 7,
            "committed_at": "2026-01-01T00:00:00.000+00:00",
            "positions": {"persistent://t/n/x": "1:2:3"},
            "files": [
                {
                    "key": "k",
                    "topic": "t",
                    "date": None,
                    "rows": 5,
                    "size_bytes": 9,
                    "first": "1:2:3",
                    "last": "1:2:4",
                    "upload": {"id": "u", "blocks": [[5, "tag"]]},
                }
            ],
        },
        lambda _, data: decode_manifest(data, "_offload_export/00000000000000000007.json"),
    ),
    "state of iceberg": (
        {"version": 1, "number": 7, "positions": {"persistent://t/n/x": "1:2:3"}},
        lambda _, data: parse_state(SimpleNamespace(properties={STATE: data.decode(errors="replace")})),
    ),
    "audit log": (
        {
            "version": 1,
            "at": "2026-01-01T00:00:00+00:00",
            "action": "delete",
            "managed_ledger": "t/n/persistent/x",
            "ledger_id": 3,
            "uuid": UUID_TEXT,
            "copy": "hot",
            "why": "w",
            "key": "k",
            "before": "b",
            "after": "a",
        },
        read_log,
    ),
    "prices": (PRICES, lambda _, data: parse_prices(data.decode(errors="replace"), "p.json").tariff()),
    "prices as TOML": (PRICES, lambda _, data: parse_prices(data.decode(errors="replace"), "p.toml")),
    "positions": (
        {"persistent://t/n/x": {"-1": "1:2:3", "2": "latest"}},
        lambda _, data: parse_offsets(data.decode(errors="surrogateescape"), "startingOffsets"),
    ),
    "verified objects": ([COUNT], read_state),
    "answers of a broker": (
        {
            "currentLedgerEntries": 5,
            "version": 3,
            "ledgers": [
                {
                    "ledgerId": 3,
                    "entries": 5,
                    "size": 6,
                    "timestamp": 7,
                    "offloaded": True,
                    "offloadedContextUuid": UUID_TEXT,
                }
            ],
        },
        lambda _, data: join_record(*[read_json(data, "an answer")] * 2),
    ),
}
"""A document of each kind that is right, and what reads it."""

TEXTS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "position": ("12:34:5", parse_position),
    "time": ("1700000000000", lambda text: parse_time(text, "start")),
    "key": (f"a/{UUID_TEXT}-ledger-12-index", parse_key),
    "key of a MapFile": (f"t/n/persistent/x/12-{UUID_TEXT}/data", parse_key),
    "key of checksums": (f"{UUID_TEXT}-ledger-12-checksums", parse_block_checksums_key),
    "key of a .crc file": (f"t/n/persistent/x/12-{UUID_TEXT}/.data.crc", parse_checksum_key),
    "topic": ("persistent://t/n/x-partition-12", lambda text: parse_topic(text).partition),
    "lost entries": ("3 entries: 1:2-4,7:8", parse_lost),
    "lost entries of an object": (
        "3 entries: 1:2-4",
        lambda text: ObjectMarks.of({"pulsaroffloadlost": text}).lost,
    ),
    "lease": (
        "0123456789abcdef:12:34:56",
        lambda text: lease_of(DriverMetadata(name="d", properties=((LEASE_PROPERTY, text),))),
    ),
    "option of Spark": ("12", lambda text: parse_options({"path": "x", "topic": "t/n/x", "ledger": text})),
}

BYTES: Mapping[str, tuple[bytes, Callable[[bytes], object]]] = {
    "ledger metadata": (
        pack_ledger_metadata(
            LedgerMetadata(
                write_quorum_size=2,
                ensemble_size=2,
                length=99,
                state=LedgerState.CLOSED,
                last_entry_id=5,
                ensembles=(Ensemble(first_entry_id=0, members=("a:1", "b:2")),),
                custom=(("k", b"v"),),
            )
        ),
        parse_ledger_metadata,
    ),
    "ledger info": (
        pack_ledger_info(
            LedgerInfo(ledger_id=3, entries=5, size=6, timestamp_ms=7, properties=(("k", "v"),))
        ),
        parse_ledger_info,
    ),
    "record of a topic": (
        (Path(__file__).parents[1] / "golden" / "metadata" / "none.ml.bin").read_bytes(),
        parse_managed_ledger_info,
    ),
    "block checksums": (
        pack_block_checksums(BlockChecksums.of(93, 7, [(400, 1), (500, 2)])),
        parse_block_checksums,
    ),
    "message id": (
        b"\x08\x03\x10\x04\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x20\x05",
        position_of_message_id,
    ),
}


def changed_document(document, random):
    """The text of a document of which one or two values are others, or gone."""
    copy = json.loads(json.dumps(document))
    given: list[str] = []
    for _ in range(random.choice([1, 1, 2])):
        places = list(places_in([copy]))
        if not places:
            break
        holder, at = random.choice(places)
        kind = random.randrange(8)
        if kind == 0 and isinstance(holder, dict):
            del holder[at]
        elif kind == 1 and isinstance(holder, dict):
            given.append(json.dumps(random.choice(["x", "9" * 5000, "-1", "٣", "version", "\0", "a\ud800"])))
            holder[f"@{len(given) - 1}@"] = holder.pop(at)
        else:
            given.append(random.choice(HOSTILE))
            holder[at] = f"@{len(given) - 1}@"
    text = json.dumps(copy)
    for number, each in enumerate(given):
        text = text.replace(f'"@{number}@"', each)
    return text.encode(errors="surrogatepass")


def places_in(value):
    for at, each in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, at
        if isinstance(each, dict | list):
            yield from places_in(each)


def changed_bytes(data, random):
    """Some bytes that are others, more, or fewer."""
    out = bytearray(data)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(out) + 1)
        match random.randrange(5):
            case 0 if at < len(out):
                out[at] ^= 1 << random.randrange(8)
            case 1:
                out[at : at + random.randint(1, 6)] = random.choice(
                    [
                        b"\xff" * 9 + b"\x01",
                        b"\0" * 8,
                        b"\x7f" + b"\xff" * 7,
                        b"\x80" + bytes(7),
                        random.randbytes(5),
                    ]
                )
            case 2:
                del out[at : at + random.randint(1, 9)]
            case 3:
                out[at:at] = random.choice(
                    [b"9" * 5000, "٣".encode(), b"_", b"-", b"\xed\xa0\x80", b"\0", b"[" * 9000]
                )
            case _:
                del out[at:]
    return bytes(out)


def expect_no_other_error(read, found):
    try:
        read()
    except OffloadError:
        pass
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} of {found[:300]!r}") from error


def numbers(cases):
    return [pytest.param(CASES), pytest.param(cases, marks=pytest.mark.nightly)]


@pytest.mark.parametrize("name", JSON)
def test_documents_that_are_right_are_read(name, tmp_path):
    document, read = JSON[name]
    if name != "prices as TOML":
        read(tmp_path, json.dumps(document).encode())


@pytest.mark.parametrize("cases", numbers(CASES_AT_NIGHT))
@pytest.mark.parametrize("name", JSON)
def test_changed_documents_are_a_value_or_an_error_of_ours(name, cases, tmp_path):
    document, read = JSON[name]
    if name == "verified objects":
        cases //= 10  # each is a file
    whole = json.dumps(document).encode()
    for seed in range(cases):
        random = Random(f"{name} {seed}")
        data = changed_document(document, random) if seed % 3 else changed_bytes(whole, random)
        expect_no_other_error(lambda data=data: read(tmp_path, data), data)


@pytest.mark.parametrize("name", JSON)
def test_a_document_that_is_one_hostile_value(name, tmp_path):
    _, read = JSON[name]
    for text in HOSTILE:
        data = text.encode(errors="surrogatepass")
        expect_no_other_error(lambda data=data: read(tmp_path, data), text)


@pytest.mark.parametrize("cases", numbers(CASES_AT_NIGHT))
@pytest.mark.parametrize("name", TEXTS)
def test_changed_texts_are_a_value_or_an_error_of_ours(name, cases):
    whole, read = TEXTS[name]
    read(whole)
    for seed in range(cases):
        random = Random(f"{name} {seed}")
        text = changed_bytes(whole.encode(), random).decode(
            errors=random.choice(["replace", "surrogateescape"])
        )
        if seed % 4 == 0:
            text = "".join(
                random.choice(["9" * 19, "٣", "-", "_1", " 1"]) if c.isdigit() else c for c in whole
            )
        expect_no_other_error(lambda text=text: read(text), text)


@pytest.mark.parametrize("cases", numbers(CASES_AT_NIGHT))
@pytest.mark.parametrize("name", BYTES)
def test_changed_bytes_are_a_value_or_an_error_of_ours(name, cases):
    whole, read = BYTES[name]
    read(whole)
    for seed in range(cases):
        data = changed_bytes(whole, Random(f"{name} {seed}"))
        expect_no_other_error(lambda data=data: read(data), data)
