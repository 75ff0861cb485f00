"""One topic whose ledgers lie in all three formats, half of them written by Pulsar's classes, half by us.

It reads as one, in order, through every way in, from a folder and from S3 (PIP-76, "Tests Plan", its cold half).
"""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass

import pytest
from commands import COMMAND
from entries import LedgerPart, entry, pip17_object, streaming_object
from mapfiles import lay_out_mapfile, mapfile
from oracle import MANAGED_LEDGER, TOPIC, Entry
from records import closed, copied, managed_ledger, segment
from scenes.judged import LEAST_PART_BYTES, entries_of, new_attempt, new_ledger_id, store_object
from stores import Store
from tiers import put

from offload_core.metadata.records import DriverMetadata, OffloadContext, pack_managed_ledger_info
from pulsar_offload import scan

pytestmark = pytest.mark.sampled(4)

MESSAGES = 40
FILES = DriverMetadata(name="filesystem")
COLUMNS = ("value", "__topic", "__ledgerId", "__entryId")
FORMATS = ["pip17", "pip17", "streaming", "streaming", "streaming", "mapfile", "mapfile"]
"""Of the ledgers in order: Pulsar's, ours; Pulsar's in two segments, ours two in one; Pulsar's, ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """A tier with that topic.

    Attributes:
        record: the topic's record, as an option names it.
        entries: all of the topic's, in order.
        unnamed: the ledger whose objects name no topic: Pulsar's streaming objects.
    """

    store: Store
    record: str
    entries: list[Entry]
    unnamed: int


@pytest.fixture(params=["folder", "bucket"])
def mixed(request, oracle, tmp_path):
    """The topic in a folder, or in a bucket on S3."""
    store: Store = request.getfixturevalue(request.param)
    ids = [new_ledger_id() for _ in FORMATS]
    of = {each: [entry(f"{each}:{i}".encode()) for i in range(MESSAGES)] for each in ids}
    records = [
        *whole_ledgers(oracle, store, {each: of[each] for each in ids[:2]}),
        in_two_segments(oracle, store, ids[2], of[ids[2]]),
        *two_in_one_segment(store, {each: of[each] for each in ids[3:5]}),
        *map_files(oracle, store, tmp_path / "files", {each: of[each] for each in ids[5:]}),
    ]
    path = tmp_path / "record"
    path.write_bytes(pack_managed_ledger_info(managed_ledger(*reversed(records))))
    return Mixed(
        store=store,
        record=f"{TOPIC}={path}",
        entries=[each for ledger_id in ids for each in entries_of(ledger_id, of[ledger_id])],
        unnamed=ids[2],
    )


def whole_ledgers(oracle, store, ledgers):
    """Two PIP-17 objects: Pulsar's and ours."""
    (theirs, of_theirs), (ours, of_ours) = ledgers.items()
    attempt = new_attempt()
    oracle.offload(store, attempt, theirs, of_theirs)
    written = store_object(store, pip17_object(of_ours, ledger_id=ours))
    return [closed(theirs, MESSAGES, copied(attempt)), closed(ours, MESSAGES, copied(written))]


def in_two_segments(oracle, store, ledger_id, payloads):
    """Two streaming objects of Pulsar's, which name no topic."""
    entries, segments = entries_of(ledger_id, payloads), []
    for part in (entries[: MESSAGES // 2], entries[MESSAGES // 2 :]):
        attempt = new_attempt()
        oracle.stream(store, attempt, part)
        segments.append(segment(attempt, part[-1][1]))
    return closed(ledger_id, MESSAGES, OffloadContext.of_segments(segments, complete=True))


def two_in_one_segment(store, ledgers):
    """A streaming object of ours."""
    parts = [
        LedgerPart(ledger_id=each, blocks=[payloads[:7], payloads[7:]]) for each, payloads in ledgers.items()
    ]
    attempt = store_object(store, streaming_object(parts, min_block_bytes=LEAST_PART_BYTES))
    context = OffloadContext.of_segments([segment(attempt, MESSAGES - 1)], complete=True)
    return [closed(each, MESSAGES, context) for each in ledgers]


def map_files(oracle, store, files, ledgers):
    """Two MapFiles: Pulsar's and ours; written to a folder, and copied from there."""
    (theirs, of_theirs), (ours, of_ours) = ledgers.items()
    attempt = new_attempt()
    oracle.offload_files(files, attempt, theirs, of_theirs)
    written = mapfile(of_ours, ledger_id=ours, managed_ledger=MANAGED_LEDGER)
    lay_out_mapfile(files, written)
    with store.open() as tier:
        for path in sorted(path for path in files.rglob("*") if path.is_file()):
            put(tier, str(path.relative_to(files)), path.read_bytes(), {})
    return [
        closed(theirs, MESSAGES, copied(attempt, driver=FILES)),
        closed(ours, MESSAGES, copied(written.key.uuid, driver=FILES)),
    ]


def messages(entries):
    """The expected values of `COLUMNS`."""
    return ((f"{ledger}:{i}", TOPIC, ledger, i) for ledger, i, _ in entries)


def as_message(row):
    value = row["value"]
    assert isinstance(value, bytes)
    return (value.decode(), *(row[name] for name in COLUMNS[1:]))


@pytest.mark.parametrize("task_bytes", [1 << 30, 1])
def test_it_is_read_in_order_by_its_record(mixed, task_bytes):
    with mixed.store.open_reader() as tier:
        (topic,) = tier.catalogue(records=mixed.record).topics
        assert [form.value for ledger in topic.ledgers for form in ledger.formats] == FORMATS
        planned = scan(tier, TOPIC, level="entries", task_bytes=task_bytes, records=mixed.record)
        table = planned.to_table()
    columns = (table[name].to_pylist() for name in ("__ledgerId", "__entryId", "value"))
    assert list(zip(*columns, strict=True)) == mixed.entries


def test_without_a_record_all_is_read_but_what_names_no_topic(mixed):
    named = [each for each in mixed.entries if each[0] != mixed.unnamed]
    with mixed.store.open_reader() as tier:
        rows = scan(tier, TOPIC, columns=COLUMNS).to_table().to_pylist()
        unnamed = scan(tier, ledger=mixed.unnamed, level="entries").to_table()["value"].to_pylist()
    assert [as_message(row) for row in rows] == list(messages(named))
    assert unnamed == [payload for ledger, _, payload in mixed.entries if ledger == mixed.unnamed]


def test_the_command_line_reads_it(mixed):
    command = [str(COMMAND), "cat", *mixed.store.command_line(), "--topic", TOPIC, "--records", mixed.record]
    command += ["--format", "jsonl", "--columns", ",".join(COLUMNS)]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    read = [as_message(row | {"value": base64.b64decode(row["value"])}) for row in rows]
    assert read == list(messages(mixed.entries))


@pytest.mark.nightly
@pytest.mark.spark
def test_spark_reads_it(spark, mixed):
    reader = spark.read.format("pulsar_offload").options(**mixed.store.spark_options())
    reader = reader.option("topic", TOPIC).option("records", mixed.record)
    frame = reader.option("columns", ",".join(COLUMNS)).load().orderBy("__ledgerId", "__entryId")
    assert [as_message(row) for row in frame.toArrow().to_pylist()] == list(messages(mixed.entries))
