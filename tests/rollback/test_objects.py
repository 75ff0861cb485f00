"""The streaming objects of a tier: told apart by key and magic, whole or not."""

import pytest
from entries import read_whole
from golden import PIP17_CASES, STREAMING_CASES, load_case
from scenes.rollbacks import NAMELESS, put_segment, put_whole
from tiers import MANAGED_LEDGER, Names, lay_out_broker_objects, lay_out_case, put, uuid_of

from offload_core.maintenance.rollback import list_streaming
from offload_core.storage.tier import Tier, open_store
from offload_hooks import hookimpl
from offload_hooks.errors import ObjectNotFoundError
from offload_hooks.testing import MemoryDriver

METADATA = NAMELESS.as_metadata("data")
DATA, INDEX, PIP17_INDEX = b"\x26\xa6\x6d\x32", b"\x3d\x1f\xb0\xbc", b"\xde\x47\xde\x47"
"""The magics that objects begin with."""


@pytest.fixture
def tier():
    return Tier(MemoryDriver())


def states(tier):
    return [each.state for each in list_streaming(tier).objects]


def test_pulsars_streaming_objects_are_found_among_others_of_pulsars(tmp_path):
    for folder, names in (("streaming", STREAMING_CASES), ("pip17", PIP17_CASES[:2])):
        for name in names:
            lay_out_case(tmp_path, folder, name)
    lay_out_broker_objects(tmp_path, ["json"])
    with open_store(tmp_path) as store:
        listing = list_streaming(store)
    cases = {str(case.key.uuid): case for case in (load_case("streaming", name) for name in STREAMING_CASES)}
    assert {each.key.data_key for each in listing.objects} == set(cases)
    for each in listing.objects:
        case = cases[each.key.data_key]
        assert (each.state, each.detail) == ("complete", None)
        assert each.ledger_ids == tuple(sorted({entry.ledger_id for entry in case.entries}))
        assert each.size_bytes == len(case.data) + len(case.index)
        assert each.stored.managed_ledger is None
    assert {load_case("pip17", name).key for name in PIP17_CASES[:2]} <= listing.one_object_keys


def test_ours_name_their_topic_and_half_of_one_is_no_copy(tier):
    put_segment(tier, 1, (6, 2, 1), (5, 0, 3), folder="a/")
    put_segment(tier, 2, (7, 0, 1), parts=["data"])
    put_segment(tier, 3, (7, 0, 1), parts=["index"])
    put_whole(tier, 4, 5, 3)
    put(tier, "a/readme", b"text", {})
    listing = list_streaming(tier)
    two, three, one = listing.objects
    assert one.key.data_key == f"a/{uuid_of(1)}"
    assert (one.stored.managed_ledger, one.ledger_ids, one.state) == (MANAGED_LEDGER, (5, 6), "complete")
    assert (two.state, two.ledger_ids) == ("no-index", ())
    assert (three.state, three.ledger_ids) == ("no-data", (7,))
    assert [key.data_key for key in listing.one_object_keys] == [f"{uuid_of(4)}-ledger-5"]
    assert [each.key for each in list_streaming(tier, "a/").objects] == [one.key]


def test_a_one_object_copy_that_is_not_whole_is_no_copy(tier):
    key = put_whole(tier, 4, 5, 3)
    tier.delete([key.index_key])
    assert list_streaming(tier).one_object_keys == frozenset()


@pytest.mark.parametrize(
    ("data", "index", "state", "detail"),
    [
        (None, PIP17_INDEX + bytes(40), "not-streaming", "the index begins with DE47DE47, not 3D1FB0BC"),
        (DATA, PIP17_INDEX, "not-streaming", "the index begins with DE47DE47, not 3D1FB0BC"),
        (b"a picture of a cat", None, "not-streaming", "the data begins with 61207069, not 26A66D32"),
        (b"", None, "not-streaming", "neither object is long enough to begin with a magic"),
        (DATA[:3], INDEX[:1], "not-streaming", "neither object is long enough to begin with a magic"),
        (DATA, None, "no-index", "the data object has no index: an attempt that did not finish"),
        (DATA, b"", "broken-index", "an index is cut off"),
        (DATA, INDEX, "broken-index", "an index is cut off"),
        (None, INDEX, "no-data", "the index has no data object"),
    ],
)
def test_the_magic_tells_what_is_under_the_key_of_a_streaming_object(tier, data, index, state, detail):
    for key, value in ((str(uuid_of(1)), data), (f"{uuid_of(1)}-index", index)):
        if value is not None:
            tier.write_index(key, value, user_metadata=METADATA)
    (found,) = list_streaming(tier).objects
    assert (found.state, (found.detail or "")[: len(detail)]) == (state, detail)
    assert (found.foreign is not None) == (state == "not-streaming")


def test_a_streaming_object_that_is_cut_off_or_of_a_newer_version_is_still_one(tier):
    key = put_segment(tier, 1, (5, 0, 3))
    data = bytes(tier.read_range(key.data_key, 0, 512))
    put(tier, key.data_key, data[:-1], METADATA)
    assert states(tier) == ["wrong-length"]
    put(tier, key.data_key, data, Names(version="2").as_metadata("data"))
    put(tier, key.index_key, read_whole(tier, key.index_key), Names(version="2").as_metadata("index"))
    assert states(tier) == ["unknown-version"]


def test_every_beginning_of_an_index_is_listed(tier):
    key = put_segment(tier, 1, (5, 0, 3))
    index = read_whole(tier, key.index_key)
    for end in range(len(index)):
        put(tier, key.index_key, index[:end], METADATA)
        assert states(tier) == ["broken-index"]
    for bit in range(32):
        magic = int.from_bytes(INDEX) ^ 1 << bit
        put(tier, key.index_key, magic.to_bytes(4) + index[4:], METADATA)
        assert states(tier) == ["not-streaming"]


def test_what_vanishes_meanwhile_was_never_there():
    class VanishesWhenRead(MemoryDriver):
        @hookimpl
        def read_range(self, key):
            raise ObjectNotFoundError("it has gone", key=key)

        @hookimpl
        def read_object(self, key):
            raise ObjectNotFoundError("it has gone", key=key)

    tier = Tier(VanishesWhenRead())
    put_segment(tier, 1, (5, 0, 3))
    put_segment(tier, 2, (6, 0, 3), parts=["data"])
    assert states(tier) == []
