"""One ledger is read by what names it: others are neither looked up nor read."""

from __future__ import annotations

import logging

import pytest
from entries import LedgerPart, pip17_object, streaming_object
from records import closed, copied, managed_ledger
from tiers import TOPIC, in_memory, uuid_of

from offload_core.storage.tier import MeasuredTier
from offload_hooks.errors import DataLossError, UnknownLedgerError
from pulsar_offload import TierReader, scan

ONES = [pip17_object([b"one", b"two"], ledger_id=ledger_id) for ledger_id in range(1, 6)]


def requests_of(reader, **options):
    """The rows of a scan, and the lookups and reads that planning it took."""
    measured = MeasuredTier(reader.store)
    read = scan(TierReader(measured), level="entries", **options)
    return read.to_table().num_rows, measured.requests.heads


@pytest.mark.parametrize("topics", [(), (TOPIC,)], ids=["any topic", "named topic"])
def test_of_a_listing_only_its_object_is_looked_up(topics):
    assert requests_of(in_memory(*ONES), ledger=3, topics=topics) == (2, 1)


def test_of_records_only_its_copy_is_looked_up():
    records = {TOPIC: managed_ledger(*(closed(n, 2, copied(uuid_of(n - 1))) for n in range(1, 6)))}
    assert requests_of(in_memory(*ONES), ledger=3, records=records) == (2, 2)  # data and index


def test_streaming_objects_are_all_read_since_their_keys_name_no_ledger():
    segments = streaming_object(
        [LedgerPart(ledger_id=6, blocks=[[b"a"]]), LedgerPart(ledger_id=7, blocks=[[b"b"]])]
    )
    assert requests_of(in_memory(*ONES, segments), ledger=7) == (1, 1)
    assert requests_of(in_memory(*ONES, segments), ledger=2) == (2, 2)


@pytest.mark.parametrize("before", [(), (1,)], ids=["first", "second"])
def test_a_beginning_that_is_missing_is_judged_by_the_whole_topic(before, caplog):
    """What was trimmed at a topic's beginning is a warning, what lacks in its middle a loss."""
    part = LedgerPart(ledger_id=6, blocks=[[b"a"]], first_entry_id=4)
    reader = in_memory(
        *ONES[: len(before)], streaming_object([part, LedgerPart(ledger_id=7, blocks=[[b"b"]])])
    )
    with caplog.at_level(logging.WARNING):
        if before:
            with pytest.raises(DataLossError, match="first entries"):
                requests_of(reader, ledger=6)
        else:
            assert requests_of(reader, ledger=6)[0] == 1
            assert "They were trimmed" in caplog.text


@pytest.mark.parametrize("topics", [(), (TOPIC,), ("acme/cold/other",)])
def test_a_ledger_that_is_not_here_is_named(topics):
    with pytest.raises(UnknownLedgerError, match="ledger 9"):
        requests_of(in_memory(*ONES), ledger=9, topics=topics)
