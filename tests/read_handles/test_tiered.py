"""Which copy a ledger is read from by each priority, and what happens when that one fails, at opening and later."""

import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from entries import read_through
from records import closed, still_open
from scenes.copies import PAYLOADS, TwoCopies

from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import DriverMetadata, ReadPriority
from offload_core.reading.read_fallbacks import Copy, FallbackReason
from offload_core.reading.read_handles import ColdReaders, TieredReaders
from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.tier import open_store
from offload_hooks.errors import (
    AccessDeniedError,
    FormatError,
    LedgerClosedError,
    NoReadableCopyError,
    ObjectNotFoundError,
    OffloadError,
    OptionError,
    RangeError,
    StoreTimeoutError,
    StoreUnavailableError,
    UnknownLedgerError,
)

HOT_ONLY, HOT_FIRST = ReadPriority.BOOKKEEPER_ONLY, ReadPriority.BOOKKEEPER_FIRST
COLD_ONLY, COLD_FIRST = ReadPriority.OFFLOADED_ONLY, ReadPriority.OFFLOADED_FIRST
LAST = len(PAYLOADS) - 1


@pytest.fixture
def copies(tmp_path):
    hot = FileLedgerStore(tmp_path / "hot", sync="never")
    with open_store(tmp_path / "cold") as tier:
        yield TwoCopies.make(hot, tier)
    hot.close()


def rest(reader, begin=0):
    return [payload for _, payload in read_through(reader, begin, LAST, 3000)]


# --- what makes a copy unreadable ----------------------------------------------------------------


def delete_hot(copies):
    copies.hot.delete(copies.ledger_id)


def delete_hot_folder(copies):
    shutil.rmtree(copies.hot_file.parent)


def unreadable_hot(copies):
    """A link to itself, which the system cannot open, for root either."""
    copies.hot_file.unlink()
    copies.hot_file.symlink_to(copies.hot_file)
    copies.hot = FileLedgerStore(copies.hot_file.parent)  # without the open file of who has written it


def damage_hot(copies):
    size = copies.hot_file.stat().st_size
    with copies.hot_file.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xff" * (size - 3 * 4096))


def cold_file(copies, suffix=""):
    return Path(copies.tier.describe().location.removeprefix("file://"), copies.data_key + suffix)


def delete_cold(copies):
    copies.tier.delete([copies.data_key])


def delete_cold_root(copies):
    shutil.rmtree(cold_file(copies).parent)


def delete_cold_index(copies):
    copies.tier.delete([f"{copies.data_key}-index"])


def damage_cold(copies):
    path = cold_file(copies)
    path.write_bytes(b"\xff" * path.stat().st_size)


FAILURES = {
    "hot ledger deleted": (Copy.HOT, delete_hot, FallbackReason.MISSING),
    "hot folder deleted": (Copy.HOT, delete_hot_folder, FallbackReason.MISSING),
    "hot ledger unreadable": (Copy.HOT, unreadable_hot, FallbackReason.FAILED),
    "hot ledger damaged": (Copy.HOT, damage_hot, FallbackReason.DAMAGED),
    "cold object deleted": (Copy.COLD, delete_cold, FallbackReason.MISSING),
    "cold root deleted": (Copy.COLD, delete_cold_root, FallbackReason.MISSING),
    "cold index deleted": (Copy.COLD, delete_cold_index, FallbackReason.MISSING),
    "cold object damaged": (Copy.COLD, damage_cold, FallbackReason.DAMAGED),
}
OPENED_ONCE = {"cold index deleted", "hot ledger unreadable"}


@pytest.mark.parametrize("priority", ReadPriority)
def test_every_priority_reads_the_ledger_and_its_own_copy(copies, priority):
    readers = copies.readers()
    reader = readers.open(copies.record(), priority)
    assert reader.copy is (Copy.HOT if priority.hot_first else Copy.COLD)
    assert rest(reader) == PAYLOADS
    assert (reader.ledger_id, reader.status().entry_count) == (copies.ledger_id, len(PAYLOADS))
    assert (copies.seen(), readers.fallback_counts) == ([], {})


@pytest.mark.parametrize("name", FAILURES)
def test_when_the_first_copy_fails_the_other_gives_all_entries_or_an_only_priority_its_error(copies, name):
    copy, fail, reason = FAILURES[name]
    fail(copies)
    readers = copies.readers()
    reader = readers.open(copies.record(), HOT_FIRST if copy is Copy.HOT else COLD_FIRST)
    assert rest(reader) == PAYLOADS
    assert reader.copy is not copy
    ((failed, why, _),) = copies.seen()
    assert (failed, why) == (copy.value, reason.value)
    assert readers.fallback_counts == {(copy, reason): 1}
    only, other = (HOT_ONLY, COLD_ONLY) if copy is Copy.HOT else (COLD_ONLY, HOT_ONLY)
    with pytest.raises(OffloadError) as raised:
        rest(readers.open(copies.record(), only))
    assert not isinstance(raised.value, NoReadableCopyError)
    assert rest(readers.open(copies.record(), other)) == PAYLOADS
    assert readers.fallback_counts == {(copy, reason): 1}


@pytest.mark.parametrize("name", sorted(FAILURES.keys() - OPENED_ONCE))
def test_a_copy_that_fails_in_the_middle_is_left_at_the_right_entry(copies, name):
    copy, fail, reason = FAILURES[name]
    reader = copies.readers().open(copies.record(), HOT_FIRST if copy is Copy.HOT else COLD_FIRST)
    batch = reader.read(0, LAST, 3000)
    found = [bytes(each) for each in batch]
    fail(copies)
    found += rest(reader, batch.stop_entry_id)
    assert found == PAYLOADS
    ((failed, why, entry_id),) = copies.seen()
    assert (failed, why) == (copy.value, reason.value)
    assert entry_id is not None
    assert entry_id >= batch.stop_entry_id


@pytest.mark.parametrize("hot", [delete_hot, damage_hot])
@pytest.mark.parametrize("cold", [delete_cold, damage_cold])
@pytest.mark.parametrize("priority", [HOT_FIRST, COLD_FIRST])
def test_when_both_fail_the_error_names_both(copies, hot, cold, priority):
    hot(copies)
    cold(copies)
    with pytest.raises(NoReadableCopyError) as raised:
        rest(copies.readers().open(copies.record(), priority))
    error = raised.value
    assert error.ledger_id == copies.ledger_id
    assert "hot: " in str(error)
    assert f"cold: {copies.data_key}" in str(error) or f"object {copies.data_key}" in str(error)
    assert error.__cause__ is not None
    assert len(copies.seen()) in (1, 2), (
        "the first is tried again where the other could be opened and not read"
    )


def test_a_reader_that_fell_back_turns_again_when_that_copy_fails_too(copies):
    reader = copies.readers().open(copies.record(), COLD_FIRST)
    reader.read(0, 5)
    kept = cold_file(copies).read_bytes()
    cold_file(copies).unlink()
    assert list(reader.read(200, 200)) == PAYLOADS[200:201]
    cold_file(copies).write_bytes(kept)
    delete_hot(copies)
    assert list(reader.read(250, 250)) == PAYLOADS[250:251]
    assert [each[:2] for each in copies.seen()] == [("cold", "missing"), ("hot", "missing")]


def test_copies_that_the_record_does_not_tell_of_are_no_fallback(copies):
    readers = copies.readers()
    context = copies.record().context
    for unfinished in (None, replace(context, complete=False)):
        record = closed(copies.ledger_id, len(PAYLOADS), unfinished)
        for priority in (COLD_FIRST, HOT_FIRST):
            assert readers.open(record, priority).copy is Copy.HOT
        with pytest.raises(UnknownLedgerError, match="no cold copy that is complete"):
            readers.open(record, COLD_ONLY)
    gone = copies.record(bookkeeper_deleted=True)
    delete_hot(copies)
    for priority in (COLD_FIRST, HOT_FIRST, COLD_ONLY):
        assert rest(readers.open(gone, priority)) == PAYLOADS
    with pytest.raises(UnknownLedgerError):
        readers.open(gone, HOT_ONLY)
    assert copies.seen() == []


def test_an_open_ledger_is_read_as_it_grows(copies):
    writer = copies.hot.create({})
    writer.append(b"one")
    reader = copies.readers().open(still_open(writer.ledger_id))
    assert [bytes(each) for each in reader.read(0, 0)] == [b"one"]
    with pytest.raises(RangeError):
        reader.read(0, 1)
    writer.append(b"two")
    assert [bytes(each) for each in reader.read(0, 1)] == [b"one", b"two"]
    assert copies.seen() == []


@pytest.mark.parametrize("priority", ReadPriority)
def test_a_wrong_range_and_a_closed_reader_are_nobodys_failure(copies, priority):
    reader = copies.readers().open(copies.record(), priority)
    for first, last, max_bytes in ((-1, 0, 1), (2, 1, 1), (0, LAST + 1, 1), (0, 0, 0)):
        with pytest.raises(RangeError):
            reader.read(first, last, max_bytes)
    reader.close()
    reader.close()
    for call in (reader.status, lambda: reader.read(0, 0)):
        with pytest.raises(LedgerClosedError):
            call()
    assert copies.seen() == []


def test_a_hot_store_that_was_closed_is_no_reason_to_read_elsewhere(copies):
    copies.hot.close()
    with pytest.raises(LedgerClosedError):
        copies.readers().open(copies.record(), HOT_FIRST)


def test_a_tier_that_is_not_configured_is_a_missing_copy_and_is_named(copies):
    elsewhere = DriverMetadata(name="aws-s3", properties=(("bucket", "elsewhere"),))
    record = copies.record()
    record = replace(record, context=replace(record.context, driver=elsewhere))
    readers = copies.readers()
    assert rest(readers.open(record, COLD_FIRST)) == PAYLOADS
    assert copies.seen() == [("cold", "not-configured", None)]
    with pytest.raises(OptionError, match="aws-s3 at elsewhere"):
        readers.open(record, COLD_ONLY)


class Failing:
    """A ledger store whose reader fails as it is told, in place of what cannot be made to happen on a disk."""

    def __init__(self, store, errors):
        self._store, self._errors = store, errors

    def open(self, ledger_id):
        if self._errors:
            raise self._errors.pop(0)
        return self._store.open(ledger_id)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AccessDeniedError("no"), FallbackReason.DENIED),
        (StoreUnavailableError("not now"), FallbackReason.UNAVAILABLE),
        (StoreTimeoutError("too late"), FallbackReason.UNAVAILABLE),
        (ObjectNotFoundError("gone"), FallbackReason.MISSING),
        (FormatError("bad"), FallbackReason.DAMAGED),
    ],
)
def test_each_kind_of_failure_is_told_of_by_its_code_and_logged(copies, error, reason, caplog):
    told = []
    readers = TieredReaders(
        Failing(copies.hot, [error]), ColdReaders(KnownTiers(copies.tier)), listener=told.append
    )
    assert rest(readers.open(copies.record(), HOT_FIRST)) == PAYLOADS
    (fallback,) = told
    assert (fallback.copy, fallback.reason, fallback.error) == (Copy.HOT, reason, error)
    (line,) = (each for each in caplog.records if getattr(each, "event", None) == "read-fallback")
    shown = {name: getattr(line, name) for name in ("ledger_id", "copy", "reason", "entry_id")}
    assert shown == {"ledger_id": copies.ledger_id, "copy": "hot", "reason": reason.value, "entry_id": None}
    assert line.levelno == (logging.ERROR if reason is FallbackReason.DAMAGED else logging.WARNING)
