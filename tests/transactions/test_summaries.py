"""Stored summaries: made once, noticed when they are not of the object, refused when they are damaged, made anew."""

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from entries import pip17_object
from hypothesis import given
from hypothesis import strategies as st
from scenes.transactions import ONE, OTHER, PLAIN, Event, abort, commit, of
from tiers import MANAGED_LEDGER, TOPIC, MemoryDriver, Names, in_memory, lay_out, numbered

from offload_core.format.codec.object_format import parse_key
from offload_core.reading.scan.transactions import LedgerSummary, SummaryStore, pack_summary, parse_summary
from offload_core.reading.scan.transactions.summaries import summary_key
from offload_core.storage.tier import Tier, open_store
from offload_hooks.errors import FormatError, UnsupportedVersionError
from pulsar_offload import TierReader, open_tier, scan

EVENTS = [of(ONE), PLAIN, of(OTHER, 2), abort(ONE), commit(OTHER), Event(kind="tombstone")]
SEEN = [1, 2, 2]
WRITTEN = pip17_object([event.pack(i) for i, event in enumerate(EVENTS)], max_block_bytes=330)

SUMMARY = LedgerSummary(
    data_key="some/key",
    data_bytes=1234,
    ledger_id=7,
    ranges=np.array([[0, 3, 0, 1], [5, 6, 0, -2]], dtype=np.int64),
    markers=np.array([[4, 21, 0, 1], [9, 22, 0, -2]], dtype=np.int64),
    tombstones=np.array([[7, 9]], dtype=np.int64),
    blocks=np.array([[0, 6, 100, 200], [512, 4, 150, 300]], dtype=np.int64),
)


def tables(summary):
    return {
        name: getattr(summary, name)
        if name in ("data_key", "data_bytes", "ledger_id")
        else getattr(summary, name).tolist()
        for name in LedgerSummary.__dataclass_fields__
    }


def seen(tier, summaries):
    planned = scan(tier, TOPIC, columns=["__entryId"], summaries=summaries)
    assert planned.tasks
    return planned.to_table()["__entryId"].to_pylist()


def memory():
    driver = MemoryDriver(numbered(WRITTEN), metadata=Names().as_metadata("data"))
    return driver, TierReader(Tier(driver))


def data_reads(driver):
    found = [read for read in driver.reads if not read[0].endswith("-index")]
    driver.reads.clear()
    return found


def summary_file(folder):
    (path,) = folder.glob("*.summary")
    return path


# --- the store ---------------------------------------------------------------------------------


def test_with_summaries_no_data_is_looked_through_again(tmp_path):
    driver, tier = memory()
    for looks in (True, False):
        tasks = scan(tier, TOPIC, summaries=tmp_path).tasks
        assert bool(data_reads(driver)) == looks
        assert [run.aborted.bounds.tolist() for task in tasks for run in task.extents] == [[[0, 1]]]
    kept = parse_summary(summary_file(tmp_path).read_bytes())
    assert (kept.ledger_id, kept.data_bytes) == (7, len(WRITTEN.data))
    assert kept.ranges.tolist() == [[0, 1, *ONE], [2, 3, *OTHER]]
    assert kept.markers.tolist() == [[3, 22, *ONE], [4, 21, *OTHER]]
    assert kept.tombstones.tolist() == [[5, 6]]
    first = 1_700_000_000_000
    assert sum(kept.blocks[:, 1]) == len(EVENTS)
    assert (min(kept.blocks[:, 2]), max(kept.blocks[:, 3])) == (first, first + len(EVENTS) - 1)
    assert len(kept.blocks) > 1


def test_a_topic_without_transactions_is_read_once_and_not_looked_through():
    plain = pip17_object([PLAIN.pack(i) for i in range(50)])
    driver = MemoryDriver(numbered(plain), metadata=Names().as_metadata("data"))
    planned = scan(TierReader(Tier(driver)), TOPIC)
    assert planned.to_table().num_rows == 50
    assert sum(length for _, _, length in data_reads(driver)) == len(plain.data)


def test_uncommitted_looks_nothing_through():
    driver, tier = memory()
    planned = scan(tier, TOPIC, isolation="uncommitted")
    assert len(planned.tasks) == 1
    assert data_reads(driver) == []
    assert planned.to_table().num_rows == 4
    assert sum(length for _, _, length in data_reads(driver)) == len(WRITTEN.data)


def test_summaries_in_the_tier_itself_are_no_objects(tmp_path):
    key = lay_out(tmp_path, WRITTEN)
    with open_tier(tmp_path) as tier:
        before = tier.catalogue()
        assert seen(tier, tmp_path) == SEEN
        assert summary_file(tmp_path).name == f"{key}.ledger-7.summary"
        assert tier.catalogue() == before
    assert parse_key(summary_key(f"{MANAGED_LEDGER}/7-{parse_key(key).uuid}/data", 7)) is None


@pytest.fixture
def kept(tmp_path):
    """A tier whose summary was made, and its file."""
    _, tier = memory()
    assert seen(tier, tmp_path) == SEEN
    return tier, summary_file(tmp_path)


def test_a_summary_of_an_object_that_was_replaced_is_made_anew(tmp_path, kept):
    grown = [PLAIN, *EVENTS]
    other = in_memory(pip17_object([event.pack(i) for i, event in enumerate(grown)]))
    assert seen(other, tmp_path) == [0, 2, 3, 3]
    assert parse_summary(kept[1].read_bytes()).ranges[0].tolist() == [1, 2, *ONE]


@pytest.mark.parametrize("damage", [b"", b"no summary", None])
def test_a_damaged_summary_is_refused_and_made_anew(tmp_path, kept, caplog, damage):
    tier, path = kept
    right = path.read_bytes()
    path.write_bytes(right[:-1] + b"\x7f" if damage is None else damage)
    caplog.clear()
    assert seen(tier, tmp_path) == SEEN
    assert len(caplog.messages) == 1
    assert path.name in caplog.text
    assert caplog.messages[0].endswith("It is made anew")
    assert path.read_bytes() == right


def test_a_newer_summary_is_refused_and_left_alone(tmp_path, kept, caplog):
    tier, path = kept
    newer = path.read_bytes()[:4] + struct.pack(">I", 2) + path.read_bytes()[8:]
    path.write_bytes(newer)
    caplog.clear()
    assert seen(tier, tmp_path) == SEEN
    assert "expected 1, found 2" in caplog.text
    assert path.read_bytes() == newer


def test_where_nothing_can_be_kept_the_read_goes_on(tmp_path, caplog):
    (tmp_path / "file").write_bytes(b"")
    _, tier = memory()
    assert seen(tier, tmp_path / "file") == SEEN
    assert "a ledger's summary cannot be" in caplog.text


# --- the bytes ---------------------------------------------------------------------------------


def test_every_change_of_a_summary_is_refused():
    right = pack_summary(SUMMARY)
    for length in range(len(right)):
        with pytest.raises(FormatError):
            parse_summary(right[:length])
    for changed in (
        right + b"\0",
        *(right[:i] + bytes([right[i] ^ 1]) + right[i + 1 :] for i in range(len(right))),
    ):
        with pytest.raises(FormatError):
            parse_summary(changed)
    with pytest.raises(UnsupportedVersionError, match="Upgrade pulsar-offload"):
        parse_summary(right[:7] + b"\x02" + right[8:])


def signed(body, described_bytes):
    """A summary whose checksum is right."""
    return struct.pack(">IIII", 0x50754C53, 1, zlib.crc32(body), described_bytes) + body


@given(st.binary(max_size=200), st.integers(0, 2**32 - 1))
def test_bytes_of_any_kind_are_a_summary_or_refused(body, described_bytes):
    with pytest.raises(FormatError):
        parse_summary(signed(body, described_bytes))


@pytest.mark.parametrize(
    "facts",
    [
        [],
        {},
        {"data_key": 5},
        {"ranges": -1},
        {"ranges": 2**62},
        {"ranges": 2**70},
        {"ranges": 1.5},
        {"ledger_id": True},
        {"blocks": 3, "tombstones": 0},
    ],
)
def test_a_description_that_makes_no_sense_is_refused(facts):
    right = pack_summary(SUMMARY)
    size = struct.unpack_from(">I", right, 12)[0]
    if isinstance(facts, dict) and facts:
        facts = json.loads(right[16 : 16 + size]) | facts
    described = json.dumps(facts).encode()
    with pytest.raises(FormatError):
        parse_summary(signed(described + right[16 + size :], len(described)))


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("ranges", [[3, 3, 0, 0]]),
        ("ranges", [[0, 5, 0, 0], [4, 6, 0, 1]]),
        ("ranges", [[-1, 5, 0, 0]]),
        ("markers", [[5, 21, 0, 0], [5, 22, 0, 0]]),
        ("tombstones", [[4, 2]]),
        ("blocks", [[9, 1, 0, 0], [0, 1, 0, 0]]),
    ],
)
def test_tables_that_are_out_of_order_are_refused(name, rows):
    wrong = {field: getattr(SUMMARY, field) for field in LedgerSummary.__dataclass_fields__}
    packed = pack_summary(LedgerSummary(**wrong | {name: np.array(rows, dtype=np.int64)}))
    with pytest.raises(FormatError, match=f"a summary's {name} are not in order"):
        parse_summary(packed)


def test_a_summary_that_nobody_kept_is_none(tmp_path):
    with open_store(tmp_path) as store:
        kept = SummaryStore(store)
        assert kept.load("some/key", 1234, 7) is None
        kept.save(SUMMARY)
        assert tables(kept.load("some/key", 1234, 7)) == tables(SUMMARY)
        assert kept.load("some/key", 1235, 7) is None


def test_the_example_of_the_docs_is_what_is_written_and_read():
    """So a summary of this version can always be read."""
    example = (Path(__file__).parents[1] / "docs" / "summary-v1.bin").read_bytes()
    assert tables(parse_summary(example)) == tables(SUMMARY)
    assert pack_summary(SUMMARY) == example
