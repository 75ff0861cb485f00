"""Ledgers of a topic with segments are condemned, deleted and forgotten, by several at once, in any order.

However segments lie, and wherever a deletion is cut off: no object goes that a live ledger reads from, and in the end
none is left.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from uuid import UUID

from effort import effort
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
from records import CLOSED_AT_MS, DRIVER, closed, managed_ledger, position, segment, still_open
from tiers import uuid_of

from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.metadata.records import (
    ManagedLedgerInfo,
    OffloadContext,
    abandon_segment,
    assign_segment,
    complete_segment,
    extend_segment,
    find_segment,
    forget_segment,
    pack_managed_ledger_info,
    parse_managed_ledger_info,
    resume_segment,
    segments_of,
    unfinished_segment,
)
from offload_core.metadata.records.ledger_changes import mark_for_deletion, needed_objects
from offload_core.metadata.records.segments import covered_stop
from offload_hooks.errors import AttemptError


def objects_to_delete(info, ledger):
    """What a condemned ledger names, and no live one."""
    kept = needed_objects(info)
    return [share.uuid for share in ledger.context.segments if share.uuid not in kept]


@dataclass(eq=False)
class Deletion:
    """Somebody who deletes what was condemned in a record that was read once, step by step."""

    info: ManagedLedgerInfo
    left: list[tuple[int, list[UUID]]] = field(init=False)
    done: set[int] = field(default_factory=set)

    def __post_init__(self):
        self.left = [
            (ledger.ledger_id, objects_to_delete(self.info, ledger))
            for ledger in self.info.in_order
            if ledger.is_marked_for_deletion
        ]


class SegmentedLedgers(RuleBasedStateMachine):
    """A record, the objects that there are, an owner who streams, and any number of deletions under way."""

    deletions: Bundle[Deletion] = Bundle("deletions")

    def __init__(self):
        super().__init__()
        self.info = managed_ledger(still_open(0))
        self.written = 0
        self.objects: set[UUID] = set()
        self.uploading: UUID | None = None
        self.numbers = iter(range(1, 1 << 30))

    # --- the owner ---------------------------------------------------------------------------

    @property
    def open_ledger(self):
        return self.info.in_order[-1]

    @rule(entries=st.integers(1, 3))
    def append(self, entries):
        self.written += entries

    @precondition(lambda self: self.written)
    @rule()
    def roll(self):
        ledger = self.open_ledger
        ended = LedgerInfo(
            ledger_id=ledger.ledger_id, entries=self.written, size=1, timestamp_ms=CLOSED_AT_MS
        )
        self.info = self.info.with_ledger(replace(ledger, info=ended))
        self.info = replace(self.info, ledgers=(*self.info.ledgers, still_open(ledger.ledger_id + 1)))
        self.written = 0

    def entries(self, ledger_id):
        known = self.info.ledger(ledger_id).info
        return known.entries or 0 if known.is_closed else self.written

    def next_begin(self):
        for ledger in self.info.in_order:
            if not ledger.is_marked_for_deletion and covered_stop(ledger) < self.entries(ledger.ledger_id):
                return position(ledger.ledger_id, covered_stop(ledger))
        return None

    @rule()
    def assign(self):
        begin = self.next_begin()
        if begin is None or unfinished_segment(self.info):
            return
        self.uploading = uuid_of(next(self.numbers))
        self.info = assign_segment(self.info, self.uploading, begin, DRIVER, CLOSED_AT_MS)
        self.objects.add(self.uploading)

    @rule()
    def extend(self):
        if self.uploading is not None:
            mine = find_segment(self.info, self.uploading)
            following = [
                ledger.ledger_id
                for ledger in self.info.in_order
                if mine is not None and ledger.ledger_id > mine.ledger_ids[-1]
            ]
            with suppress(AttemptError):
                self.info = extend_segment(self.info, self.uploading, following[0] if following else 1 << 20)

    @rule(data=st.data())
    def complete(self, data):
        if self.uploading is None:
            return
        uuid, mine = self.uploading, find_segment(self.info, self.uploading)
        if mine is None:
            self.give_up()
            return
        ends = {ledger_id: self.entries(ledger_id) - 1 for ledger_id in mine.ledger_ids}
        last = mine.ledger_ids[-1]
        first = mine.begin.entry_id if mine.begin.ledger_id == last else 0
        if ends[last] < first:
            return
        ends[last] = data.draw(st.integers(first, ends[last]))
        try:
            self.info = complete_segment(self.info, uuid, position(last, ends[last]), ends, CLOSED_AT_MS)
            self.uploading = None
        except AttemptError:
            self.give_up()

    def give_up(self):
        """As who uploads does when it learns that its attempt is not wanted any more."""
        self.objects.discard(self.uploading)
        self.uploading = None

    @rule(resumes=st.booleans())
    def abandon(self, resumes):
        """By the next owner; the former one may still be at it."""
        old = unfinished_segment(self.info)
        if old is None:
            return
        self.info = abandon_segment(self.info, old.uuid)
        self.objects.discard(old.uuid)
        if resumes:
            new = uuid_of(next(self.numbers))
            self.info = resume_segment(self.info, old.uuid, new, DRIVER, CLOSED_AT_MS)
            self.objects.add(new)
            self.uploading = new
        else:
            self.info = forget_segment(self.info, old.uuid)

    # --- deletions -----------------------------------------------------------------------------

    @rule(data=st.data())
    def condemn(self, data):
        sealed = [ledger.ledger_id for ledger in self.info.ledgers if ledger.info.is_closed]
        if sealed:
            chosen = data.draw(st.sets(st.sampled_from(sealed), max_size=3))
            once = mark_for_deletion(self.info, chosen)
            assert mark_for_deletion(once, chosen) == once
            assert parse_managed_ledger_info(pack_managed_ledger_info(once)) == once
            self.info = once

    @rule(target=deletions)
    def begin_deletion(self):
        return Deletion(self.info)

    @rule(deletion=deletions, steps=st.integers(1, 4))
    def go_on(self, deletion, steps):
        for _ in range(steps):
            if not deletion.left:
                return
            _, uuids = deletion.left[0]
            if uuids:
                self.objects.discard(uuids.pop(0))
            else:
                deletion.done.add(deletion.left.pop(0)[0])

    @rule(deletion=consumes(deletions))
    def end_deletion(self, deletion):
        """What it has deleted is forgotten; if it was cut off, the rest is left to others."""
        kept = tuple(each for each in self.info.ledgers if each.ledger_id not in deletion.done)
        self.info = replace(self.info, ledgers=kept)

    # --- what always holds ---------------------------------------------------------------------

    @invariant()
    def every_live_ledger_has_its_objects(self):
        for ledger in self.info.ledgers:
            if not ledger.is_marked_for_deletion and ledger.context is not None:
                for share in ledger.context.segments:
                    assert not share.complete or share.uuid in self.objects

    @invariant()
    def segments_follow_one_another(self):
        found = segments_of(self.info)
        assert sum(not each.is_finished for each in found) <= 1
        for each in found:
            assert not each.is_finished or each.end is not None
        for ledger in self.info.ledgers:
            if ledger.is_marked_for_deletion or ledger.context is None or not ledger.context.segments:
                continue
            shares = ledger.context.segments
            assert all(share.complete for share in shares[:-1])
            ends = [share.end_entry_id for share in shares if share.end_entry_id is not None]
            assert ends == sorted(set(ends))
            is_whole = ledger.info.is_closed and covered_stop(ledger) == ledger.info.entries
            assert ledger.is_fully_offloaded == is_whole
            assert not ledger.context.complete

    def teardown(self):
        """All is deleted: then nothing is left, but what is being uploaded, whose owner learns it."""
        self.info = mark_for_deletion(self.info, [ledger.ledger_id for ledger in self.info.ledgers])
        assert segments_of(self.info) == ()
        rest = Deletion(self.info)
        self.objects -= {uuid for _, uuids in rest.left for uuid in uuids}
        if self.uploading is not None:
            self.give_up()
        assert self.objects == set()


TestSegmentedLedgers = SegmentedLedgers.TestCase
TestSegmentedLedgers.settings = effort(0.4, stateful_step_count=40)


def test_a_condemned_ledger_ends_the_attempt_at_a_segment_in_all_its_ledgers():
    info = managed_ledger(closed(3, 10), closed(5, 4))
    info = assign_segment(info, uuid_of(1), position(3, 0), DRIVER, CLOSED_AT_MS, end=position(5, 3))
    info = mark_for_deletion(info, {3})
    left = unfinished_segment(info)
    assert (left.status.value, left.ledger_ids) == ("failed", (5,))
    first, second = info.in_order
    assert first.is_marked_for_deletion
    assert not second.is_marked_for_deletion
    assert objects_to_delete(info, first) == []
    both = mark_for_deletion(info, {5})
    assert objects_to_delete(both, both.in_order[0]) == [uuid_of(1)]


def test_a_share_of_which_nothing_is_known_but_its_uuid_is_condemned_as_well():
    bare = segment(uuid_of(1), 9, driver=None)
    info = managed_ledger(closed(3, 10, OffloadContext.of_segments([bare], complete=True)))
    (ledger,) = mark_for_deletion(info, {3}).ledgers
    assert ledger.is_marked_for_deletion
    assert ledger.context.segments == (replace(bare, complete=False),)
