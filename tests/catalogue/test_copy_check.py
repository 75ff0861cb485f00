"""One judgement of a copy: each kind of damage, and what each does who asks: deletion, readers, reports."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace

import pytest
from damage import scenes
from damage.scenes import LEDGER, PAYLOADS, TOPIC, Scene
from tiers import MANAGED_LEDGER, MODIFIED_AT, uuid_of

from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_core.format.codec.object_format import FORMAT_VERSION_KEY, TOPIC_KEY
from offload_core.format.codec.object_marks import FILTERED_KEY, FILTERED_MODE_KEY, LOST_KEY, TOMBSTONE_MODE
from offload_core.maintenance.gc.garbage_judging import GarbageJudge
from offload_core.maintenance.verify import Code
from offload_core.metadata.catalogue import copy_check, parse_topic, record_catalogue, recorded_copies
from offload_core.metadata.catalogue.copy_check import (
    MismatchKind,
    MismatchSeverity,
    abridged,
    check_copy,
    check_coverage,
    check_stored,
    find_copy,
    find_mismatches,
    is_deletable_for,
)
from offload_core.metadata.catalogue.known_tiers import KnownTiers
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.metadata.records.filter_record import RECORD_KEY
from offload_core.metadata.records.ledger_changes import is_marked_damaged, mark_damaged
from offload_core.reading.read_handles import ColdReaders, ReadMemory
from offload_core.writing.offload.hot_copy_check import check_cold_copies
from offload_hooks.errors import OffloadError


def record_of(scene):
    return scene.records[TOPIC].ledger(LEDGER)


def tiers_of(tier):
    """The tier, wherever records say that a copy is."""
    return KnownTiers(tier, elsewhere=lambda _: tier)


def both(scene):
    return scene.key(), scene.index_key()


# --- what can be wrong -------------------------------------------------------------------------


def data_gone(scene):
    del scene.objects[scene.key()]


def index_gone(scene):
    del scene.objects[scene.index_key()]


def index_cut_off(scene):
    scene.cut(scene.index_key(), 20)


def data_longer(scene):
    scene.objects[scene.key()].data += b"x"


def data_shorter(scene):
    scene.cut(scene.key(), -1)


def other_version(scene):
    for key in both(scene):
        scene.objects[key].metadata[FORMAT_VERSION_KEY] = "2"


def no_version(scene):
    for key in both(scene):
        del scene.objects[key].metadata[FORMAT_VERSION_KEY]


def other_topic(scene):
    for key in both(scene):
        scene.objects[key].metadata[TOPIC_KEY] = "acme/cold/persistent/others"


def other_uuid(scene):
    change_copy(scene, uuid=uuid_of(77))


def lost_entries(scene):
    for key in both(scene):
        scene.objects[key].metadata[LOST_KEY] = f"1 entries: {LEDGER}:3"


def lost_without_ranges(scene):
    for key in both(scene):
        scene.objects[key].metadata[LOST_KEY] = "some"


def marked_damaged(scene):
    scene.records[TOPIC] = mark_damaged(scene.records[TOPIC], scene.written[0].key.uuid)
    assert is_marked_damaged(record_of(scene))


def unrecorded_gaps(scene):
    for key in both(scene):
        scene.objects[key].metadata[FILTERED_KEY] = "transactions"


def filter_not_in_user_metadata(scene):
    for key in both(scene):
        del scene.objects[key].metadata[FILTERED_KEY]


def filter_of_another_mode(scene):
    for key in both(scene):
        scene.objects[key].metadata[FILTERED_MODE_KEY] = TOMBSTONE_MODE


def filter_not_in_record(scene):
    change_filter(scene, lambda _: None)


def another_filter_record(scene):
    change_filter(scene, lambda text: (text or "").replace("transactions", "others"))


def damaged_filter_record(scene):
    change_filter(scene, lambda _: "{")


def more_entries_in_record(scene):
    change_info(scene, entries=len(PAYLOADS) + 1)


def fewer_entries_in_record(scene):
    change_info(scene, entries=len(PAYLOADS) - 1)


def other_size_in_record(scene):
    change_info(scene, size=1)


def ends_later_in_record(scene):
    change_shares(scene, 0, end_entry_id=9)


def ends_before_its_last_block(scene):
    change_shares(scene, 0, end_entry_id=2)


def begins_earlier_in_record(scene):
    """The second segment: the first one ends before."""
    change_shares(scene, 0, end_entry_id=7)


def index_of_other_entries(scene):
    """The objects of the second segment lie in the place of the first."""
    for own, other in zip(both(scene), (scene.key(1), scene.index_key(1)), strict=True):
        scene.objects[own] = scene.objects[other]


def index_of_another_ledger(scene):
    """Ledger 8's record names an object that has no block of it."""
    segments = scene.records[TOPIC].ledger(8).context.segments
    share = replace(segments[0], uuid=scene.written[0].key.uuid)
    change_context(scene, segments=(share,), ledger_id=8)


def a_segment_is_missing(scene):
    change_context(scene, segments=record_of(scene).context.segments[:1])


def a_segment_does_not_say_its_end(scene):
    change_shares(scene, 1, end_entry_id=None)


def nothing_is_wrong(_):
    pass


def change_context(scene, ledger_id=LEDGER, **changes):
    scene.change_record(lambda record: replace(record, context=replace(record.context, **changes)), ledger_id)


def change_copy(scene, **changes):
    if record_of(scene).context.segments:
        change_shares(scene, 0, **changes)
    else:
        change_context(scene, **changes)


def change_shares(scene, number, **changes):
    shares = list(record_of(scene).context.segments)
    shares[number] = replace(shares[number], **changes)
    change_context(scene, segments=tuple(shares))


def change_info(scene, **changes):
    scene.change_record(lambda record: replace(record, info=replace(record.info, **changes)))


def change_filter(scene, change):
    context = record_of(scene).context
    driver = (context.segments[0] if context.segments else context).driver
    changed = driver.with_property(RECORD_KEY, change(driver.get(RECORD_KEY)))
    change_copy(scene, driver=changed)


# --- who does what -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Damage of a scene.

    Attributes:
        kind: the worst that is found; None for nothing.
        code: what verification reports of it; None for nothing.
        ledger_id: whose copies are judged.
    """

    make: Callable[[], Scene]
    do: Callable[[Scene], None]
    kind: MismatchKind | None
    code: Code | None
    ledger_id: int = LEDGER

    @property
    def severity(self):
        return None if self.kind is None else self.kind.severity

    def made(self):
        scene = self.make()
        self.do(scene)
        return scene

    def __str__(self):
        return f"{self.make.__name__}-{self.do.__name__}".replace("_", "-")


PIP17, STREAMING, MAPFILE = scenes.pip17, scenes.streaming, scenes.mapfiles
FILTERED, FILTERED_SEGMENTS = scenes.filtered, scenes.filtered_segments

OF_ALL = [
    (nothing_is_wrong, None, None),
    (data_gone, MismatchKind.NO_DATA, Code.NO_DATA),
    (index_gone, MismatchKind.NO_INDEX, Code.NO_INDEX),
    (index_cut_off, MismatchKind.NO_INDEX, Code.BROKEN_COPY),
    (other_uuid, MismatchKind.NO_DATA, Code.NO_OBJECT),
    (marked_damaged, MismatchKind.DAMAGED, Code.BROKEN_COPY),
    (more_entries_in_record, MismatchKind.ENTRIES, Code.RECORD_ENTRIES),
    (other_size_in_record, MismatchKind.SIZE, Code.RECORD_SIZE),
]
OF_OBJECTS = [
    (data_longer, MismatchKind.WRONG_LENGTH, Code.WRONG_LENGTH),
    (data_shorter, MismatchKind.WRONG_LENGTH, Code.WRONG_LENGTH),
    (other_version, MismatchKind.UNKNOWN_VERSION, Code.UNKNOWN_VERSION),
    (no_version, MismatchKind.NO_VERSION, Code.NO_VERSION),
    (other_topic, MismatchKind.OTHER_TOPIC, Code.OTHER_TOPIC),
    (lost_entries, MismatchKind.LOST, Code.LOST_ENTRIES),
    (lost_without_ranges, MismatchKind.LOST, Code.LOST_ENTRIES),
    (unrecorded_gaps, MismatchKind.FILTER, Code.RECORD_FILTER),
]
OF_FILTERS = [
    (nothing_is_wrong, None, None),
    (filter_not_in_user_metadata, MismatchKind.FILTER, Code.RECORD_FILTER),
    (filter_of_another_mode, MismatchKind.FILTER, Code.RECORD_FILTER),
    (filter_not_in_record, MismatchKind.FILTER, Code.RECORD_FILTER),
    (another_filter_record, MismatchKind.FILTER, Code.RECORD_FILTER),
    (damaged_filter_record, MismatchKind.FILTER, Code.RECORD_FILTER),
]
OF_SEGMENTS = [
    (ends_later_in_record, MismatchKind.LAST_ENTRY, Code.SEGMENT_END),
    (ends_before_its_last_block, MismatchKind.BEYOND_END, Code.SEGMENT_END),
    (begins_earlier_in_record, MismatchKind.FIRST_ENTRY, Code.SEGMENT_GAP),
    (index_of_other_entries, MismatchKind.BEYOND_END, Code.SEGMENT_END),
    (fewer_entries_in_record, MismatchKind.MORE_ENTRIES, Code.RECORD_ENTRIES),
    (a_segment_does_not_say_its_end, MismatchKind.NO_END, None),
]


def cases(damages, *makes):
    return [Case(make=make, do=do, kind=kind, code=code) for make in makes for do, kind, code in damages]


CASES = [
    *cases(OF_ALL, PIP17, STREAMING, MAPFILE),
    *cases(OF_OBJECTS, PIP17, STREAMING),
    *cases(OF_FILTERS, FILTERED),
    *cases(OF_SEGMENTS, STREAMING),
    *cases([(fewer_entries_in_record, MismatchKind.ENTRIES, Code.RECORD_ENTRIES)], PIP17, MAPFILE),
    *(
        Case(make=make, do=index_of_another_ledger, kind=kind, code=Code.OTHER_LEDGER, ledger_id=8)
        for make, kind in ((STREAMING, MismatchKind.OTHER_LEDGER), (FILTERED_SEGMENTS, MismatchKind.NO_BLOCK))
    ),
    # its second segment begins with entries that were left out, without a block for them: our writer makes one
    *cases([(nothing_is_wrong, MismatchKind.GAP_AT_BEGIN, None)], FILTERED_SEGMENTS),
    *cases([(filter_not_in_record, MismatchKind.FILTER, Code.RECORD_FILTER)], FILTERED_SEGMENTS),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_damage_is_judged_and_each_who_asks_acts_by_its_severity(case):
    scene = case.made()
    tier, topic = scene.tier(), parse_topic(TOPIC)
    record = scene.records[TOPIC].ledger(case.ledger_id)
    copies = list(recorded_copies(topic, record))
    judged = [check_stored(tier, record, copy) for copy in copies]
    wrong = [each for each in judged if each is not None]
    assert max((each.severity for each in wrong), default=None) == case.severity
    assert case.kind in {each.kind for each in wrong} if wrong else case.kind is None

    may_go = case.severity is None or case.severity < MismatchSeverity.LACKING
    is_read = case.severity is not MismatchSeverity.UNREADABLE

    # the hot copy, an old cold copy, a source object, what gc takes for superseded
    assert all(map(is_deletable_for, judged)) is may_go
    collected = GarbageJudge(tier, "", (), MODIFIED_AT)
    assert all(collected.holds(copy, record) for copy in copies) is may_go
    assert raised(lambda: check_cold_copies(tiers_of(tier), MANAGED_LEDGER, record)) is not may_go

    # readers: of handles, and of scans by records
    def opened():
        with closing(ColdReaders(tiers_of(tier), memory=ReadMemory()).open(record, MANAGED_LEDGER)):
            pass

    assert raised(opened) is not is_read
    (found,) = record_catalogue(tier, {topic: ManagedLedgerInfo(ledgers=(record,))}).topics[0].ledgers
    assert (len(found.extents) == len(copies)) is is_read

    # reports
    codes = {each.code for each in scene.findings(deep=False) if each.ledger_id in (case.ledger_id, None)}
    if case.code is None:
        assert codes <= {Code.LOST_ENTRIES, Code.ORPHAN}
    else:
        assert case.code in codes


def raised(call):
    try:
        call()
    except OffloadError:
        return True
    return False


@pytest.mark.parametrize("compression", FileCompression)
def test_no_other_copy_goes_because_of_a_mapfile_whose_end_is_missing_wherever_that_is(
    compression, monkeypatch, sample
):
    whole = scenes.mapfiles(compression)
    topic, record = parse_topic(TOPIC), record_of(whole)
    (copy,) = recorded_copies(topic, record)
    length = len(whole.objects[whole.key()].data)
    for window in (4 << 20, 64):
        monkeypatch.setattr(copy_check, "_WINDOW_BYTES", window)
        assert check_stored(whole.tier(), record, copy) is None
        for stop in sample(range(1, length, 5), 20):
            scene = scenes.mapfiles(compression)
            scene.cut(scene.key(), stop - length)
            assert not is_deletable_for(check_stored(scene.tier(), record, copy)), stop
            with pytest.raises(OffloadError):
                check_cold_copies(tiers_of(scene.tier()), MANAGED_LEDGER, record)


@pytest.mark.parametrize("make", [PIP17, STREAMING, MAPFILE, FILTERED, FILTERED_SEGMENTS])
def test_an_abridged_index_is_judged_alike(make):
    scene = make()
    tier, record = scene.tier(), record_of(scene)
    for copy in recorded_copies(parse_topic(TOPIC), record):
        found = find_copy(tier, copy)
        short = abridged(found.index)
        assert all(len(ledger.blocks) <= 3 for ledger in short.ledgers)
        for changed in (record, replace(record, info=replace(record.info, entries=3))):
            whole = list(find_mismatches(changed, copy, found.stat, found.index))
            assert list(find_mismatches(changed, copy, found.stat, short)) == whole


def test_segments_are_judged_together_as_well():
    scene = scenes.streaming()
    assert check_coverage(record_of(scene)) is None
    a_segment_is_missing(scene)
    mismatch = check_coverage(record_of(scene))
    assert (mismatch.kind, mismatch.entry_id) == (MismatchKind.COVERAGE, 9)
    assert mismatch.severity is MismatchSeverity.LACKING
    with pytest.raises(OffloadError, match="do not go to its end"):
        check_cold_copies(tiers_of(scene.tier()), MANAGED_LEDGER, record_of(scene))


def test_a_copy_that_is_not_complete_by_its_record_is_read_by_nobody():
    scene = scenes.pip17()
    change_context(scene, complete=False)
    (copy,) = recorded_copies(parse_topic(TOPIC), record_of(scene))
    found = find_copy(scene.tier(), copy)
    mismatch = check_copy(record_of(scene), copy, found.stat, found.index)
    assert (mismatch.kind, mismatch.severity) == (MismatchKind.UNFINISHED, MismatchSeverity.UNREADABLE)


def test_whether_a_context_is_complete_decides_nothing_about_segments():
    """Each segment says it of itself; the context of a streamed ledger leaves it unset."""
    scene = scenes.streaming()
    change_context(scene, complete=False)
    check_cold_copies(tiers_of(scene.tier()), MANAGED_LEDGER, record_of(scene))


def test_each_kind_has_its_case():
    elsewhere = {MismatchKind.UNFINISHED, MismatchKind.COVERAGE, MismatchKind.INDEX_OTHER_TOPIC}
    assert set(MismatchKind) - {case.kind for case in CASES} == elsewhere
