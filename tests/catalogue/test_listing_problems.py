"""What is wrong in a bucket: reported with what and where, never read, and what changes while it is listed."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from entries import LedgerPart, pip17_object, streaming_object
from tiers import MANAGED_LEDGER, MemoryDriver, Names, lay_out, uuid_of

import offload_core.metadata.catalogue.listing as listing
from offload_core.metadata.catalogue import Problem, list_catalogue
from offload_core.storage.tier import Tier
from offload_hooks import hookimpl
from offload_hooks.errors import StoreError
from pulsar_offload import open_tier, scan

PAYLOADS = [b"one", b"", b"three"]
SEGMENT = streaming_object([LedgerPart(ledger_id=7, blocks=[[b"a", b"b", b"c"]])])


def catalogue_of(root, *, prefix=""):
    with open_tier(root) as tier:
        return tier.catalogue(prefix=prefix)


def only_problem(root):
    (stored,) = catalogue_of(root).problems
    assert stored.index is None
    assert not stored.is_complete
    return stored


WHOLE = pip17_object(PAYLOADS)


@pytest.mark.parametrize(
    ("parts", "code", "detail", "sizes"),
    [
        (["data"], "no-index", "the data object has no index: an attempt that did not finish", (172, None)),
        (["index"], "no-data", "the index has no data object", (None, len(WHOLE.index))),
    ],
)
def test_half_of_a_pair_is_reported(tmp_path, parts, code, detail, sizes):
    lay_out(tmp_path, WHOLE, parts=parts)
    stored = only_problem(tmp_path)
    assert stored.problem is Problem(code)
    assert stored.detail == detail
    assert (stored.data_bytes, stored.index_bytes) == sizes
    assert stored.managed_ledger == MANAGED_LEDGER


@pytest.mark.parametrize("data", [b"x", WHOLE.data[:-1], WHOLE.data + b"x"])
def test_a_data_object_of_another_length_than_its_index_says_is_reported(tmp_path, data):
    lay_out(tmp_path, replace(WHOLE, data=data))
    stored = only_problem(tmp_path)
    assert stored.problem is Problem("wrong-length")
    assert stored.detail == f"the data object has {len(data)} bytes, its index says 172"


@pytest.mark.parametrize(
    ("index", "detail"),
    [
        (b"", "an index is cut off"),
        (b"\xde\x47\xde\x47", "an index is cut off"),
        (WHOLE.index[:-1], "an index is cut off"),
        (b"\0" * 100, "this is not the index that it should be"),
        (streaming_object([LedgerPart(ledger_id=7, blocks=[[b"a"]])]).index, "found 3D1FB0BC (streaming)"),
    ],
)
def test_a_broken_index_is_reported_with_what_is_wrong(tmp_path, index, detail):
    key = lay_out(tmp_path, replace(WHOLE, index=index))
    stored = only_problem(tmp_path)
    assert stored.problem is Problem("broken-index")
    assert detail in stored.detail
    assert f"{key}-index" in stored.detail


def test_a_newer_format_version_is_reported_and_not_read(tmp_path):
    lay_out(tmp_path, WHOLE, names=Names(version="2"))
    stored = only_problem(tmp_path)
    assert stored.problem is Problem("unknown-version")
    assert stored.detail == "format version 2; this program reads 1"


def test_a_ledger_without_a_complete_copy_is_listed_without_pieces(tmp_path):
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=3), parts=["data"])
    (ledger,) = catalogue_of(tmp_path).topics[0].ledgers
    assert (ledger.ledger_id, ledger.extents, ledger.entries, ledger.data_bytes) == (3, (), None, 0)
    assert (ledger.formats, ledger.superseded) == ((), ())


def test_a_streaming_object_that_cannot_be_read_is_a_stray(tmp_path):
    key = lay_out(tmp_path, SEGMENT, parts=["data"])
    catalogue = catalogue_of(tmp_path)
    assert catalogue.topics == ()
    assert [(stored.key.data_key, stored.problem) for stored in catalogue.strays] == [(key, Problem.NO_INDEX)]
    assert catalogue.problems == catalogue.strays


def test_problems_are_listed_once_each_by_key(tmp_path):
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=5), attempt=2, parts=["data"])
    lay_out(tmp_path, SEGMENT, attempt=3, parts=["index"])
    lay_out(tmp_path, pip17_object(PAYLOADS, ledger_id=1), attempt=1, parts=["index"])
    assert [stored.key.uuid for stored in catalogue_of(tmp_path).problems] == [*map(uuid_of, (1, 2, 3))]


# --- while others write and delete -------------------------------------------------------------


class VanishingDriver(MemoryDriver):
    """Deletes an object after it was listed, at the first request that names another."""

    def __init__(self, objects, vanishes):
        super().__init__(objects)
        self.vanishes = vanishes

    @hookimpl
    def list_objects(self, prefix, start_after):
        listed = list(super().list_objects(prefix, start_after))
        self.objects.pop(self.vanishes, None)
        return iter(listed)


def objects_of(*written):
    objects = {}
    for each in written:
        objects |= {each.key.data_key: each.data, each.key.index_key: each.index}
    return objects


@pytest.mark.parametrize("suffix", ["", "-index"])
def test_an_object_that_vanishes_after_the_listing_was_never_there(suffix):
    gone, kept = pip17_object(PAYLOADS, ledger_id=1), pip17_object(PAYLOADS, ledger_id=2)
    driver = VanishingDriver(objects_of(gone, kept), gone.key.data_key + suffix)
    catalogue = list_catalogue(Tier(driver))
    assert [ledger.ledger_id for topic in catalogue.topics for ledger in topic.ledgers] == [2]
    assert catalogue.problems == ()


def test_an_object_that_vanishes_before_it_is_read_is_an_error_that_names_it(tmp_path):
    key = lay_out(tmp_path, pip17_object(PAYLOADS))
    with open_tier(tmp_path) as tier:
        planned = scan(tier)
        tier.store.delete([key])
        with pytest.raises(FileNotFoundError) as caught:
            planned.to_table()
    assert getattr(caught.value, "key", None) == key


def test_an_error_of_the_store_is_not_taken_for_an_absence():
    written = pip17_object(PAYLOADS)
    with pytest.raises(StoreError, match="the store broke"):
        list_catalogue(Tier(MemoryDriver(objects_of(written), fail_at=0)))


def test_an_index_larger_than_the_limit_is_reported_and_not_fetched(monkeypatch):
    large, small = pip17_object(PAYLOADS, ledger_id=1), pip17_object(PAYLOADS, ledger_id=2)
    large = replace(large, index=large.index + b"\0")
    monkeypatch.setattr(listing, "MAX_INDEX_BYTES", len(small.index))
    driver = MemoryDriver(objects_of(large, small))
    (stored,) = list_catalogue(Tier(driver)).problems
    assert stored.key == large.key
    assert stored.problem is Problem.BROKEN_INDEX
    assert stored.detail == f"the index is larger than {len(small.index)} bytes"
    assert driver.reads == [(small.key.index_key, 0, len(small.index))]


def test_the_limit_of_an_index_is_far_above_what_a_ledger_needs():
    assert listing.MAX_INDEX_BYTES == 64 * 1024 * 1024


def test_bytes_after_an_indexs_end_are_tolerated(tmp_path):
    written = pip17_object(PAYLOADS)
    lay_out(tmp_path, replace(written, index=written.index + b"\xe1\xd3\xe1\xd3 a fork's directory"))
    catalogue = catalogue_of(tmp_path)
    assert catalogue.problems == ()
    assert catalogue.topics[0].ledgers[0].entries == 3


def test_the_length_in_the_listing_is_compared_with_the_one_in_the_index(tmp_path):
    """An index that declares more than the data object has is found without reading data."""
    written = pip17_object(PAYLOADS)
    longer = written.index[:8] + struct.pack(">q", len(written.data) + 1) + written.index[16:]
    driver = MemoryDriver(objects_of(replace(written, index=longer)))
    (stored,) = list_catalogue(Tier(driver)).problems
    assert stored.problem is Problem.WRONG_LENGTH
    assert {key for key, _, _ in driver.reads} == {written.key.index_key}
