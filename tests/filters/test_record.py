"""The record of a filter that ran: its bytes, whole and short, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_core.format.messages.entry import TransactionId
from offload_core.metadata.records import EntryPosition
from offload_core.metadata.records.filter_record import (
    MARKER_CAUSE,
    DroppedEntries,
    FilterMode,
    FilterRecord,
    aborted_cause,
    parse_filter_record,
)
from offload_hooks.errors import FormatError, MetadataError, UnsupportedVersionError

COUNTS = st.builds(DroppedEntries, entries=st.integers(0, 1 << 40), payload_bytes=st.integers(0, 1 << 50))
IDS = st.builds(TransactionId, st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 63), (1 << 63) - 1))
RECORDS = st.builds(
    FilterRecord.of,
    st.text(min_size=1, max_size=9),
    st.sampled_from(FilterMode),
    st.none() | st.builds(EntryPosition, st.integers(0, 1 << 62), st.integers(0, 1 << 62)),
    COUNTS,
    st.dictionaries(st.just(MARKER_CAUSE) | IDS.map(aborted_cause) | st.text(max_size=9), COUNTS, max_size=5),
)

TEXT = (Path(__file__).parents[1] / "docs" / "filter-record-v1.json").read_text()


def test_its_bytes_are_those_that_are_written_down():
    record = FilterRecord.of(
        "transactions",
        FilterMode.GAP,
        EntryPosition(7, 12),
        DroppedEntries(entries=10, payload_bytes=900),
        {
            "marker": DroppedEntries(entries=1, payload_bytes=50),
            "aborted (0,4)": DroppedEntries(entries=2, payload_bytes=200),
        },
    )
    assert record.pack() == TEXT
    assert record.pack(short=True) == TEXT[: TEXT.index(',"causes"')] + "}"
    assert record.aborted == {TransactionId(0, 4): 2}


@given(RECORDS)
def test_what_was_packed_is_read_again(record):
    assert parse_filter_record(record.pack()) == record
    assert parse_filter_record(record.pack().encode()) == record
    assert parse_filter_record(record.pack(short=True)) == replace(record, dropped=None)


def test_a_newer_one_is_refused_with_its_version():
    with pytest.raises(UnsupportedVersionError) as caught:
        parse_filter_record(TEXT.replace('"version":1', '"version":2'))
    assert (caught.value.expected, caught.value.found) == ("1 or less", 2)


@pytest.mark.parametrize("length", range(len(TEXT)))
def test_one_that_is_cut_off_is_refused(length):
    with pytest.raises(MetadataError):
        parse_filter_record(TEXT[:length])


FIELDS = json.loads(TEXT)
WRONG = [
    None,
    "x",
    -1,
    1.5,
    [],
    [1],
    [1, 2, 3],
    ["a", "b"],
    {},
    {"a": 1},
    True,
    1 << 70,
    "\ud800",
    [[1], [2]],
]


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", WRONG)
def test_a_field_of_another_kind_is_refused_or_means_nothing_else(name, value):
    try:
        record = parse_filter_record(json.dumps({**FIELDS, name: value}))
    except FormatError:
        return
    assert parse_filter_record(record.pack()) == record


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_any_bytes_are_a_record_or_refused(text):
    with pytest.raises(FormatError):
        parse_filter_record(text)
