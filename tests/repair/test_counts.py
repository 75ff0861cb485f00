"""Records that count what is not so say what their verified copies have; and where nothing tells it, they stay."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest
from crash_points import Metadata, PointedAudit
from damage import DAMAGES, Scene, scenes
from damage.in_records import change_context
from damage.scenes import FOLLOWING, LEDGER, NOW_MS, PAYLOADS, TOPIC, closed_in_index
from managed_ledgers import Audit
from scenes.repairs import recorded, repair_of, repaired
from tiers import MANAGED_LEDGER

from offload_core.interfaces.cli.repair import by_hand
from offload_core.maintenance.repair import Action
from offload_core.maintenance.repair.count_correction import CountTask, count_ledger
from offload_core.maintenance.verify import Code, Verification
from offload_core.metadata.catalogue import parse_topic
from offload_core.metadata.catalogue.record_source import StoreRecords
from offload_core.metadata.records.ledger_changes import LedgerCounts, correct_counts
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_hooks.errors import AttemptError

COUNT_CODES = {Code.RECORD_ENTRIES, Code.RECORD_SIZE}
BYTES = sum(map(len, PAYLOADS))
RIGHT = LedgerCounts(entries=len(PAYLOADS), size_bytes=BYTES)

SOUND: dict[str, Callable[[], Scene]] = {
    "pip17": partial(scenes.pip17, gone=True),
    "segments": partial(scenes.streaming, gone=True),
    "mapfile": lambda: gone(scenes.mapfiles()),
}

LIES: dict[str, dict[str, int | None]] = {
    "more-entries": {"entries": 17},
    "fewer-entries": {"entries": 15},
    "one-entry": {"entries": 1},
    "another-size": {"size": 17},
    "a-larger-size": {"size": BYTES + 1},
    "no-bytes": {"size": 0},
    "both": {"entries": 99, "size": 3},
}


def gone(scene, ledger_id=LEDGER):
    """The hot copy is gone, by the record."""
    change_context(scene, ledger_id, bookkeeper_deleted=True)
    return scene


def lying(scene, ledger_id=LEDGER, **counts):
    """The record of a ledger counts otherwise."""
    scene.change_record(lambda record: replace(record, info=replace(record.info, **counts)), ledger_id)
    return scene


def said(store, ledger_id=LEDGER):
    """What the record says now."""
    info = ledger(store, ledger_id).info
    return LedgerCounts(entries=info.entries, size_bytes=info.size)


def ledger(store, ledger_id=LEDGER):
    return ManagedLedgerRecords(store).read(MANAGED_LEDGER).info.ledger(ledger_id)


def findings(tier, store):
    """What a verification says."""
    records = partial(nullcontext, StoreRecords(store))
    return list(Verification(tier, deep=True, records=records, now_ms=lambda: NOW_MS))


def corrected(scene, store):
    """All is done that there is to do."""
    planned, _, lines = repaired(scene, scene.tier(), ours=ManagedLedgerRecords(store))
    return planned, lines


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("name", SOUND)
def test_a_record_that_lies_says_what_its_copy_has(name, lie):
    scene = lying(SOUND[name](), **LIES[lie])
    store, tier = recorded(scene), scene.tier()
    before = ledger(store)
    assert {each.code for each in findings(tier, store)} & COUNT_CODES
    planned, lines = corrected(scene, store)
    assert [each.choice.action for each in planned].count(Action.CORRECT_COUNTS) == 1
    assert said(store) == RIGHT
    assert findings(tier, store) == []
    right = replace(before.info, entries=RIGHT.entries, size=RIGHT.size_bytes)
    assert ledger(store) == replace(before, info=right)  # nothing else of it is another
    (line,) = lines.changes
    assert (line.action.value, line.managed_ledger, line.ledger_id) == ("record", MANAGED_LEDGER, LEDGER)
    assert line.after == f"entries 16, size {BYTES}"
    again, no_lines = corrected(scene, store)
    assert (again, no_lines.changes) == ([], [])


def test_a_ledger_that_shares_a_segment_is_corrected_and_its_neighbour_stays():
    scene = lying(gone(scenes.streaming(), 8), 8, entries=4, size=9)
    store = recorded(scene)
    corrected(scene, store)
    assert said(store, 8) == LedgerCounts(entries=5, size_bytes=sum(map(len, FOLLOWING)))
    assert said(store) == RIGHT


@pytest.mark.parametrize(
    "name", sorted(name for name, each in DAMAGES.items() if COUNT_CODES & {each.code, *each.also})
)
def test_damage_of_counts_leaves_nothing_to_be_found(name):
    scene, _ = DAMAGES[name].make()
    store = recorded(gone(scene))
    corrected(scene, store)
    assert findings(scene.tier(), store) == []


def test_a_record_that_is_not_ours_is_told_what_it_must_say():
    scene = lying(scenes.pip17(), entries=17)
    tier = scene.tier()
    planned, done, lines = repaired(scene, tier)
    (one,) = planned
    assert (one.changes, done, lines.changes) == (False, [], [])
    (told,) = by_hand(one)
    assert f"must say of ledger {LEDGER}: entries 16, size {BYTES}; it says entries 17, size {BYTES}" in told
    assert TOPIC in told


def test_a_hot_copy_that_was_not_asked_forbids_it():
    scene = lying(scenes.pip17(), entries=17)
    store = recorded(scene)
    (planned,), lines = corrected(scene, store)
    assert (planned.choice.action, lines.changes) == (Action.LEAVE, [])
    assert "it was not asked: --config" in planned.choice.why
    assert said(store).entries == 17


def damaged(name):
    scene = gone(lying(scenes.pip17(), size=17))
    DAMAGES[name].do(scene)
    return scene


def lost_entries():
    """The copy was saved from a damaged one, and says that it lacks an entry."""
    scene = gone(scenes.pip17())
    for stored in scene.objects.values():
        stored.metadata["pulsaroffloadlost"] = "1 entries: 7:5"
    return lying(scene, size=17)


UNTOLD: dict[str, tuple[Callable[[], Scene], str]] = {
    "damaged": (partial(damaged, "a-block-is-zeros"), "damaged"),
    "filtered": (lambda: lying(gone(scenes.filtered()), size=17), "went through a filter"),
    "lost": (lost_entries, "entries that were lost"),
}


@pytest.mark.parametrize("name", UNTOLD)
def test_a_copy_that_does_not_tell_changes_no_record(name):
    made, why = UNTOLD[name]
    scene = made()
    store = recorded(scene)
    work, lines = repair_of(scene, scene.tier(), ours=ManagedLedgerRecords(store)), Audit()
    planned = [each for each in work.plan() if COUNT_CODES & {found.code for found in each.findings}]
    assert [each.choice.action for each in planned] == [Action.LEAVE]
    assert why in planned[0].choice.why
    assert work.do(planned[0], lines).corrected is False
    assert said(store).size_bytes == 17
    assert lines.changes == []


def test_a_segment_that_its_ledger_went_on_behind_does_not_tell_the_whole():
    scene = SOUND["segments"]()
    change_context(scene, segments=first_share(scene))
    assert counted(scene).why == "its copy does not tell that it has all of its entries"


def test_segments_tell_it_together_and_in_order_only():
    scene = SOUND["segments"]()
    assert counted(scene).counts == RIGHT
    change_context(scene, segments=recorded_in(scene).context.segments[::-1])
    assert counted(scene).why == "its copies do not have every entry once"
    change_context(scene, segments=first_share(scene, complete=False))
    assert counted(scene).why == "it is not read from complete copies"


def test_an_index_that_counts_other_bytes_does_not_tell_it():
    scene = SOUND["segments"]()
    written = closed_in_index(scene.written[1], {LEDGER: [*PAYLOADS[:-1], b""], 8: FOLLOWING})
    scene.with_index(written.index, 1)
    assert counted(scene).why == "the index of its copy counts other bytes"


def recorded_in(scene):
    """The ledger's record."""
    return scene.records[TOPIC].ledger(LEDGER)


def first_share(scene, **changes):
    """Only the first segment is named."""
    return (replace(recorded_in(scene).context.segments[0], **changes),)


def counted(scene):
    """What the copies tell that the record names."""
    return count_ledger(scene.tier(), CountTask.of(parse_topic(TOPIC), recorded_in(scene)))


class Meddling(Audit):
    """An audit log during whose first line somebody changes the record."""

    def __init__(self, store, **counts):
        super().__init__()
        self._store, self._counts = store, counts

    def record(self, change):
        super().record(change)
        if len(self.changes) == 1:
            known = ledger(self._store)
            lies = replace(known, info=replace(known.info, **self._counts))
            ManagedLedgerRecords(self._store).update(MANAGED_LEDGER, lambda info: info.with_ledger(lies))


def test_a_record_that_changes_meanwhile_is_judged_anew():
    scene = lying(SOUND["pip17"](), entries=17)
    store = recorded(scene)
    work = repair_of(scene, scene.tier(), ours=ManagedLedgerRecords(store))
    (planned,) = work.plan()
    log = Meddling(store, size=4)
    assert work.do(planned, log).corrected
    assert said(store) == RIGHT
    assert [line.before for line in log.changes] == [f"entries 17, size {BYTES}", "entries 17, size 4"]


def test_a_change_holds_for_what_was_judged_only():
    scene = lying(SOUND["pip17"](), entries=17)
    info = scene.records[TOPIC]
    uuid = scene.written[0].key.uuid
    before = LedgerCounts(entries=17, size_bytes=BYTES)
    changed = correct_counts(info, LEDGER, [uuid], before, RIGHT)
    assert correct_counts(changed, LEDGER, [uuid], before, RIGHT) is changed
    for copies, was in (([], before), ([uuid], LedgerCounts(entries=18, size_bytes=BYTES))):
        with pytest.raises(AttemptError):
            correct_counts(info, LEDGER, copies, was, RIGHT)
    with pytest.raises(AttemptError):
        correct_counts(info, 8, [uuid], before, RIGHT)


def test_every_call_may_be_the_last(crash_matrix):
    scene = lying(SOUND["pip17"](), entries=17, size=4)

    def run(store, points):
        work = repair_of(scene, scene.tier(), ours=ManagedLedgerRecords(Metadata(store, points)))
        for each in list(work.plan()):
            if each.changes:
                work.do(each, PointedAudit(Audit(), points))

    def check(store, where):
        assert said(store) in (LedgerCounts(entries=17, size_bytes=4), RIGHT), where

    def check_done(store, where):
        assert said(store) == RIGHT, where

    crash_matrix(lambda _: recorded(scene), run, check=check, check_done=check_done, every=26)
