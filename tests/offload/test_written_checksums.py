"""Checksums that are written with an offload: of both kinds, when they were asked for, and gone with what failed."""

from uuid import UUID

import pytest
from damage.sealed import blocks_of, checksums
from entries import read_whole
from scenes.offered import NAMES, UUID_1, Part, offer, offloader_of

from offload_core.format.codec.object_format import ObjectKey
from offload_core.maintenance.verify import Verification
from offload_core.metadata.records import EntryPosition
from offload_core.writing.offload import LedgerOffloader
from offload_core.writing.offload.attempt_objects import delete_attempt
from offload_hooks.errors import StoreUnavailableError
from pulsar_offload import open_tier

PAYLOADS = [b"%d" % i * 40 for i in range(300)]
SEGMENT = [
    Part(ledger_id=3, payloads=[b"%d" % i * 99 for i in range(900)]),
    Part(ledger_id=9, payloads=[b"last"], ended=False),
]


def offload(tier, ledger):
    LedgerOffloader(tier, max_block_bytes=4096, checksums=True).offload(ledger, UUID_1, NAMES)
    return ObjectKey(folder="", uuid=UUID_1, ledger_id=ledger.ledger_id, is_index=False)


def stream(tier, uuid=UUID_1, *, with_checksums=True):
    with offloader_of(tier, max_block_bytes=1 << 14, checksums=with_checksums) as offloader:
        handle = offloader.open_segment(uuid, EntryPosition(3, 0), NAMES)
        for part in SEGMENT:
            offer(handle, part)
        handle.close()
        handle.result().result(20)
    return ObjectKey(folder="", uuid=uuid, ledger_id=None, is_index=False)


def check(cold, key):
    """The checksums are those of the two objects, and nobody takes them for one."""
    names = (key.data_key, key.index_key, key.block_checksums_key)
    data, index, written = (read_whole(cold.store, name) for name in names)
    blocks = blocks_of(data, key)
    assert len(blocks) > 2
    assert written == checksums(index, blocks)
    about = cold.store.stat(key.block_checksums_key).user_metadata
    assert (about["role"], about["managedledgername"]) == ("checksums", NAMES["managedledgername"])
    verification = Verification(cold.store, deep=True)
    assert list(verification) == []
    assert (verification.summary.objects, verification.summary.with_checksums) == (1, 1)
    (topic,) = cold.catalogue().topics
    assert sum(len(ledger.attempts) for ledger in topic.ledgers) == len(topic.ledgers)
    delete_attempt(cold.store, key)
    assert list(cold.store.list_objects()) == []


@pytest.mark.parametrize(
    "write",
    [lambda tier, sealed: offload(tier, sealed(PAYLOADS)), lambda tier, _: stream(tier)],
    ids=["ledger", "segment"],
)
def test_they_are_written(cold, sealed, write):
    check(cold, write(cold.store, sealed))


def test_nobody_who_does_not_ask_gets_any(cold, sealed):
    LedgerOffloader(cold.store).offload(sealed(PAYLOADS), UUID_1, NAMES)
    stream(cold.store, UUID(int=5), with_checksums=False)
    assert len(list(cold.store.list_objects())) == 4


@pytest.mark.parametrize("kind", ["fail-before", "fail-after"])
@pytest.mark.parametrize("call", [1, 2])
def test_a_failure_leaves_nothing_that_is_whole_without_them(tmp_path, sealed, kind, call):
    (tmp_path / "cold").mkdir()
    layer = ("fault-plan", {"faults": f"{kind} write_index #{call}"})
    ledger = sealed(PAYLOADS)
    with open_tier(tmp_path / "cold", layers=[layer]) as faulty, pytest.raises(StoreUnavailableError):
        offload(faulty.store, ledger)
    with open_tier(tmp_path / "cold") as tier:
        key = ObjectKey(folder="", uuid=UUID_1, ledger_id=ledger.ledger_id, is_index=False)
        stored = {each.key for each in tier.store.list_objects()}
        assert key.data_key in stored
        assert key.index_key not in stored or key.block_checksums_key in stored
        delete_attempt(tier.store, key)
        assert list(tier.store.list_objects()) == []


@pytest.mark.parametrize("call", [1, 2])
def test_a_segment_that_fails_takes_them_away(tmp_path, call):
    (tmp_path / "cold").mkdir()
    layer = ("fault-plan", {"faults": f"fail-after write_index #{call}"})
    with open_tier(tmp_path / "cold", layers=[layer]) as faulty, pytest.raises(StoreUnavailableError):
        stream(faulty.store)
    with open_tier(tmp_path / "cold") as tier:
        assert list(tier.store.list_objects()) == []
