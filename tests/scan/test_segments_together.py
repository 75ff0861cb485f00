"""Several segments of a ledger, several ledgers of a segment: read as one, and what retention trimmed of them."""

import pytest
from entries import LedgerPart, WrittenObject, pip17_object, streaming_object
from scenes.lossy import at, ending_one, lose, payloads, read, segment, whole
from tiers import TOPIC, in_memory, lay_out_case

from offload_hooks.errors import DataLossError
from pulsar_offload import open_tier, scan


def test_a_ledger_over_several_segments_is_read_as_one():
    tier = in_memory(segment(7, 6, 9), segment(7, 0, 2), segment(7, 2, 6))
    assert read(tier) == payloads(7, 0, 9)


def test_several_ledgers_of_one_segment_are_read_in_order():
    parts = [
        LedgerPart(ledger_id=each, blocks=[payloads(each, 0, 2), payloads(each, 2, 3)]) for each in (9, 7, 8)
    ]
    tier = in_memory(streaming_object(parts))
    assert read(tier) == [*payloads(7, 0, 3), *payloads(8, 0, 3), *payloads(9, 0, 3)]


def test_a_newer_attempt_at_a_segment_is_read_instead_of_the_older():
    newer = streaming_object([LedgerPart(ledger_id=7, blocks=[[b"new 2", b"new 3"]], first_entry_id=2)])
    assert read(in_memory(segment(7, 0, 2), segment(7, 2, 4), newer)) == [
        *payloads(7, 0, 2),
        b"new 2",
        b"new 3",
    ]


def test_of_segments_that_overlap_each_entry_is_read_once():
    assert read(in_memory(segment(7, 0, 5), segment(7, 3, 8))) == payloads(7, 0, 8)


def test_a_whole_copy_is_read_instead_of_segments():
    tier = in_memory(pip17_object([b"whole"] * 6, ledger_id=7), segment(7, 0, 3), segment(7, 3, 6))
    assert read(tier) == [b"whole"] * 6


def test_golden_segments_are_read_as_one_ledger_and_alone_they_are_not_whole(tmp_path):
    lay_out_case(tmp_path, "streaming", "seg2-of-2")
    with open_tier(tmp_path) as tier, pytest.raises(DataLossError, match="the first entries") as caught:
        scan(tier, ledger=30)
    assert caught.value.found == "entries from 100 on"
    lay_out_case(tmp_path, "streaming", "seg1-of-2")
    with open_tier(tmp_path) as tier:
        ids = (
            scan(tier, ledger=30, level="entries", columns=["__entryId"]).to_table()["__entryId"].to_pylist()
        )
    assert ids == list(range(300))


def test_what_was_trimmed_and_lies_beside_a_later_ledger_is_no_loss(caplog):
    """Without records: a segment stays until all its ledgers are gone."""
    tier = in_memory(ending_one(4))
    assert read(tier, topics=TOPIC) == payloads(5, 4, 6) + payloads(6, 0, 3)
    assert "They were trimmed, or are lost" in caplog.text
    assert lose(tier, topics=TOPIC, start=at(5, 2)).ledger_id == 5


@pytest.mark.parametrize(
    "before",
    [pytest.param(whole(4), id="an-earlier-ledger"), pytest.param(segment(5, 0, 3), id="an-earlier-segment")],
)
def test_behind_what_was_not_trimmed_it_is_loss(before):
    assert lose(in_memory(before, ending_one(4)), topics=TOPIC).ledger_id == 5


def test_it_is_loss_where_an_object_does_not_tell_what_it_holds():
    broken = segment(5, 0, 4)
    broken = WrittenObject(key=broken.key, data=broken.data, index=broken.index[:-1], entries=())
    assert "it is not known which entries" in lose(in_memory(broken, ending_one(4)), topics=TOPIC).what


def test_a_segment_of_one_ledger_would_have_gone_with_it():
    assert lose(in_memory(segment(5, 4, 6), whole(6)), topics=TOPIC).ledger_id == 5
