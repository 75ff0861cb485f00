"""A record that is ours goes on to what was saved; one that is not is left, and what it must say is told."""

from __future__ import annotations

from contextlib import nullcontext

from damage import DAMAGES, scenes
from damage.scenes import LEDGER, NOW_MS, TOPIC, Scene
from repairs import contents_of, context, recorded, repaired

from offload_core.catalogue.record_store import StoreRecords
from offload_core.codec.object_format import parse_key
from offload_core.metadata import ManagedLedgerRecords
from offload_core.repair.switching import pulsars_bits
from offload_core.verify import Code, Verification


def damaged(name: str, scene: Scene) -> Scene:
    """A scene with records, damaged."""
    DAMAGES[name].do(scene)
    return scene


def test_the_record_of_a_ledger_goes_on_to_what_was_saved() -> None:
    scene = damaged("a-block-is-zeros", scenes.pip17())
    store, tier = recorded(scene), scene.tier()
    records = ManagedLedgerRecords(store)
    (planned,), _, lines = repaired(scene, tier, quarantine=True, ours=records)
    key = parse_key(planned.target or "")
    assert key is not None
    assert context(records).uuid == key.uuid
    assert context(records).complete
    actions = [line.action.value for line in lines.lines]  # type: ignore[union-attr]
    assert actions == ["record", "write", "record", *["write", "write"], *["move", "move"], "record"]
    found = Verification(
        tier, deep=True, records=lambda: nullcontext(StoreRecords(store)), now_ms=lambda: NOW_MS
    )
    assert {each.code for each in found} == {Code.LOST_ENTRIES}


def test_the_record_of_a_segment_goes_on_to_what_was_saved() -> None:
    scene = damaged("padding-of-a-segment-has-a-flipped-bit", scenes.streaming())
    store, tier = recorded(scene), scene.tier()
    records = ManagedLedgerRecords(store)
    (planned,), _, _ = repaired(scene, tier, quarantine=True, ours=records)
    key = parse_key(planned.target or "")
    assert key is not None
    assert [share.uuid for share in context(records).segments] == [key.uuid, scene.written[1].key.uuid]
    found = Verification(
        tier, deep=True, records=lambda: nullcontext(StoreRecords(store)), now_ms=lambda: NOW_MS
    )
    assert list(found) == []


def test_what_a_record_of_others_names_stays_where_it_is() -> None:
    scene = damaged("a-block-is-zeros", scenes.pip17())
    tier = scene.tier()
    before = contents_of(tier)
    (planned,), _, lines = repaired(scene, tier, quarantine=True)
    after = contents_of(tier)
    assert {key: after[key] for key in before} == before
    assert set(after) - set(before) == {planned.target, f"{planned.target}-index"}
    assert planned.recorded == TOPIC
    assert planned.hot == (LEDGER,)
    assert [line.action.value for line in lines.lines] == ["write"]  # type: ignore[union-attr]


def test_a_uuid_is_told_as_pulsars_records_have_it() -> None:
    from uuid import UUID

    assert pulsars_bits(UUID("ffffffff-ffff-ffff-8000-000000000001")) == (-1, -(1 << 63) + 1)
    assert pulsars_bits(UUID("00000000-0000-0001-0000-000000000002")) == (1, 2)


def test_checksums_of_blocks_are_put_aside_with_what_they_are_of() -> None:
    scene, _ = DAMAGES["a-block-is-zeros"].make()
    scene.records = {}
    tier = scene.tier()
    tier.write_index(f"{scene.key()}-checksums", b"of a copy that is damaged")
    repaired(scene, tier, quarantine=True)
    assert [key for key in contents_of(tier) if key.endswith("-checksums")] == []
