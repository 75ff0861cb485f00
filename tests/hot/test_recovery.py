"""Recovery: torn tails are cut, damage before what was acknowledged is not, and bits that are flipped are found."""

from __future__ import annotations

import logging
import os
import shutil
from functools import partial
from itertools import chain

import pytest
from ledger_files import (
    after_a_power_failure,
    all_entries,
    edit,
    flip,
    frame_borders,
    left_by_a_kill,
    set_state,
    state_of,
)

from offload_core.storage.hot import FileLedgerStore
from offload_core.storage.hot.ledger_layout import FRAMES_OFFSET, PAGE_BYTES, SLOT_OFFSETS, STATE_BYTES, Mark
from offload_hooks.errors import FormatError, TruncatedError

ENTRIES = [b"first", b"", b"third and longer", b"x" * 40, b"last"]
BORDERS = frame_borders(ENTRIES)


def recovered(file, **options):
    """What recovery answers, and the entries that are there then."""
    store = FileLedgerStore(file.parent)
    try:
        answer = store.recover(0, **options)
        entries = all_entries(store.open(0))
        assert store.verify(0) == answer.status == store.open(0).status()
        assert answer.status.entry_count == len(entries)
        assert answer.status.size_bytes == sum(map(len, entries))
    finally:
        store.close()
    return answer, entries


def whole_before(offset):
    """How many entries end at or before a byte."""
    return sum(border <= offset for border in BORDERS[1:])


def read_all(store, ledger_id):
    return all_entries(store.open(ledger_id))


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Entries of which the first two are durable, and all are acknowledged."""
    return left_by_a_kill(tmp_path_factory.mktemp("killed"), ENTRIES, synced=2)


@pytest.fixture
def file(killed, tmp_path):
    shutil.copytree(killed.parent, tmp_path / "copy")
    return tmp_path / "copy" / "0.ledger"


def test_a_kill_loses_nothing(file):
    state = state_of(file)
    assert (state.acknowledged, state.durable) == (Mark(5, BORDERS[5]), Mark(2, BORDERS[2]))
    answer, entries = recovered(file)
    assert entries == ENTRIES
    assert answer.lost_entry_count == 0
    assert answer.status.custom_metadata == {"a": b"b"}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("end", range(BORDERS[2], BORDERS[5]))
@pytest.mark.parametrize("tail", [None, b"\0", b"\xff"], ids=["cut off", "zeros", "ones"])
def test_after_a_power_failure_a_torn_tail_is_cut_after_the_last_whole_entry(file, end, tail, caplog):
    after_a_power_failure(file)
    if tail is None:
        os.truncate(file, end)
    else:
        edit(file, end, tail * (BORDERS[5] - end + 100))
    answer, entries = recovered(file)
    assert entries == ENTRIES[: whole_before(end)]
    assert answer.lost_entry_count == 5 - len(entries)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"{answer.lost_entry_count} more had been acknowledged" in caplog.text


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("end", "power_failed"),
    [
        *((end, True) for end in range(FRAMES_OFFSET, BORDERS[2])),
        *((end, False) for end in range(BORDERS[2], BORDERS[5])),
    ],
)
def test_what_must_be_whole_and_is_cut_off_is_an_error(file, end, power_failed):
    """After a power failure these are the durable entries; while the machine runs, all that were acknowledged."""
    if power_failed:
        after_a_power_failure(file)
    os.truncate(file, end)
    count = whole_before(end)
    with pytest.raises(TruncatedError) as caught:
        recovered(file)
    assert (caught.value.key, caught.value.ledger_id) == (str(file), 0)
    assert (caught.value.entry_id, caught.value.offset) == (count, BORDERS[count])
    assert file.stat().st_size == end
    answer, entries = recovered(file, accept_loss=True)
    assert entries == ENTRIES[:count]
    assert answer.lost_entry_count == 5 - count


def test_entries_behind_what_was_acknowledged_are_kept_if_they_are_whole(file):
    set_state(file, acknowledged=Mark(3, BORDERS[3]))
    os.truncate(file, BORDERS[5] - 1)
    answer, entries = recovered(file)
    assert entries == ENTRIES[:4]
    assert answer.lost_entry_count == 0


def test_a_bit_anywhere_in_acknowledged_entries_is_found_and_named(file, sample):
    for bit in sample(range(8 * FRAMES_OFFSET, 8 * BORDERS[5]), 11):
        flip(file, bit)
        store = FileLedgerStore(file.parent)
        count = whole_before(bit // 8)
        for call in (store.recover, store.verify, partial(read_all, store)):
            with pytest.raises(FormatError) as caught:
                call(0)
            assert (caught.value.key, caught.value.ledger_id) == (str(file), 0)
            assert (caught.value.entry_id, caught.value.offset) == (count, BORDERS[count])
        if count:
            assert list(map(bytes, store.open(0).read(0, count - 1))) == ENTRIES[:count]
        store.close()
        flip(file, bit)
    assert recovered(file)[1] == ENTRIES


def test_a_bit_anywhere_in_an_open_ledgers_pages_does_no_harm_or_is_found(file, sample):
    whole = file.read_bytes()
    places = [*range(64), *range(PAGE_BYTES - 4, PAGE_BYTES)]
    places += [offset + byte for offset in SLOT_OFFSETS for byte in range(STATE_BYTES)]
    outcomes = set()
    for byte in sample(places, 8):
        file.write_bytes(whole)
        flip(file, 8 * byte + byte % 8)
        try:
            assert recovered(file)[1] == ENTRIES
            outcomes.add("harmless")
        except FormatError:
            outcomes.add("found")
    assert outcomes == {"harmless", "found"}


def test_a_bit_anywhere_in_a_sealed_ledger_does_no_harm_or_is_found(file, sample):
    recovered(file)
    whole = file.read_bytes()
    sparse, dense = range(0, 8 * FRAMES_OFFSET, 61), range(8 * FRAMES_OFFSET, 8 * len(whole))
    heads = [range(8 * begin, 8 * (begin + 64)) for begin in (0, *SLOT_OFFSETS)]
    for bit in sample([*chain(sparse, dense, *heads)], 10):
        flip(file, bit)
        store = FileLedgerStore(file.parent)
        try:
            status = store.verify(0)
            assert (status.entry_count, status.sealed) == (5, True)
            assert all_entries(store.open(0)) == ENTRIES
            assert PAGE_BYTES <= bit // 8 < FRAMES_OFFSET, f"bit {bit} was not missed"
        except FormatError:
            assert not PAGE_BYTES <= bit // 8 < FRAMES_OFFSET, f"bit {bit} does no harm"
        finally:
            store.close()
        flip(file, bit)


@pytest.mark.parametrize("tail", [b"\0", b"x" * 5000], ids=["a byte", "a page"])
def test_what_follows_a_sealed_ledger_is_refused(file, tail):
    recovered(file)
    file.write_bytes(file.read_bytes() + tail)
    store = FileLedgerStore(file.parent)
    for call in (store.verify, partial(read_all, store)):
        with pytest.raises(FormatError, match="not as long as its footer says"):
            call(0)


def test_a_sealed_ledger_that_is_cut_off_anywhere_is_refused(file):
    recovered(file)
    whole = file.read_bytes()
    lengths = [0, 1, 100, PAGE_BYTES, SLOT_OFFSETS[1], *range(FRAMES_OFFSET, len(whole))]
    for length in lengths:
        file.write_bytes(whole[:length])
        store = FileLedgerStore(file.parent)
        with pytest.raises(FormatError):
            store.verify(0)
        assert store.delete(0) is True
        store.close()


def test_another_ledgers_file_is_refused(file):
    file.rename(file.with_name("9.ledger"))
    store = FileLedgerStore(file.parent)
    with pytest.raises(FormatError, match="that of another ledger"):
        store.open(9)


def test_a_file_of_another_kind_is_refused_and_can_be_deleted(tmp_path):
    file = tmp_path / "3.ledger"
    store = FileLedgerStore(tmp_path)
    for data in (b"", b"text", bytes(20_000)):
        file.write_bytes(data)
        for call in (store.open, store.recover, store.verify):
            with pytest.raises(FormatError):
                call(3)
        assert store.ledger_ids() == [3]
        assert store.delete(3) is True
    assert store.ledger_ids() == []
