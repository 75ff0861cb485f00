"""MapFiles both ways: Pulsar's filesystem offloader writes, we read; we write, its read handle reads."""

from __future__ import annotations

import tempfile
from pathlib import Path

from effort import effort
from hypothesis import given
from hypothesis import strategies as st
from managed_ledgers import NAME
from mapfiles import DEFLATES_AS_HADOOP, golden_mapfile, lay_out_mapfile, mapfile, read_mapfile, rewritten
from oracle import MANAGED_LEDGER
from scenes.judged import entries_of, new_attempt, new_ledger_id, payload_lists, ranges, scanned
from scenes.moves import MovedTopic
from stores import Store

from offload_core.format.codec.mapfile.crc_files import make_checksums
from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_core.format.codec.mapfile.writer import BLOCK_BYTES
from offload_core.format.codec.object_format import ObjectFormat
from offload_core.metadata.records.filter_record import FilterMode
from pulsar_offload import open_store

COMPRESSIONS = st.sampled_from(FileCompression)
BLOCK_SIZES = st.sampled_from([2000, BLOCK_BYTES])


@given(data=st.data())
@effort(0.3)
def test_a_mapfile_of_pulsars_is_ours_byte_for_byte_and_is_read(oracle, data):
    compression, block_bytes = data.draw(COMPRESSIONS), data.draw(BLOCK_SIZES)
    payloads = data.draw(payload_lists(4000, 4000))
    ledger_id, attempt = new_ledger_id(), new_attempt()
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "io_seqfile_compression_type": compression.name,
            "io_seqfile_compress_blocksize": block_bytes,
        }
        oracle.offload_files(Path(folder), attempt, ledger_id, payloads, **settings)
        (index,) = Path(folder).rglob("index")
        stored = golden_mapfile(index.parent, Path(folder))
        assert (stored.key.ledger_id, stored.key.uuid) == (ledger_id, attempt)
        assert stored.key.managed_ledger == MANAGED_LEDGER
        assert read_mapfile(stored) == entries_of(ledger_id, payloads)
        if DEFLATES_AS_HADOOP:
            assert rewritten(stored, block_bytes=block_bytes) == (stored.data, stored.index)
        assert make_checksums(stored.data) == stored.data_checksums
        assert make_checksums(stored.index) == stored.index_checksums
        assert scanned(Store(name="local", url=folder), ledger_id) == entries_of(ledger_id, payloads)


@given(data=st.data())
@effort(0.3)
def test_mapfiles_of_ours_are_read_at_any_place(oracle, data):
    payloads = data.draw(payload_lists(4000, 4000))
    wanted = data.draw(st.lists(ranges(len(payloads)), max_size=6))
    ledger_id = new_ledger_id()
    written = mapfile(
        payloads,
        compression=data.draw(COMPRESSIONS),
        block_bytes=data.draw(BLOCK_SIZES),
        ledger_id=ledger_id,
        managed_ledger=MANAGED_LEDGER,
    )
    expected = entries_of(ledger_id, payloads)
    with tempfile.TemporaryDirectory() as folder:
        lay_out_mapfile(Path(folder), written, checksums=data.draw(st.booleans()))
        whole = (0, len(payloads) - 1)
        read = oracle.read_files(Path(folder), written.key.uuid, ledger_id, [whole, *wanted])
    assert read.ended
    assert read.entries == expected + [entry for a, b in wanted for entry in expected[a : b + 1]]
    assert read.last_add_confirmed == len(payloads) - 1


def test_ledgers_that_were_moved_into_mapfiles_are_read(oracle, tmp_path):
    world = MovedTopic.make(tmp_path)
    whole, segmented = world.add_ledger(300), world.add_ledger(40, size=9000)
    world.offload(whole)
    world.stream((segmented, 19), (segmented, 39))
    world.move_all(world.wanted(ObjectFormat.MAPFILE))
    for ledger_id, wanted in ((whole, (130, 270)), (segmented, (15, 25))):
        uuid = world.info.ledger(ledger_id).context.uuid
        expected = [(of, at, payload) for (of, at), payload in world.entries.items() if of == ledger_id]
        asked = [(0, len(expected) - 1), wanted]
        read = oracle.read_files(tmp_path / "target", uuid, ledger_id, asked, managed_ledger=NAME)
        assert read.ended
        assert read.entries == expected + expected[wanted[0] : wanted[1] + 1]
        assert read.last_add_confirmed == len(expected) - 1


def test_ledgers_that_were_offloaded_as_mapfiles_are_read_with_tombstones_as_well(oracle, tmp_path):
    world = MovedTopic.make(tmp_path)
    world.source = open_store("filesystem", fileSystemURI=f"file://{tmp_path}/source")
    plain, filtered = world.add_ledger(300), world.add_ledger(300)
    world.offload(plain)
    world.offload(filtered, drops=lambda payload: int(payload[-1] % 3 == 0), mode=FilterMode.TOMBSTONE)
    stored = world.read_all()
    assert len(stored) == 600
    assert len(world.entries) < 600
    for ledger_id in (plain, filtered):
        uuid = world.info.ledger(ledger_id).context.uuid
        expected = [(*at, payload) for at, payload in stored.items() if at[0] == ledger_id]
        read = oracle.read_files(
            tmp_path / "source", uuid, ledger_id, [(0, 299), (130, 270)], managed_ledger=NAME
        )
        assert read.ended
        assert read.entries == expected + expected[130:271]
        assert read.last_add_confirmed == 299
