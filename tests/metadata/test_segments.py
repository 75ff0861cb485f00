"""`OffloadSegment` in both layouts: told apart, written, and what has no field of its own."""

from __future__ import annotations

from uuid import UUID

import pytest
from records import CLOSED_AT_MS, DRIVER, failed, position, segment

from offload_core.metadata.records import (
    AttemptStatus,
    DriverMetadata,
    OffloadContext,
    SegmentLayout,
    pack_segment,
    parse_segment,
)
from offload_hooks.errors import MetadataError, OptionError

UUID_1 = UUID("00000000-0000-0001-0000-000000000002")
HEAD = bytes.fromhex("0801 1002")
S3 = bytes.fromhex("04 0a025333")
TIME = bytes.fromhex("80d095ffbc31")  # 1700000000000


def parsed(text):
    return parse_segment(HEAD + bytes.fromhex(text))


# --- told apart --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "fields"),
    [(SegmentLayout.SHIPPED, "1801 2003 2804 3005 3a"), (SegmentLayout.PIP76, "1801 2000 2803 3004 3805 42")],
)
def test_each_layout_is_written_byte_for_byte_and_told_by_field_7_a_message_or_a_number(layout, fields):
    made = segment(UUID_1, 5, assigned_ms=3, offloaded_ms=4, driver=DriverMetadata(name="S3"))
    packed = HEAD + bytes.fromhex(fields) + S3
    assert pack_segment(made, layout) == packed
    assert parse_segment(packed) == made


def test_the_wire_type_of_field_7_counts_more_than_the_value_of_field_4():
    assert parse_segment(HEAD + bytes.fromhex("2001 3a") + S3).assigned_ms == 1
    assert parse_segment(HEAD + b"\x20" + TIME + bytes.fromhex("3805")).end_entry_id == 5


@pytest.mark.parametrize(("value", "deleted"), [("00", False), ("01", True)])
def test_without_field_7_a_truth_value_in_field_4_is_the_layout_of_the_pip(value, deleted):
    found = parsed(f"20{value} 2809")
    assert (found.bookkeeper_deleted, found.assigned_ms, found.offloaded_ms) == (deleted, 9, None)


def test_without_field_7_a_time_in_field_4_is_the_shipped_layout():
    found = parsed(f"20{TIME.hex()} 2809 3006")
    assert (found.assigned_ms, found.offloaded_ms, found.end_entry_id) == (CLOSED_AT_MS, 9, 6)


def test_without_fields_4_and_7_it_is_the_shipped_layout_unless_there_is_a_field_8():
    assert parsed("3006").end_entry_id == 6
    assert parse_segment(HEAD + bytes.fromhex("3006 42") + S3).offloaded_ms == 6


# --- written -----------------------------------------------------------------------------------


def test_that_the_hot_copy_is_gone_is_a_property_in_the_shipped_layout_and_a_field_in_the_other():
    driver = DriverMetadata(name="S3", properties=(("bucket", "b"),))
    made = segment(UUID_1, 5, assigned_ms=3, offloaded_ms=4, driver=driver, bookkeeper_deleted=True)
    bucket = "120b 0a066275636b6574 120162"
    shipped = HEAD + bytes.fromhex(
        f"1801 2003 2804 3005 3a2c 0a025333 {bucket} 1219 0a11626f6f6b6b656570657244656c65746564 120474727565"
    )
    pip76 = HEAD + bytes.fromhex(f"1801 2001 2803 3004 3805 4211 0a025333 {bucket}")
    for layout, packed in ((SegmentLayout.SHIPPED, shipped), (SegmentLayout.PIP76, pip76)):
        assert pack_segment(made, layout) == packed
        assert parse_segment(packed) == made


def test_another_value_of_that_property_is_kept_and_denies_nothing():
    driver = DriverMetadata(name="S3", properties=(("bookkeeperDeleted", "maybe"),))
    made = segment(UUID_1, 5, driver=driver)
    assert parse_segment(pack_segment(made, SegmentLayout.SHIPPED)) == made


@pytest.mark.parametrize(
    "made",
    [
        segment(UUID_1, 5, driver=None, bookkeeper_deleted=True),
        segment(UUID_1, 5, driver=None, assigned_ms=1),
        segment(UUID_1, 5, driver=None, assigned_ms=None, unknown_fields=bytes.fromhex("42") + S3),
    ],
    ids=["bookkeeperDeleted", "time-that-looks-like-a-truth-value", "field-8"],
)
def test_what_the_shipped_layout_would_be_read_back_differently_in_is_refused(made):
    with pytest.raises(OptionError, match=f"segment {UUID_1} cannot be written in the layout 'shipped'"):
        pack_segment(made, SegmentLayout.SHIPPED)


def test_a_field_that_only_the_shipped_layout_leaves_free_is_not_mixed_up():
    made = segment(UUID_1, 5, unknown_fields=bytes.fromhex("4201") + b"x")
    assert parse_segment(pack_segment(made, SegmentLayout.SHIPPED)) == made
    with pytest.raises(OptionError, match="'pip76'"):
        pack_segment(made, SegmentLayout.PIP76)


# --- what has no field of its own --------------------------------------------------------------


def test_failure_is_a_property_of_the_driver_metadata():
    assigned = segment(UUID_1, None, complete=False)
    assert assigned.status is AttemptStatus.ASSIGNED
    assert failed(assigned).status is AttemptStatus.FAILED
    assert failed(assigned).driver.get("status") == "failed"


def test_the_extent_over_ledgers_is_two_properties():
    made = segment(UUID_1, 5).with_extent(position(7, 3), position(9, 5))
    assert (made.driver.get("begin"), made.driver.get("end")) == ("7:3", "9:5")
    for layout in SegmentLayout:
        found = parse_segment(pack_segment(made, layout))
        assert (found.begin, found.end) == (position(7, 3), position(9, 5))
    assert (segment(UUID_1, 5).begin, segment(UUID_1, 5).end) == (None, None)
    assert made.with_extent(position(7, 3), None).end is None


def test_an_extent_that_is_none_is_an_error_that_names_the_segment():
    made = segment(UUID_1, 5, driver=DRIVER.with_property("begin", "7"))
    with pytest.raises(MetadataError, match=f"property 'begin' of segment {UUID_1} is no position"):
        assert made.begin


def test_without_driver_metadata_there_is_no_room_for_properties():
    with pytest.raises(OptionError, match="no room for its property 'begin'"):
        segment(UUID_1, 5, driver=None).with_extent(position(7, 3), None)


def test_a_ledgers_context_takes_uuid_and_driver_of_its_first_segment():
    segments = [segment(UUID_1, 99), segment(UUID(int=5), None, complete=False), segment(UUID(int=6), 299)]
    context = OffloadContext.of_segments(segments, timestamp_ms=4)
    assert (context.uuid, context.driver, context.timestamp_ms) == (UUID_1, DRIVER, 4)
    assert context.segments == tuple(segments)
    assert (context.complete, context.bookkeeper_deleted) == (False, False)
    assert context.first_entry_ids() == (0, 100, None)
    assert OffloadContext().first_entry_ids() == ()
