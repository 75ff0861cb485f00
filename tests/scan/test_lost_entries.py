"""Entries that were lost before an object was repaired: who asks for one of them is told, by default with an error."""

import pytest
from entries import entry, pip17_object
from managed_ledgers import Audit
from tiers import TOPIC, lay_out

from offload_core.format.codec.object_marks import LOST_KEY, LostEntries, ObjectMarks, parse_lost
from offload_core.maintenance.repair import Repair
from offload_hooks.errors import DataLossError, MetadataError
from pulsar_offload import open_tier, scan

LOST = 5


@pytest.fixture
def repaired(tmp_path):
    """A tier with a ledger of which one entry was lost, and the rest was saved."""
    payloads = [entry(b"%04d" % i * 30) for i in range(20)]
    written = pip17_object(payloads, ledger_id=7, max_block_bytes=1000)
    key = lay_out(tmp_path, written)
    data = bytearray((tmp_path / key).read_bytes())
    data[written.data.index(payloads[LOST]) + 60] ^= 1
    (tmp_path / key).write_bytes(data)
    with open_tier(tmp_path) as tier:
        work = Repair(tier.store)
        (planned,) = work.plan()
        work.do(planned, Audit())
    return tmp_path


def test_a_scan_of_lost_entries_fails(repaired):
    with open_tier(repaired) as tier, pytest.raises(DataLossError, match="lacks 1 entries: 7:5"):
        scan(tier, TOPIC, columns=["__entryId"]).to_table()


def test_it_gives_all_others_if_that_is_asked_for(repaired, caplog):
    with open_tier(repaired) as tier:
        table = scan(tier, TOPIC, columns=["__entryId"], fail_on_data_loss=False).to_table()
    assert table.column("__entryId").to_pylist() == [i for i in range(20) if i != LOST]
    assert "were lost before its copy was repaired" in caplog.text


def test_ranges_are_packed_and_read():
    lost = LostEntries.of([(8, 0, 1), (7, 3, 7), (9, 4, 4)])
    assert lost.pack() == "5 entries: 7:3-6,8:0"
    assert parse_lost(lost.pack()) == lost
    assert lost.touches(7, 0, None)
    assert lost.touches(7, 6, 7)
    assert not lost.touches(7, 7, None)
    assert not lost.touches(7, 0, 3)
    assert not lost.touches(6, 0, None)


def test_where_there_is_no_room_for_all_ranges_any_entry_may_be_lost():
    many = LostEntries.of((7, 2 * i, 2 * i + 1) for i in range(1000))
    text = many.pack()
    assert len(text) < 1100
    found = parse_lost(text)
    assert (found.count, found.is_all) == (1000, False)
    assert found.touches(7, 1_000_000, None)
    assert parse_lost(found.pack()) == found


@pytest.mark.parametrize(
    "text", ["", "0 entries: ", "1 entries", "1 entries: 7", "x entries: 7:1", "1 entries: 7:1;"]
)
def test_what_cannot_be_read_is_lost_entries_nonetheless(text):
    with pytest.raises(MetadataError):
        parse_lost(text)
    lost = ObjectMarks.of({LOST_KEY: text}).lost
    assert lost.touches(1, 2, 3)
