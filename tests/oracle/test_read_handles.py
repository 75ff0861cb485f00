"""Random ranges by our read handle give what Pulsar's gives, of objects of either."""

from __future__ import annotations

import tempfile
from pathlib import Path

from effort import effort
from entries import pip17_object, read_through
from hypothesis import given
from hypothesis import strategies as st
from oracle import MANAGED_LEDGER
from records import closed
from scenes.copies import with_directory
from scenes.judged import (
    FRAME_ROOM,
    LEAST_PART_BYTES,
    contents,
    entries_of,
    new_attempt,
    new_ledger_id,
    payload_lists,
    ranges,
    store_object,
)
from stores import Store

from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import OffloadContext
from offload_core.reading.read_handles import ColdReaders, ReadMemory
from offload_core.storage.hot import FileLedgerStore
from offload_core.writing.offload import LedgerOffloader

RANGES = 8


def by_our_handle(tier, attempt, ledger_id, wanted, *, entries, window_bytes, driver=None):
    """The entries of all ranges, one range after another."""
    context = OffloadContext(uuid=attempt, complete=True, driver=driver)
    readers = ColdReaders(KnownTiers(tier), memory=ReadMemory(50_000), read_buffer_bytes=window_bytes)
    reader = readers.open(closed(ledger_id, entries, context), MANAGED_LEDGER)
    return [(ledger_id, *each) for first, last in wanted for each in read_through(reader, first, last, 1000)]


@given(data=st.data())
@effort(0.4)
def test_of_pip17_objects_of_pulsars_and_of_ours_with_a_directory(oracle, data):
    block_bytes = data.draw(st.integers(FRAME_ROOM, 5000))
    payloads = data.draw(payload_lists(block_bytes, block_bytes - FRAME_ROOM))
    wanted = data.draw(st.lists(ranges(len(payloads)), min_size=1, max_size=RANGES))
    ledger_id, window = new_ledger_id(), data.draw(st.sampled_from([64, 1000, 1 << 20]))
    with tempfile.TemporaryDirectory() as folder:
        store = Store(name="local", url=folder)
        if data.draw(st.booleans()):
            attempt = new_attempt()
            setting = {"managedLedgerOffloadMaxBlockSizeInBytes": block_bytes}
            oracle.offload(store, attempt, ledger_id, payloads, **setting)
        else:
            written = pip17_object(payloads, ledger_id=ledger_id, max_block_bytes=block_bytes)
            stride = data.draw(st.integers(1, 2000))
            attempt = store_object(store, with_directory(written, stride))
        theirs = oracle.read(store, attempt, ledger_id, wanted)
        assert theirs.ended
        with store.open() as tier:
            ours = by_our_handle(tier, attempt, ledger_id, wanted, entries=len(payloads), window_bytes=window)
        assert ours == theirs.entries


@given(data=st.data())
@effort(0.1)
def test_of_mapfiles_of_pulsars(oracle, data):
    payloads = data.draw(payload_lists(3000, 1000))
    wanted = data.draw(st.lists(ranges(len(payloads)), min_size=1, max_size=RANGES))
    ledger_id, attempt = new_ledger_id(), new_attempt()
    compression = data.draw(st.sampled_from(["RECORD", "BLOCK"]))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        oracle.offload_files(root, attempt, ledger_id, payloads, io_seqfile_compression_type=compression)
        theirs = oracle.read_files(root, attempt, ledger_id, wanted)
        assert theirs.ended
        with Store(name="local", url=folder).open() as tier:
            ours = by_our_handle(tier, attempt, ledger_id, wanted, entries=len(payloads), window_bytes=1000)
        assert ours == theirs.entries


def test_what_the_offloader_writes_with_a_directory_is_read_by_pulsar_on_s3(oracle, bucket, tmp_path):
    payloads = contents([50_000, 3, 0, 700_000] * 30, seed=9)
    hot, attempt = FileLedgerStore(tmp_path / "hot", sync="never"), new_attempt()
    for _ in range(3):
        writer = hot.create({})
    writer.append_batch(payloads)
    writer.close()
    ledger_id = writer.ledger_id
    with bucket.open() as tier:
        offloader = LedgerOffloader(tier, max_block_bytes=LEAST_PART_BYTES)
        offloader.offload(hot.open(ledger_id), attempt, {"managedledgername": MANAGED_LEDGER})
        wanted = [(0, len(payloads) - 1), (40, 47), (119, 119), (2, 2)]
        theirs = oracle.read(bucket, attempt, ledger_id, wanted)
        ours = by_our_handle(tier, attempt, ledger_id, wanted, entries=len(payloads), window_bytes=1 << 20)
    hot.close()
    expected = entries_of(ledger_id, payloads)
    assert theirs.entries == ours == [each for a, b in wanted for each in expected[a : b + 1]]
