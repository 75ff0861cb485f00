"""Segments of ledgers that are not there from their beginning: golden ones, and what retention trimmed."""

from dataclasses import replace

import pytest
from scenes.lossy import at, ending_one, lose, payloads, read, segment, whole
from tiers import TOPIC, in_memory, lay_out_case

from offload_hooks.errors import DataLossError
from pulsar_offload import open_tier, scan


def test_golden_segments_are_read_as_one_ledger_and_alone_they_are_not_whole(tmp_path):
    lay_out_case(tmp_path, "streaming", "seg2-of-2")
    with open_tier(tmp_path) as tier, pytest.raises(DataLossError, match="the first entries") as caught:
        scan(tier, ledger=30)
    assert caught.value.found == "entries from 100 on"
    lay_out_case(tmp_path, "streaming", "seg1-of-2")
    with open_tier(tmp_path) as tier:
        table = scan(tier, ledger=30, level="entries").to_table()
    assert table["__entryId"].to_pylist() == list(range(300))


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
    broken = replace(segment(5, 0, 4), index=segment(5, 0, 4).index[:-1])
    assert "it is not known which entries" in lose(in_memory(broken, ending_one(4)), topics=TOPIC).what


def test_a_topic_without_its_first_segment_is_read_from_where_it_begins_here(caplog):
    tier = in_memory(segment(5, 4, 6), whole(6))
    assert read(tier, topics=TOPIC) == payloads(5, 4, 6) + payloads(6, 0, 3)
    assert "They were trimmed, or are lost" in caplog.text
    assert lose(tier, topics=TOPIC, start=at(5, 2)).ledger_id == 5
