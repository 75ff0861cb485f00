"""What is written is read back before an original is touched; an entry that is there in two ways is in neither."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from damage import DAMAGES
from damage.scenes import LEDGER, PAYLOADS, Scene, in_memory_tier, pip17, streaming
from entries import entry, pip17_object
from scenes.repairs import Lines, contents_of, pairs_of, read_pair, repair_of, repaired, truth_of

from offload_core.storage.tier import Tier
from offload_hooks import BlockReceipt, ObjectStat, ReadableBuffer, Upload, hookimpl
from offload_hooks.errors import DataLossError
from offload_hooks.testing import MemoryDriver
from offload_hooks.values import Capabilities


class Liar(MemoryDriver):
    """A store that flips a bit of what it stores under keys with this in them, and says nothing."""

    wrong = ""

    @hookimpl
    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        return super().write_block(upload, part_number, offset, self._changed(upload.key, data))

    @hookimpl
    def write_index(
        self,
        key: str,
        data: ReadableBuffer,
        content_type: str,
        user_metadata: Mapping[str, str],
        create_only: bool,
    ) -> ObjectStat:
        return super().write_index(key, self._changed(key, data), content_type, user_metadata, create_only)

    def _changed(self, key: str, data: ReadableBuffer) -> bytes:
        changed = bytearray(data)
        if self.wrong in key and not key.endswith(".json"):
            changed[len(changed) // 2] ^= 1
        return bytes(changed)


@pytest.mark.parametrize(("wrong", "quarantine"), [("-ledger-", False), ("quarantine/", True)])
def test_a_copy_that_is_not_as_it_must_be_leaves_the_original(wrong: str, quarantine: bool) -> None:
    scene, _ = DAMAGES["a-block-is-zeros"].make()
    driver = Liar(in_memory_tier(scene.objects), Capabilities())
    driver.wrong = wrong
    tier = Tier(driver)
    before = contents_of(tier)
    work = repair_of(scene, tier, quarantine=quarantine)
    (planned,) = work.plan()
    with pytest.raises(DataLossError):
        work.do(planned, Lines())
    after = contents_of(tier)
    assert {key: after[key] for key in before} == before


def restored(scene: Scene) -> dict[tuple[int, int], bytes]:
    tier = scene.tier()
    (planned,), _, _ = repaired(scene, tier)
    return read_pair(tier, pairs_of(tier)[planned.target or ""])


def test_entries_that_are_there_twice_are_kept() -> None:
    scene = pip17(records=False)
    truth = truth_of(scene)
    scene.write(scene.key(), 1000, scene.objects[scene.key()].data[:1000])  # the first block over the second
    assert restored(scene) == {place: payload for place, payload in truth.items() if not 7 <= place[1] < 12}


def test_of_entries_that_are_there_in_two_ways_none_is_kept() -> None:
    scene = pip17(records=False)
    truth = truth_of(scene)
    other = pip17_object([entry(b"another" * 10), *PAYLOADS[1:]], ledger_id=LEDGER, max_block_bytes=1000)
    scene.write(scene.key(), 1000, other.data[:1000])
    lost = {0, *range(8, 12)}  # the other block is shorter by an entry: 7 is in it as well
    found = restored(scene)
    assert {place for place in truth if place not in found} == {(LEDGER, i) for i in lost}
    assert all(truth[place] == payload for place, payload in found.items())


@pytest.mark.parametrize(("ledger_id", "entry_id"), [(LEDGER, 9), (8, 0), (8, 1), (8, 3)])
def test_a_segment_is_saved_also_if_a_block_lacks_its_first_entries(ledger_id: int, entry_id: int) -> None:
    scene = streaming(records=False)
    truth = truth_of(scene, 1)
    scene.flip(scene.key(1), scene.frame(entry_id, 1, ledger_id) + 60)
    tier = scene.tier()
    (planned,), _, _ = repaired(scene, tier)
    found = read_pair(tier, pairs_of(tier)[planned.target or ""])
    assert found == {place: payload for place, payload in truth.items() if place != (ledger_id, entry_id)}
