"""Records whose values no program writes: no command ends in an error of Python's own, and others are read."""

from contextlib import closing
from dataclasses import replace

import pytest
from entries import entry, pip17_object
from records import closed, copied
from tiers import Names, lay_out, uuid_of

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.topics import TopicName, managed_ledger_of_topic
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.records.managed_ledger_info import LedgerRecord
from offload_core.metadata.records.offload_context import DriverMetadata
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store
from offload_core.storage.tier import open_store

GOOD, BAD = "acme/cold/orders", "acme/cold/returns"
PAYLOADS = [entry(b"%04d" % i * 20) for i in range(40)]
MOST = 2**63 - 1

DIGITS, DEEP = "1" * 5000, "[" * 100_000

RECORD = closed(9, len(PAYLOADS), copied(uuid_of(3)))


def with_info(**changes):
    return replace(RECORD, info=replace(RECORD.info, **changes))


def with_context(**changes):
    assert RECORD.context is not None
    return replace(RECORD, context=replace(RECORD.context, **changes))


def with_properties(**properties):
    named = {name.replace("__", "."): text for name, text in properties.items()}
    return with_context(driver=DriverMetadata(name="local", properties=tuple(named.items())))


HOSTILE = {
    "entries": with_info(entries=MOST),
    "negative entries": with_info(entries=-MOST),
    "size": with_info(size=MOST),
    "negative size": with_info(size=-1),
    "time": with_info(timestamp_ms=MOST),
    "time before all": with_info(timestamp_ms=-MOST),
    "ledger": with_info(ledger_id=MOST),
    "negative ledger": with_info(ledger_id=-MOST - 1),
    "time of offload": with_context(timestamp_ms=MOST),
    "driver": with_context(driver=DriverMetadata(name="x" * 10_000 + "\0")),
    "replacement of digits": with_properties(**{"pulsar-offload__replacement": DIGITS}),
    "replacement that is deep": with_properties(**{"pulsar-offload__replacement": DEEP}),
    "replaced that is deep": with_properties(**{"pulsar-offload__replaced": DEEP}),
    "filter that is deep": with_properties(**{"pulsar-offload__filter": DEEP}),
    "lease": with_properties(lease=f"{'f' * 16}:9999999999:{'9' * 19}:{'9' * 18}"),
    "place": with_properties(location=f"file:///{DIGITS}", bucket="\ud7ff" * 500),
}

COMMANDS = [
    *("ls ./tier --json", "du ./tier", "verify ./tier", "gc ./tier", "rollback plan ./tier", "repair ./tier"),
    *("report ./tier --output page.html", "relocate ./tier --to ./elsewhere"),
    *(f"history ./tier {BAD}", f"cat ./tier --topic {BAD}"),
]


def lay_out_all(root, hostile):
    (root / "tier").mkdir()
    names = [managed_ledger_of_topic(TopicName(f"persistent://{topic}")) for topic in (GOOD, BAD)]
    for attempt, name in ((1, names[0]), (3, names[1])):
        written = pip17_object(PAYLOADS, ledger_id={1: 7, 3: 9}[attempt])
        lay_out(root / "tier", written, attempt=attempt, names=Names(managed_ledger=name))
    with (
        open_store(root / "tier") as tier,
        closing(open_metadata_store("sqlite:records.db", {"create": True})) as store,
    ):
        good = closed(7, len(PAYLOADS), copied(uuid_of(1), driver=tier_record(tier)))
        records = ManagedLedgerRecords(store)
        records.write(names[0], ManagedLedgerInfo(ledgers=(good,)), None)
        more = LedgerRecord(info=LedgerInfo(ledger_id=10, entries=1, size=1, timestamp_ms=1))
        records.write(names[1], ManagedLedgerInfo(ledgers=(hostile, more)), None)


@pytest.mark.long
@pytest.mark.parametrize("kind", HOSTILE)
def test_no_command_ends_in_an_error_of_pythons(offload, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    lay_out_all(tmp_path, HOSTILE[kind])
    for command in COMMANDS:
        result = offload(*command.split(), "--records", "sqlite:records.db")
        assert result.code in (0, 1, 2), (command, result.err)
        assert "Traceback" not in result.err, command
    good = offload("cat", "./tier", "--topic", GOOD, "--records", "sqlite:records.db", "--limit", "100")
    assert (good.code, good.err) == (0, "")
