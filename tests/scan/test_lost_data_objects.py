"""An index whose data object is gone: loss, for an index is written after its data and deleted before it."""

import logging
from dataclasses import replace

import pytest
from entries import LedgerPart, streaming_object
from mapfiles import lay_out_mapfile, mapfile
from records import closed, copied, managed_ledger
from scenes.lossy import NAME, at, lose, payloads, read, segment, whole
from tiers import TOPIC, lay_out, open_store, put_object, uuid_of

from offload_core.metadata.catalogue import Problem, list_catalogue
from offload_core.metadata.catalogue.listing import Pair, describe_pair
from offload_core.metadata.records import pack_managed_ledger_info
from offload_core.reading.scan import ScanOptions, Selection, select_catalogue
from offload_core.reading.scan.following import BatchLimit, TopicFollower, advance
from offload_core.storage.tier import Tier
from offload_hooks.errors import DataLossError
from offload_hooks.testing import MemoryDriver
from pulsar_offload import open_tier, scan


def as_pip17(root, ledger_id, number):
    """Lay a ledger of three entries out, under the uuid of a number."""
    lay_out(root, whole(ledger_id), attempt=number)


def as_segment(root, ledger_id, number):
    lay_out(root, segment(ledger_id, 0, 3), attempt=number)


def as_mapfile(root, ledger_id, number):
    written = mapfile(payloads(ledger_id, 0, 3), ledger_id=ledger_id)
    written = replace(written, key=replace(written.key, uuid=uuid_of(number)))
    lay_out_mapfile(root, written, checksums=False)


def lose_data(root, uuid):
    """Delete a data object as no program of ours does: its index stays."""
    with open_store(root) as store:
        keys = [each.key for each in store.list_objects() if str(uuid) in each.key]
        store.delete([key for key in keys if not key.endswith("index")])


FORMATS = pytest.mark.parametrize(
    "lay", [as_pip17, as_segment, as_mapfile], ids=["pip17", "streaming", "mapfile"]
)


def advanced(tier, *, fail=True):
    """How far a stream comes from the beginning: the ledger."""
    follower = TopicFollower(
        lambda known: select_catalogue(tier, Selection(), ScanOptions(), known=known),
        Selection(may_be_absent=True),
        interval_s=0,
    )
    reached = advance(follower.topics(), {}, BatchLimit(), fail_on_data_loss=fail)
    return reached[NAME].ledger_id if NAME in reached else None


@FORMATS
def test_a_topic_whose_only_ledger_is_lost_is_an_error(tmp_path, lay):
    lay(tmp_path, 5, 1)
    lose_data(tmp_path, uuid_of(1))
    tier = open_tier(tmp_path)
    assert lose(tier).ledger_id == 5
    assert lose(tier, start=at(5, 1)).ledger_id == 5
    with pytest.raises(DataLossError, match="no data object"):
        advanced(tier)


@FORMATS
def test_a_last_ledger_that_is_lost_is_an_error_or_passed_over_with_a_warning(tmp_path, lay, caplog):
    lay(tmp_path, 3, 1)
    lay(tmp_path, 5, 2)
    lose_data(tmp_path, uuid_of(2))
    tier = open_tier(tmp_path)
    assert lose(tier).ledger_id == 5
    with pytest.raises(DataLossError):
        advanced(tier)
    assert read(tier, stop=at(3, 2)) == payloads(3, 0, 2)
    with caplog.at_level(logging.WARNING):
        assert read(tier, fail_on_data_loss=False) == payloads(3, 0, 3)
    assert any("no data object" in message for message in caplog.messages)
    assert advanced(tier, fail=False) in (3, 4)


@FORMATS
def test_another_copy_of_the_ledger_is_read_instead(tmp_path, lay):
    lay(tmp_path, 5, 1)
    as_pip17(tmp_path, 5, 2)
    lose_data(tmp_path, uuid_of(1))
    assert read(open_tier(tmp_path)) == payloads(5, 0, 3)


def test_the_last_segment_of_a_ledger_is_lost(tmp_path):
    lay_out(tmp_path, segment(7, 0, 3), attempt=1)
    lay_out(tmp_path, segment(7, 3, 6), attempt=2)
    lose_data(tmp_path, uuid_of(2))
    tier = open_tier(tmp_path)
    error = lose(tier)
    assert (error.ledger_id, error.expected) == (7, "entries from 3 on")
    assert read(tier, stop=at(7, 3)) == payloads(7, 0, 3)
    assert read(tier, fail_on_data_loss=False) == payloads(7, 0, 3)
    with pytest.raises(DataLossError):
        advanced(tier)


def cut(root, uuid, suffix, length):
    """Only the first bytes of an object are left."""
    file = root / f"{uuid}{suffix}"
    file.write_bytes(file.read_bytes()[:length])


@pytest.mark.parametrize("length", [0, 100])
def test_a_segment_whose_data_is_not_as_long_as_its_index_says_is_lost(tmp_path, length):
    for number, first in enumerate((0, 3, 6), start=1):
        lay_out(tmp_path, segment(7, first, first + 3), attempt=number)
    lay_out(tmp_path, segment(8, 0, 3), attempt=4)
    cut(tmp_path, uuid_of(3), "", length)
    tier = open_tier(tmp_path)
    error = lose(tier)
    assert (error.ledger_id, error.expected) == (7, "entries from 6 on")
    assert read(tier, stop=at(7, 6)) == payloads(7, 0, 6)
    assert read(tier, start=at(8, 0)) == payloads(8, 0, 3)
    assert read(tier, fail_on_data_loss=False) == payloads(7, 0, 6) + payloads(8, 0, 3)
    with pytest.raises(DataLossError):
        advanced(tier)


@pytest.mark.parametrize("length", [0, 20])
@pytest.mark.parametrize("lost", [1, 2])
def test_a_segment_of_which_no_index_tells_what_it_holds_is_lost(tmp_path, lost, length, caplog):
    lay_out(tmp_path, segment(7, 0, 3), attempt=1)
    lay_out(tmp_path, segment(7, 3, 6), attempt=2)
    lay_out(tmp_path, segment(8, 0, 3), attempt=3)
    cut(tmp_path, uuid_of(lost), "-index", length)
    tier = open_tier(tmp_path)
    assert "it is not known which entries" in lose(tier).what
    with pytest.raises(DataLossError, match="it is not known which"):
        advanced(tier)
    assert advanced(tier, fail=False) in (8, 9)
    with caplog.at_level(logging.WARNING):
        assert read(tier, fail_on_data_loss=False)[-3:] == payloads(8, 0, 3)
    assert "it is not known which" in caplog.text


def test_a_topic_of_which_nothing_else_is_left_is_lost(tmp_path):
    lay_out(tmp_path, segment(7, 0, 3), attempt=1)
    cut(tmp_path, uuid_of(1), "-index", 0)
    assert "it is not known which entries" in lose(open_tier(tmp_path)).what
    with pytest.raises(DataLossError, match="it is not known which"):
        scan(open_tier(tmp_path)).to_table()
    with pytest.raises(DataLossError, match="it is not known which"):
        advanced(open_tier(tmp_path))


def test_of_a_segment_with_several_ledgers_all_are_lost(tmp_path):
    parts = [LedgerPart(ledger_id=each, blocks=[payloads(each, 0, 3)]) for each in (5, 6)]
    lay_out(tmp_path, streaming_object(parts), attempt=1)
    lose_data(tmp_path, uuid_of(1))
    error = lose(open_tier(tmp_path))
    assert error.what.startswith("2 ledgers")


@FORMATS
def test_a_data_object_without_index_is_not_there_yet(tmp_path, lay):
    lay(tmp_path, 3, 1)
    lay(tmp_path, 5, 2)
    with open_store(tmp_path) as store:
        keys = [each.key for each in store.list_objects() if str(uuid_of(2)) in each.key]
        store.delete([key for key in keys if key.endswith("index")])
    assert read(open_tier(tmp_path)) == payloads(3, 0, 3)
    assert advanced(open_tier(tmp_path)) in (3, 4)


def test_a_listing_that_met_the_index_before_the_data_looks_once_more():
    """A listing is no snapshot: the data object was committed after its key was passed, the index before its own."""
    tier = Tier(MemoryDriver())
    key = put_object(tier, whole(5), uuid_of(1))
    pair = Pair(key, index=tier.stat(key.index_key).as_listed())
    stored = describe_pair(tier, pair)
    assert stored.problem is None
    tier.delete([key.data_key])
    gone = describe_pair(tier, Pair(key, index=tier.stat(key.index_key).as_listed()))
    assert gone.problem is Problem.NO_DATA
    pair = Pair(key, index=tier.stat(key.index_key).as_listed())
    tier.delete([key.index_key])
    assert describe_pair(tier, pair) is None
    assert list_catalogue(tier).topics == ()


def test_the_data_object_may_lie_in_another_tier_that_is_read_as_well(tmp_path):
    first, second, record = tmp_path / "first", tmp_path / "second", tmp_path / "record"
    for root in (first, second):
        root.mkdir()
        as_pip17(root, 5, 1)
    lose_data(first, uuid_of(1))
    info = managed_ledger(closed(5, 3, copied(uuid_of(1), driver=None)))
    record.write_bytes(pack_managed_ledger_info(info))
    records = f"{TOPIC}={record}"
    assert lose(open_tier(first), records=records).ledger_id == 5
    assert read(open_tier(first).also(second), records=records) == payloads(5, 0, 3)
    lose_data(second, uuid_of(1))
    assert lose(open_tier(first).also(second), records=records).ledger_id == 5
