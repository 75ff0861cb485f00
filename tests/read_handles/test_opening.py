"""Which copies are opened, and what is refused, at opening and at reading."""

from dataclasses import replace

import pytest
from entries import read_through
from golden import PIP17_CASES, STREAMING_CASES, as_entries, load_case
from records import copied, failed, segment, streaming_entries, streaming_record
from scenes.copies import LEDGER, gapped_copy, mapfile_copy, pip17_copy, streaming_copy
from tiers import MemoryDriver, Names, uuid_of

from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_core.metadata.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.metadata.records import DriverMetadata, OffloadContext
from offload_core.reading.read_handles import ColdReaders, ReadMemory
from offload_core.storage.tier import Tier
from offload_hooks.errors import (
    BadLengthError,
    BadMagicError,
    DataLossError,
    FormatError,
    IndexMismatchError,
    LedgerClosedError,
    ObjectNotFoundError,
    OptionError,
    RangeError,
    StoreError,
    UnknownLedgerError,
    UnsupportedVersionError,
)

PAYLOADS = [b"%d" % i * 20 for i in range(50)]


def whole(reader):
    return [payload for _, payload in read_through(reader, 0, reader.status().entry_count - 1, 10_000)]


def entries_of(reader):
    """As golden files tell of them."""
    return as_entries(
        {"__ledgerId": reader.ledger_id, "__entryId": i, "value": payload}
        for i, payload in enumerate(whole(reader))
    )


@pytest.mark.parametrize("name", PIP17_CASES)
def test_pulsars_own_objects_are_read(name):
    case = load_case("pip17", name)
    driver = MemoryDriver({case.key.data_key: case.data, case.key.index_key: case.index})
    tiers = KnownTiers(Tier(driver))
    context = OffloadContext(uuid=case.key.uuid, complete=True)
    reader = ColdReaders(tiers, memory=ReadMemory()).read_offloaded(case.key.ledger_id, context, None)
    assert entries_of(reader) == list(case.entries)


def test_pulsars_own_segments_are_read_by_their_records():
    objects = {}
    for name in STREAMING_CASES:
        case = load_case("streaming", name)
        objects |= {case.key.data_key: case.data, case.key.index_key: case.index}
    expected = streaming_entries()
    tier = Tier(MemoryDriver(objects))
    here = tier_record(tier)
    for record in streaming_record().ledgers:
        if record.context is None:
            continue
        context = replace(
            record.context, segments=tuple(replace(each, driver=here) for each in record.context.segments)
        )
        reader = ColdReaders(KnownTiers(tier), memory=ReadMemory()).open(replace(record, context=context))
        assert entries_of(reader) == [each for each in expected if each.ledger_id == record.ledger_id]


@pytest.mark.parametrize(
    ("first", "last", "max_bytes"),
    [(-1, 3, 10), (3, 2, 10), (0, 50, 10), (50, 50, 10), (-5, -2, 10), (0, 3, 0), (2**63, 2**63, 1)],
)
def test_a_range_that_the_ledger_does_not_have_is_refused(first, last, max_bytes):
    for copy in (
        pip17_copy(PAYLOADS),
        streaming_copy(PAYLOADS, [20]),
        mapfile_copy(PAYLOADS, FileCompression.RECORD),
        gapped_copy({3: b"three"}, 50),
    ):
        reader = copy.open()
        with pytest.raises(RangeError, match="first ≤ last < 50") as raised:
            reader.read(first, last, max_bytes)
        assert raised.value.ledger_id == LEDGER


def test_the_status_is_that_of_the_ledger():
    for copy in (pip17_copy(PAYLOADS), streaming_copy(PAYLOADS, [20]), gapped_copy({3: b"three"}, 50)):
        status = copy.open().status()
        assert (status.ledger_id, status.entry_count, status.sealed) == (LEDGER, 50, True)


def test_a_reader_that_was_closed_reads_no_more():
    reader = pip17_copy(PAYLOADS).open()
    reader.close()
    reader.close()
    for call in (reader.status, lambda: reader.read(0, 1)):
        with pytest.raises(LedgerClosedError):
            call()


def refused(copy, kind, **changes):
    with pytest.raises(kind) as raised:
        replace(copy, **changes).open()
    assert getattr(raised.value, "ledger_id", None) == LEDGER
    return raised.value


def test_a_copy_that_is_not_complete_is_not_opened():
    copy = pip17_copy(PAYLOADS)
    for context in (None, OffloadContext(), replace(copy.record.context, complete=False)):
        refused(copy, UnknownLedgerError, record=replace(copy.record, context=context))
    segments = streaming_copy(PAYLOADS, []).record.context
    (only,) = segments.segments
    for each in (replace(only, complete=False), failed(only)):
        context = replace(segments, segments=(each,))
        refused(copy, UnknownLedgerError, record=replace(copy.record, context=context))


@pytest.mark.parametrize("missing", ["data", "index"])
def test_an_object_that_is_not_there_is_named(missing):
    copy = pip17_copy(PAYLOADS)
    key = next(key for key in copy.driver.objects if key.endswith("-index") == (missing == "index"))
    del copy.driver.objects[key]
    error = refused(copy, ObjectNotFoundError)
    assert key in str(error)


def test_segments_that_are_missing_are_missing_data_and_nothing_else():
    copy = streaming_copy(PAYLOADS, [20, 30])
    context = copy.record.context
    first, second, third = context.segments
    unfinished = replace(second, complete=False)
    record = replace(copy.record, context=replace(context, segments=(first, unfinished, third)))
    reader = replace(copy, record=record).open()
    assert [bytes(each) for each in reader.read(15, 40)] == PAYLOADS[15:20]
    assert [bytes(each) for each in reader.read(30, 49, 10_000)] == PAYLOADS[30:]
    for entry_id in (20, 29):
        with pytest.raises(DataLossError) as raised:
            reader.read(entry_id, 40)
        assert (raised.value.ledger_id, raised.value.entry_id) == (LEDGER, entry_id)


def test_what_is_not_as_index_or_record_say_is_refused():
    copy = pip17_copy(PAYLOADS)
    data_key = next(key for key in copy.driver.objects if not key.endswith("-index"))
    index_key = f"{data_key}-index"
    data, index = copy.driver.objects[data_key], copy.driver.objects[index_key]
    for change, kind in (
        ({data_key: data[:-1]}, BadLengthError),
        ({data_key: data + b"x"}, BadLengthError),
        ({index_key: b"\0" + index[1:]}, BadMagicError),
        ({index_key: index[:40]}, FormatError),
    ):
        copy.driver.objects.update({data_key: data, index_key: index} | change)
        refused(copy, kind)
    streaming = streaming_copy(PAYLOADS, [])
    context = streaming.record.context
    early = replace(context, segments=(replace(context.segments[0], end_entry_id=10),))
    with pytest.raises(IndexMismatchError, match="by its record it ends with entry 10"):
        replace(streaming, record=replace(streaming.record, context=early)).open()
    newer = MemoryDriver({data_key: data, index_key: index}, metadata=Names(version="2").as_metadata("data"))
    with pytest.raises(UnsupportedVersionError):
        ColdReaders(KnownTiers(Tier(newer)), memory=ReadMemory()).read_offloaded(
            LEDGER, OffloadContext(uuid=uuid_of(0), complete=True), None
        )


def test_a_copy_is_read_where_its_record_says_and_nowhere_else():
    here, there = pip17_copy(PAYLOADS), pip17_copy([b"others"] * 50)
    other = Tier(there.driver)
    elsewhere = DriverMetadata(name="aws-s3", properties=(("bucket", "elsewhere"),))
    with pytest.raises(OptionError, match="aws-s3 at elsewhere"):
        ColdReaders(KnownTiers(here.tier, [other]), memory=ReadMemory()).read_offloaded(
            LEDGER, copied(uuid_of(0)), elsewhere
        )


def test_a_mapfile_needs_the_name_of_its_topic_and_is_found_without_a_driver():
    copy = mapfile_copy(PAYLOADS, FileCompression.BLOCK)
    with pytest.raises(OptionError, match="managed ledger"):
        copy.readers().open(copy.record)
    context = copy.record.context
    unnamed = replace(copy, record=replace(copy.record, context=replace(context, driver=None)))
    assert whole(unnamed.open()) == PAYLOADS
    with pytest.raises(ObjectNotFoundError):
        unnamed.readers().open(unnamed.record)


def test_an_error_of_the_store_is_passed_on_and_the_next_read_tries_again():
    copy = pip17_copy(PAYLOADS)
    reader = copy.open(read_buffer_bytes=300)
    copy.driver._fail_at = 400
    assert [bytes(each) for each in reader.read(0, 3)] == PAYLOADS[:4]
    for _ in range(2):
        with pytest.raises(StoreError, match="the store broke"):
            reader.read(40, 40)
    copy.driver._fail_at = None
    assert bytes(reader.read(40, 40)[0]) == PAYLOADS[40]


def test_a_segment_of_another_tier_is_read_there():
    one, two = streaming_copy(PAYLOADS, [20]), streaming_copy(PAYLOADS, [20])
    context = one.record.context
    keys = [str(each.uuid) for each in context.segments]
    for key in list(one.driver.objects):
        del (two if key.startswith(keys[0]) else one).driver.objects[key]
    there = segment(
        context.segments[1].uuid, 49, driver=DriverMetadata(name="s3", properties=(("bucket", "b"),))
    )
    record = replace(one.record, context=replace(context, segments=(context.segments[0], there)))
    with pytest.raises(OptionError):
        ColdReaders(KnownTiers(one.tier, [two.tier]), memory=ReadMemory()).open(record)
