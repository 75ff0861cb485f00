"""One bad file of a tier, of each kind, ends no command: what others have is complete, and the file is a finding."""

import json
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from entries import LedgerPart, entry, pip17_object, streaming_object
from records import closed, copied
from tiers import Names, lay_out, uuid_of

from offload_core.format.codec.index import BlockEntry
from offload_core.format.codec.ledger_metadata import LedgerMetadata, LedgerState
from offload_core.format.codec.pip17 import pack_pip17_index
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.topics import TopicName, managed_ledger_of_topic
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.stores import ManagedLedgerRecords, open_metadata_store
from offload_core.storage.tier import open_store

GOOD, BAD = "acme/cold/orders", "acme/cold/returns"
PAYLOADS = [entry(b"%04d" % i * 20) for i in range(40)]
DATA = f"{uuid_of(3)}-ledger-9"
INDEX, CHECKSUMS = f"{DATA}-index", f"{DATA}-checksums"
SIDECAR = ".metadata.json"

HOSTILE = {
    "digits": b'{"version": ' + b"1" * 5000 + b"}",
    "deep": b"[" * 100_000,
    "not a number": b'{"version": NaN}',
    "no version": b"{}",
    "text": b'"x"',
    "surrogate": b'{"version": 1, "content_type": "\\ud800", "user_metadata": {}}',
    "utf-16": '{"version": 1}'.encode("utf-16"),
    "nothing": b"",
    "zeros": bytes(100),
    "wrong types": b'{"version": 1, "content_type": 1e300, "user_metadata": [1]}',
    "newer": b'{"version": 2}',
}
LONG = ("digits", "deep")


def with_files(*names, holding):
    def spoil(root):
        for name in names:
            (root / name).write_bytes(holding)

    return spoil


def with_metadata(**said):
    def spoil(root):
        for key in (DATA, INDEX):
            path = root / f"{key}{SIDECAR}"
            document = json.loads(path.read_bytes())
            document["user_metadata"] |= said
            path.write_text(json.dumps(document))

    return spoil


def with_index(change):
    def spoil(root):
        (root / INDEX).write_bytes(change((root / INDEX).read_bytes()))

    return spoil


def index_of(last_entry_id, offset, first=0):
    metadata = LedgerMetadata(
        write_quorum_size=1, ensemble_size=1, length=1, state=LedgerState.CLOSED, last_entry_id=last_entry_id
    )
    return pack_pip17_index(metadata, [BlockEntry(first_entry_id=first, part_number=1, offset=offset)], 4000)


SPOILT = {
    **{
        f"sidecar of data: {name}": with_files(DATA + SIDECAR, holding=text) for name, text in HOSTILE.items()
    },
    **{f"sidecar of index: {name}": with_files(INDEX + SIDECAR, holding=HOSTILE[name]) for name in LONG},
    **{
        f"both sidecars: {name}": with_files(DATA + SIDECAR, INDEX + SIDECAR, holding=HOSTILE[name])
        for name in LONG
    },
    "metadata: version": with_metadata(s3managedledgeroffloaderformatversion="9" * 5000),
    "metadata: topic": with_metadata(managedledgername="\0" + "ü/" * 5000 + "-partition-" + "9" * 5000),
    "metadata: lost": with_metadata(pulsaroffloadlost="9999999999999999999 entries: 9999999999999999999:1"),
    "metadata: filter": with_metadata(pulsaroffloadfilter="x" * 10_000, pulsaroffloadfiltermode="٣"),
    "index: empty": with_index(lambda _: b""),
    "index: cut off": with_index(lambda data: data[:40]),
    "index: zeros": with_index(lambda data: bytes(len(data))),
    "index: of many blocks": with_index(lambda data: data[:24] + b"\x7f\xff\xff\xff" + data[28:]),
    "index: last entry": with_index(lambda _: index_of(2**63 - 1, 0)),
    "index: far offset": with_index(lambda _: index_of(5, -(2**63))),
    "index: far entry": with_index(lambda _: index_of(5, 0, 2**63 - 1)),
    "checksums: garbage": with_files(CHECKSUMS, holding=b"\xff" * 100),
    "checksums: sidecar": with_files(CHECKSUMS, CHECKSUMS + SIDECAR, holding=HOSTILE["digits"]),
    "key: ledger of 19 nines": with_files(f"{uuid_of(5)}-ledger-{'9' * 19}", holding=b"x"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Two topics with their records: of one two ledgers, of the other one."""
    root = tmp_path_factory.mktemp("sound")
    tier = root / "tier"
    tier.mkdir()
    for attempt, (topic, ledger_id) in enumerate([(GOOD, 7), (GOOD, 8), (BAD, 9)], start=1):
        names = Names(managed_ledger=managed_ledger_of_topic(TopicName(f"persistent://{topic}")))
        lay_out(tier, pip17_object(PAYLOADS, ledger_id=ledger_id), attempt=attempt, names=names)
    return root


@pytest.fixture
def here(sound, tmp_path, monkeypatch):
    """The same, to be spoilt; the working directory."""
    shutil.copytree(sound, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    with (
        open_store(tmp_path / "tier") as tier,
        closing(open_metadata_store("sqlite:records.db", {"create": True})) as store,
    ):
        place = tier_record(tier)
        for topic, ledgers in ((GOOD, [(7, 1), (8, 2)]), (BAD, [(9, 3)])):
            records = [
                closed(ledger, len(PAYLOADS), copied(uuid_of(n), driver=place)) for ledger, n in ledgers
            ]
            name = managed_ledger_of_topic(TopicName(f"persistent://{topic}"))
            ManagedLedgerRecords(store).write(name, ManagedLedgerInfo(ledgers=tuple(records)), None)
    return tmp_path


COMMANDS = {
    "ls": ["ls", "./tier", "--json"],
    "ls by segment": ["ls", "./tier", "--by", "segment"],
    "ls with records": ["ls", "./tier", "--json", "--records", "sqlite:records.db"],
    "du": ["du", "./tier", "--json"],
    "du with records": ["du", "./tier", "--json", "--records", "sqlite:records.db"],
    "cost": ["cost", "./tier", "--json"],
    "report": ["report", "./tier", "--output", "page.html"],
    "verify": ["verify", "./tier", "--json"],
    "verify deep": ["verify", "./tier", "--deep", "--json", "--records", "sqlite:records.db"],
    "gc": ["gc", "./tier", "--records", "sqlite:records.db", "--accept-short-grace", "--grace", "0"],
    "repair": ["repair", "./tier"],
    "recover": ["recover", "./tier"],
    "relocate": ["relocate", "./tier", "--to", "./elsewhere", "--records", "sqlite:records.db"],
    "rollback plan": ["rollback", "plan", "./tier"],
    "history": ["history", "./tier", GOOD],
    "cat": ["cat", "./tier", "--topic", GOOD, "--limit", "100"],
    "export": ["export", "./tier", "--topic", GOOD, "--to", "./rows"],
    "doctor": ["doctor", "./tier", "--read-only"],
}

FINDS = ("verify", "verify deep", "repair")
"""Their exit code says that something is wrong."""

_OURS = ("orders", str(uuid_of(1)), str(uuid_of(2)))
_THEIRS = ("returns", str(uuid_of(3)), "unknown")
_BEFORE = {}


def run(offload, command):
    """What a command says, wherever the tier lies."""
    result = offload(*command)
    return replace(result, out=result.out.replace(str(Path.cwd()), "HERE"))


def told_of_others(out):
    """What a command says of the topic that is sound: objects of a JSON document, or lines.

    Lines without the cluster, which has a column only if some object names another, or none.
    """
    if not out.startswith("{"):
        return [
            " ".join(line.replace(" east ", " ").split()) for line in out.splitlines() if is_of_others(line)
        ]
    return sorted(parts_of_others(json.loads(out)))


def parts_of_others(value):
    if isinstance(value, list):
        for each in value:
            yield from parts_of_others(each)
    elif isinstance(value, dict):
        texts = [
            json.dumps(each) for each in value.values() if not isinstance(each, dict) and not of_objects(each)
        ]
        if any(map(is_of_others, texts)):
            yield json.dumps(value, sort_keys=True)
            return
        for name, each in value.items():
            if is_of_others(name):
                yield json.dumps({name: each}, sort_keys=True)
            else:
                yield from parts_of_others(each)


def of_objects(value):
    return isinstance(value, list) and any(isinstance(each, dict) for each in value)


def is_of_others(text):
    return any(each in text for each in _OURS) and not any(each in text for each in _THEIRS)


@pytest.mark.long
@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", SPOILT)
def test_no_command_ends_and_what_is_said_of_others_is_complete(offload, here, kind):
    if not _BEFORE:
        _BEFORE.update((name, run(offload, command)) for name, command in COMMANDS.items())
    for path in (Path("elsewhere"), Path("rows"), Path("page.html")):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    SPOILT[kind](here / "tier")
    for name, command in COMMANDS.items():
        before, result = _BEFORE[name], run(offload, command)
        assert result.code in ((before.code, 1) if name in FINDS else (before.code,)), (name, result.err)
        assert told_of_others(result.out) == told_of_others(before.out), name
    assert any(told_of_others(each.out) for each in _BEFORE.values())


@pytest.mark.parametrize("kind", [kind for kind in SPOILT if kind.startswith(("sidecar of data", "both"))])
def test_a_sidecar_that_cannot_be_read_is_a_finding_with_its_key(offload, here, kind):
    SPOILT[kind](here / "tier")
    findings = offload("verify", "./tier", "--json").json["findings"]
    assert ("metadata.unreadable", DATA) in {(each["code"], each["key"]) for each in findings}
    (problem,) = offload("ls", "./tier", "--json").json["problems"]
    assert (problem["key"], problem["problem"]) == (DATA, "broken-metadata")
    assert "sidecar" in problem["detail"]


@pytest.mark.parametrize("kind", [f"sidecar of data: {name}" for name in LONG])
def test_a_topic_whose_last_ledger_cannot_be_read_for_its_sidecar_has_lost_it(offload, here, kind):
    SPOILT[kind](here / "tier")
    for more in ([], ["--records", "sqlite:records.db"]):
        result = offload("cat", "./tier", "--topic", BAD, *more)
        assert result.code == 1, result.out
        assert "ledger 9" in result.err
        assert "sidecar" in result.err


def test_a_segment_that_cannot_be_read_for_its_sidecar_is_lost(offload, tmp_path):
    parts = [LedgerPart(ledger_id=5, blocks=[PAYLOADS])]
    key = lay_out(tmp_path, streaming_object(parts), attempt=4)
    (tmp_path / f"{key}.metadata.json").write_bytes(HOSTILE["digits"])
    result = offload("cat", tmp_path, "--topic", "acme/cold/orders")
    assert (result.code, "ledger 5" in result.err) == (1, True), result.err


def test_a_text_without_end_makes_no_line_without_end(offload, tmp_path):
    """All rows of a table are as wide as its longest cell."""
    key = lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=9))
    sidecar = tmp_path / f"{key}-index.metadata.json"
    document = json.loads(sidecar.read_bytes())
    document["user_metadata"]["managedledgername"] = "x" * 1_000_000
    sidecar.write_text(json.dumps(document))
    result = offload("verify", tmp_path)
    assert "metadata.contradiction" in result.out
    assert max(map(len, result.out.splitlines())) < 10_000
    assert "(1000000 characters)" in result.out.replace("\n", "")
