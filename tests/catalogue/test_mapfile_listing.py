"""What the catalogue makes of the directories of Pulsar's filesystem offloader."""

from __future__ import annotations

import os

import pytest
from entries import pip17_object
from mapfiles import lay_out_golden, lay_out_mapfile, mapfile
from tiers import MANAGED_LEDGER, TOPIC, Names, lay_out

from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_core.format.codec.object_format import ObjectFormat, parse_key
from offload_core.metadata.catalogue import Problem, index_reading
from offload_hooks.errors import OptionError
from pulsar_offload import open_tier, scan

UUID = "00000000-1111-4222-8333-0000000000aa"


def catalogue_of(root):
    with open_tier(root) as tier:
        return tier.catalogue()


def only_problem(root):
    (stored,) = catalogue_of(root).problems
    assert stored.index is None
    return stored


def path_of(root, written, name):
    return (root / written.key.data_key).with_name(name)


def test_what_a_broker_left_is_listed_by_topic(tmp_path):
    lay_out_golden(tmp_path)
    catalogue = catalogue_of(tmp_path)
    assert catalogue.problems == ()
    shown = {
        str(topic.name): [(ledger.ledger_id, ledger.entries, ledger.formats) for ledger in topic.ledgers]
        for topic in catalogue.topics
    }
    mapfiles = (ObjectFormat.MAPFILE,)
    assert shown == {
        "persistent://acme/cold/avro": [(9, 1000, mapfiles), (12, 266, mapfiles)],
        "persistent://acme/cold/batch": [(13, 139, mapfiles)],
    }
    assert {topic.cluster for topic in catalogue.topics} == {None}


@pytest.mark.parametrize(
    ("key", "managed_ledger", "is_index"),
    [
        (f"a/b/persistent/c/5-{UUID}/data", "a/b/persistent/c", False),
        (f"a/b/persistent/c/5-{UUID}/index", "a/b/persistent/c", True),
        (f"a/b/c/0-{UUID}/data", "a/b/c", False),
        (f"a/b/persistent/c%2Fd/5-{UUID}/data", "a/b/persistent/c%2Fd", False),
    ],
)
def test_a_key_is_taken_apart_and_put_together(key, managed_ledger, is_index):
    parsed = parse_key(key)
    assert (parsed.managed_ledger, parsed.is_index) == (managed_ledger, is_index)
    assert parsed.object_format is ObjectFormat.MAPFILE
    assert (parsed.index_key if is_index else parsed.data_key) == key
    folder = key.rpartition("/")[0]
    assert parsed.checksum_keys == (f"{folder}/.data.crc", f"{folder}/.index.crc")


@pytest.mark.parametrize(
    "key",
    [
        f"a/b/5-{UUID}/data",
        f"5-{UUID}/data",
        f"a//c/5-{UUID}/data",
        f"/a/b/c/5-{UUID}/data",
        f"a/b/c/05-{UUID}/data",
        f"a/b/c/5-{UUID}/.data.crc",
        f"a/b/c/5-{UUID}/data/x",
        f"a/b/c/5-{UUID.upper()}/data",
        f"a/b/c/-5-{UUID}/data",
        f"a/b/c/5-{UUID}/data\n",
    ],
)
def test_other_keys_are_passed_over(key):
    assert parse_key(key) is None


def test_an_attempt_that_did_not_finish_is_a_problem(tmp_path):
    written = mapfile([b"a"])
    lay_out_mapfile(tmp_path, written)
    index = path_of(tmp_path, written, "index")
    index.unlink()
    assert only_problem(tmp_path).problem is Problem.NO_INDEX
    index.write_bytes(b"")
    path_of(tmp_path, written, ".index.crc").unlink()
    assert only_problem(tmp_path).problem is Problem.BROKEN_INDEX
    index.write_bytes(written.index[: written.index.index(b"DefaultCodec") + 32])
    stored = only_problem(tmp_path)
    assert stored.problem is Problem.BROKEN_INDEX
    assert "an index has no record" in str(stored.detail)
    index.write_bytes(written.index)
    path_of(tmp_path, written, "data").unlink()
    assert only_problem(tmp_path).problem is Problem.NO_DATA


def test_a_data_file_that_is_none_is_a_problem(tmp_path):
    written = mapfile([b"a"])
    lay_out_mapfile(tmp_path, written)
    for wrong in (b"", b"x", written.data[:100], b"SEQ\7" + written.data[4:]):
        path_of(tmp_path, written, "data").write_bytes(wrong)
        stored = only_problem(tmp_path)
        assert stored.problem is Problem.BROKEN_INDEX
        assert written.key.data_key in str(stored.detail)


def test_an_index_is_verified_by_its_checksums(tmp_path):
    written = mapfile([b"a"])
    lay_out_mapfile(tmp_path, written)
    checksums = path_of(tmp_path, written, ".index.crc")
    right = checksums.read_bytes()
    for wrong in (b"", right[:-1], right + b"\0", right[:-1] + bytes([right[-1] ^ 1])):
        checksums.write_bytes(wrong)
        stored = only_problem(tmp_path)
        assert stored.problem is Problem.BROKEN_INDEX
        assert written.key.index_key in str(stored.detail)
    checksums.write_bytes(right)
    assert catalogue_of(tmp_path).problems == ()


def test_metadata_behind_the_beginning_of_a_large_block_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(index_reading, "_BEGINNING_BYTES", 1 << 10)
    lay_out_mapfile(tmp_path, mapfile([b""] * 5000, block_bytes=64 << 20))
    payloads = [bytes([i % 251]) for i in range(5000)]
    compression = FileCompression.BLOCK
    lay_out_mapfile(tmp_path, mapfile(payloads, compression=compression, block_bytes=64 << 20, ledger_id=8))
    (topic,) = catalogue_of(tmp_path).topics
    assert [ledger.entries for ledger in topic.ledgers] == [5000, 5000]


def test_a_ledger_without_a_cluster_joins_the_one_that_its_topic_has(tmp_path):
    lay_out(tmp_path, pip17_object([b"a"], ledger_id=5), names=Names(cluster="east"))
    lay_out_mapfile(tmp_path, mapfile([b"b"], ledger_id=7))
    (topic,) = catalogue_of(tmp_path).topics
    assert topic.cluster == "east"
    assert [ledger.ledger_id for ledger in topic.ledgers] == [5, 7]


def test_where_two_clusters_have_the_topic_it_joins_neither(tmp_path):
    lay_out(tmp_path, pip17_object([b"a"], ledger_id=5), attempt=1, names=Names(cluster="east"))
    lay_out(tmp_path, pip17_object([b"a"], ledger_id=5), attempt=2, names=Names(cluster="west"))
    lay_out_mapfile(tmp_path, mapfile([b"b"], ledger_id=7))
    assert [topic.cluster for topic in catalogue_of(tmp_path).topics] == [None, "east", "west"]
    with open_tier(tmp_path) as tier, pytest.raises(OptionError, match="two clusters"):
        scan(tier, TOPIC)


@pytest.mark.parametrize("newer", ["mapfile", "pip17"])
def test_of_a_ledger_in_two_formats_the_newest_copy_is_read(tmp_path, newer):
    lay_out(tmp_path, pip17_object([b"pip17"], ledger_id=7))
    written = mapfile([b"mapfile"], ledger_id=7, managed_ledger=MANAGED_LEDGER)
    lay_out_mapfile(tmp_path, written)
    time = 4_000_000_000 if newer == "mapfile" else 1_000_000_000
    for name in ("data", "index"):
        os.utime(path_of(tmp_path, written, name), (time, time))
    with open_tier(tmp_path) as tier:
        table = scan(tier, level="entries").to_table()
        (ledger,) = tier.catalogue().topics[0].ledgers
    assert table["value"].to_pylist() == [newer.encode()]
    assert len(ledger.superseded) == 1
