"""What is missing: an error that says where, or with `fail_on_data_loss=False` a warning and what there is."""

import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest
from scenes.lossy import HINT, at, closed_with, lose, payloads, read, segment, whole
from tiers import TOPIC, in_memory, lay_out

from offload_core.reading.scan import Position
from offload_hooks.errors import DataLossError
from pulsar_offload import open_tier, scan

# --- whole ledgers -----------------------------------------------------------------------------


def test_a_start_in_a_ledger_that_is_not_here_is_an_error_or_reads_on_from_the_next(caplog):
    tier = in_memory(whole(3), whole(5))
    error = lose(tier, start=at(4, 1, 2))
    assert str(error) == (
        f"{TOPIC} was asked for from 4:1:2, but that ledger has no copy here (ledger 4): found ledgers 3, 5. {HINT}"
    )
    assert read(tier, start=at(4, 1, 2), fail_on_data_loss=False) == payloads(5, 0, 3)
    assert caplog.messages == [str(error)]


def test_a_start_beyond_the_stop_is_no_loss():
    assert read(in_memory(whole(3), whole(5)), start=at(5, 0), stop=at(3, 1)) == []


def incomplete(tmp_path, ledger_id):
    """Ledgers 3, 5 and 8, of which one has only a data object."""
    for number, each in enumerate((3, 5, 8)):
        parts: Sequence[str] = ["data"] if each == ledger_id else ["data", "index"]
        lay_out(tmp_path, whole(each), attempt=number, parts=parts)
    return open_tier(tmp_path)


@pytest.mark.parametrize(("ledger_id", "others"), [(3, (5, 8)), (5, (3, 8))])
def test_a_ledger_in_the_middle_without_a_complete_copy_is_an_error_or_left_out(
    tmp_path, ledger_id, others, caplog
):
    tier = incomplete(tmp_path, ledger_id)
    error = lose(tier)
    assert error.what == f"a ledger of {TOPIC} has no complete copy"
    assert (error.ledger_id, error.expected) == (ledger_id, f"positions from {ledger_id}:0 on")
    assert "the data object has no index: an attempt that did not finish" in str(error)
    assert f"-ledger-{ledger_id}: " in str(error)
    assert read(tier, fail_on_data_loss=False) == [
        payload for each in others for payload in payloads(each, 0, 3)
    ]
    assert caplog.messages == [str(error)]


def test_a_last_ledger_without_a_complete_copy_may_be_on_its_way(tmp_path, caplog):
    assert read(incomplete(tmp_path, 8)) == [*payloads(3, 0, 3), *payloads(5, 0, 3)]
    (message,) = caplog.messages
    assert message.startswith(f"{TOPIC} is read up to ledger 5: ledger 8 has no complete copy (")
    assert message.endswith("the data object has no index: an attempt that did not finish)")


@pytest.mark.parametrize("bounds", [{"start": at(8, 0)}, {"stop": at(3, 2)}])
def test_a_ledger_that_is_not_asked_for_may_be_incomplete(tmp_path, bounds):
    assert read(incomplete(tmp_path, 5), **bounds) in (payloads(8, 0, 3), payloads(3, 0, 2))


def test_a_stop_before_a_ledger_that_is_not_here_ends_there():
    assert read(in_memory(whole(3), whole(5)), stop=at(4, 0)) == payloads(3, 0, 3)
    assert read(in_memory(whole(3), whole(5)), stop=at(9, 0)) == [*payloads(3, 0, 3), *payloads(5, 0, 3)]
    assert read(in_memory(whole(3), whole(5)), stop=at(2, 7)) == []


@pytest.mark.parametrize("stop", [(4, 1, 0), (4, 0, 1), (9, 1, 0)])
def test_a_stop_inside_a_ledger_that_is_not_here_is_an_error(stop, caplog):
    tier = in_memory(whole(3), whole(5))
    error = lose(tier, stop=at(*stop))
    assert error.what == (f"{TOPIC} was asked for up to {Position(*stop)}, but that ledger has no copy here")
    assert (error.ledger_id, error.found) == (stop[0], "ledgers 3, 5")
    read(tier, stop=at(*stop), fail_on_data_loss=False)
    assert [message.partition(" (")[0] for message in caplog.messages] == [error.what]


def test_a_start_before_the_first_ledger_says_where_the_topic_begins_now():
    error = lose(in_memory(whole(3), whole(5)), start=at(2, 1))
    assert error.what == f"{TOPIC} was asked for from 2:1:0, but begins with ledger 3 now"
    assert read(in_memory(whole(3), whole(5)), start=at(2, 1), fail_on_data_loss=False) == [
        *payloads(3, 0, 3),
        *payloads(5, 0, 3),
    ]


def test_a_stop_in_or_behind_a_last_ledger_without_a_complete_copy_is_an_error(tmp_path):
    for stop in (at(8, 2), at(9, 0)):
        error = lose(incomplete(tmp_path, 8), stop=stop)
        assert (error.what, error.ledger_id) == (f"a ledger of {TOPIC} has no complete copy", 8)
    assert read(open_tier(tmp_path), stop=at(8, 0)) == [*payloads(3, 0, 3), *payloads(5, 0, 3)]


def test_a_gap_of_several_ledgers_is_one_error_that_names_them_and_their_positions(tmp_path):
    for number, each in enumerate((3, 4, 5, 8)):
        parts: Sequence[str] = ["data"] if each in (4, 5) else ["data", "index"]
        lay_out(tmp_path, whole(each), attempt=number, parts=parts)
    error = lose(open_tier(tmp_path))
    assert error.what == f"2 ledgers of {TOPIC} have no complete copy"
    assert (error.ledger_id, error.expected) == (4, "positions from 4:0 on, to ledger 5")
    assert str(error.found).startswith("ledger 4: ")
    assert "; ledger 5: " in str(error.found)


def broken(ledger_id):
    """A ledger whose index says that its data object is longer than it is."""
    written = whole(ledger_id)
    return replace(
        written, index=written.index[:8] + struct.pack(">q", len(written.data) + 1) + written.index[16:]
    )


def test_a_broken_index_that_a_task_reads_is_an_error_or_left_out(caplog):
    tier = in_memory(whole(3), broken(5), whole(8))
    scan(tier)  # planning does not look at it
    error = lose(tier)
    assert error.what == f"a ledger of {TOPIC} has no complete copy"
    assert error.ledger_id == 5
    assert "the data object has 173 bytes, its index says 174" in str(error)
    assert read(tier, fail_on_data_loss=False) == [*payloads(3, 0, 3), *payloads(8, 0, 3)]
    assert caplog.messages == [str(error)]


def test_a_broken_index_of_the_last_ledger_is_an_error_as_an_index_is_written_last(caplog):
    tier = in_memory(whole(3), broken(5))
    error = lose(tier)
    assert (error.what, error.ledger_id) == (f"a ledger of {TOPIC} has no complete copy", 5)
    assert read(tier, fail_on_data_loss=False) == payloads(3, 0, 3)
    (message,) = caplog.messages
    assert "the data object has 173 bytes, its index says 174" in message


def test_a_broken_index_that_planning_reads_is_an_error_at_once():
    tier = in_memory(whole(3), broken(5), whole(8))
    with pytest.raises(DataLossError) as caught:
        scan(tier, start=at(5, 1))
    assert caught.value.ledger_id == 5


def test_a_whole_copy_is_read_instead_of_a_newer_broken_one():
    assert read(in_memory(whole(3), whole(5), broken(5), whole(8))) == [
        *payloads(3, 0, 3),
        *payloads(5, 0, 3),
        *payloads(8, 0, 3),
    ]


# --- inside a ledger ---------------------------------------------------------------------------


def gapped():
    """Ledger 7 without 3 and 4, and a ledger that follows."""
    return in_memory(segment(7, 0, 3), segment(7, 5, 8), whole(9))


def test_a_gap_between_segments_is_an_error_or_passed_over(caplog):
    error = lose(gapped())
    assert str(error) == (
        f"entries of a ledger of {TOPIC} have no copy here "
        "(object 00000000-0000-4000-8000-000000000000, ledger 7, entry 3): expected entries 3 to 4. " + HINT
    )
    assert (error.key, error.ledger_id, error.entry_id) == ("00000000-0000-4000-8000-000000000000", 7, 3)
    assert lose(gapped(), task_bytes=1).expected == "entries 3 to 4"
    found = read(gapped(), fail_on_data_loss=False)
    assert found == [*payloads(7, 0, 3), *payloads(7, 5, 8), *payloads(9, 0, 3)]
    (message,) = caplog.messages
    assert message.startswith(error.what)
    assert "expected entries 3 to 4" in message


@pytest.mark.parametrize(
    ("bounds", "missing"),
    [
        ({"start": at(7, 3)}, "entries 3 to 4"),
        ({"start": at(7, 4)}, "entries 3 to 4"),
        ({"stop": at(7, 4)}, "entries 3 to 3"),
        ({"stop": at(7, 5)}, "entries 3 to 4"),
        ({"stop": at(7, 4, 1)}, "entries 3 to 4"),
    ],
)
def test_a_start_in_a_gap_and_a_stop_in_it_or_at_its_end_are_errors(bounds, missing):
    assert lose(gapped(), **bounds).expected == missing


def test_a_gap_that_is_not_asked_for_is_no_loss():
    assert read(gapped(), start=at(7, 5)) == [*payloads(7, 5, 8), *payloads(9, 0, 3)]
    assert read(gapped(), start=at(7, 7), stop=at(9, 0)) == payloads(7, 7, 8)
    assert read(gapped(), stop=at(7, 3)) == payloads(7, 0, 3)
    assert read(gapped(), stop=at(7, 2)) == payloads(7, 0, 2)


def beheaded():
    """Ledger 7 without 0 to 3."""
    return in_memory(segment(7, 4, 8))


@pytest.mark.parametrize("bounds", [{}, {"stop": at(7, 2)}, {"stop": at(7, 6)}])
def test_the_earliest_entry_is_the_first_that_there_is(bounds, caplog):
    """Without records it is unknown whether a topic's first entries were trimmed."""
    (stop,) = (position.entry_id for position in bounds.get("stop", at(7, 8)).values())
    assert read(beheaded(), **bounds) == payloads(7, 4, max(stop, 4))
    assert caplog.messages == [
        f"the first entries of a ledger of {TOPIC} have no copy here (ledger 7): entries from 4 on. "
        "They were trimmed, or are lost"
    ]


@pytest.mark.parametrize("bounds", [{"start": at(7, 3)}, {"start": at(7, 1), "stop": at(7, 3)}])
def test_first_entries_that_are_missing_are_an_error_or_passed_over(bounds, caplog):
    error = lose(beheaded(), **bounds)
    assert str(error) == (
        f"the first entries of a ledger of {TOPIC} have no copy here (ledger 7): found entries from 4 on. {HINT}"
    )
    found = read(beheaded(), **bounds, fail_on_data_loss=False)
    assert found == ([] if "stop" in bounds else payloads(7, 4, 8))
    assert caplog.messages == [str(error)]


def test_first_entries_that_are_not_asked_for_may_be_missing():
    assert read(beheaded(), start=at(7, 4)) == payloads(7, 4, 8)
    assert read(beheaded(), start=at(7, 6)) == payloads(7, 6, 8)
    assert read(beheaded(), stop=at(7, 0)) == []
    assert read(beheaded(), start=at(7, 2), stop=at(7, 2)) == []


def test_the_missing_tail_of_a_closed_ledger_is_an_error_or_passed_over(caplog):
    tier = in_memory(closed_with(segment(7, 0, 3), 6), whole(9))
    error = lose(tier)
    assert error.what == f"entries of a ledger of {TOPIC} have no copy here"
    assert (error.ledger_id, error.entry_id, error.expected) == (7, 3, "entries 3 to 5")
    assert read(tier, fail_on_data_loss=False) == [*payloads(7, 0, 3), *payloads(9, 0, 3)]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(("stop", "missing"), [(5, "entries 3 to 4"), (100, "entries 3 to 5")])
def test_a_stop_in_a_missing_tail_is_an_error(stop, missing):
    tier = in_memory(closed_with(segment(7, 0, 3), 6), whole(9))
    assert lose(tier, stop=at(7, stop)).expected == missing


def test_a_missing_tail_that_is_not_asked_for_is_no_loss():
    tier = in_memory(closed_with(segment(7, 0, 3), 6), whole(9))
    assert read(tier, stop=at(7, 3)) == payloads(7, 0, 3)
    assert read(tier, start=at(9, 1)) == payloads(9, 1, 3)


def test_the_tail_of_the_last_ledger_may_be_on_its_way():
    tier = in_memory(whole(5), closed_with(segment(7, 0, 3), 6))
    assert read(tier) == [*payloads(5, 0, 3), *payloads(7, 0, 3)]
    assert lose(tier, stop=at(7, 5)).expected == "entries 3 to 4"
    assert lose(tier, stop=at(8, 0)).expected == "entries 3 to 5"
