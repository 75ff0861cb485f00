"""Segments on each store: blocks as the store wants them, read back; and one given up half-way leaves nothing."""

from __future__ import annotations

from uuid import UUID

import pytest
from scenes.offered import NAMES, Part, begin_of, offer, offloader_of, plain_object, read_back, stored

from offload_hooks.errors import ObjectNotFoundError, UploadError

pytestmark = pytest.mark.sampled(12)

SOON_S = 120
MIB = 1 << 20
LEAST_PART_BYTES = 5 * MIB
PARTS = [
    Part(ledger_id=4, first_entry_id=7, payloads=[b"a short end of a ledger"]),
    Part(ledger_id=5, payloads=[bytes([i % 251]) * 70_000 for i in range(250)]),
    Part(ledger_id=6, payloads=[b"x" * 7 * MIB, b"", b"last"], ended=False),
]


def test_a_segment_over_three_ledgers(store):
    uuid = UUID(int=1)
    with store.open() as tier, offloader_of(tier, max_block_bytes=6 * MIB) as offloader:
        handle = offloader.open_segment(uuid, begin_of(PARTS), NAMES)
        for part in PARTS:
            offer(handle, part, cuts=range(0, 250, 30))
        handle.close()
        done = handle.result().result(SOON_S)
        least = tier.describe().capabilities.min_block_bytes
        assert least == (LEAST_PART_BYTES if store.name == "s3" else 1)
        assert stored(tier, uuid) == plain_object(PARTS, max_block_bytes=6 * MIB, min_block_bytes=least)
        for part in PARTS:
            assert read_back(tier, uuid, part) == part.payloads
        offloader.delete_offloaded(uuid)
        assert [each.key for each in tier.list_objects()] == []
    assert done.blocks == 6


def test_a_segment_that_is_given_up_leaves_nothing(store):
    uuid = UUID(int=2)
    with store.open() as tier, offloader_of(tier, max_block_bytes=6 * MIB) as offloader:
        handle = offloader.open_segment(uuid, begin_of(PARTS), NAMES)
        for part in PARTS:
            offer(handle, part)
        handle.abort()
        with pytest.raises(UploadError, match="aborted"):
            handle.result().result(SOON_S)
        try:
            assert [each.key for each in tier.list_objects()] == []
            if tier.describe().capabilities.stale_uploads:
                assert list(tier.list_uploads()) == []
        except ObjectNotFoundError:
            assert store.name == "local"  # the root was never made
