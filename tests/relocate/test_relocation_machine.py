"""A topic that is written, read, offloaded, trimmed and deleted while its cold copies are moved, and moving is cut off.

All of the topic's own machine, and copies that go back and forth between two tiers in any format, by a process that may
be killed at any of its calls, and in the midst of which the topic goes on.
"""

from __future__ import annotations

import re
import tempfile
from contextlib import suppress
from pathlib import Path

from crash_points import FAULTS, Fault, Killed, Metadata, Points, Watch
from effort import effort
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule
from managed_ledgers import NAME, Audit
from scenes.machines import TopicMachine

from offload_core.format.codec.object_format import ObjectFormat
from offload_core.maintenance.relocate import Mover, Wanted, make_moves, plan_topic
from offload_core.metadata.catalogue.known_tiers import tier_record
from offload_core.metadata.catalogue.topics import parse_topic
from offload_core.metadata.policies import RetentionPolicies
from offload_core.metadata.records import other_copies, read_copies
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.storage.tier import Tier
from offload_core.storage.tier.chain import Layer
from offload_core.writing.managed_ledger import delete_managed_ledger
from offload_core.writing.managed_ledger.copy_registry import RecordRegistry
from offload_drivers.local import LocalDriver
from offload_hooks.errors import OffloadError

TOPIC_NAME = parse_topic(NAME)
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_formats = st.sampled_from([None, *ObjectFormat])


class RelocationMachine(TopicMachine):
    """The topic's machine, with two tiers."""

    @initialize()
    def make_the_other_tier(self) -> None:
        self.cold = Path(self.folder.name)
        self.other_folder = tempfile.TemporaryDirectory()
        self.other = Path(self.other_folder.name)
        self.others.append(Tier(LocalDriver(str(self.other))))
        self.open_anew(3, 0)

    def mover(self, points: Points, *, back: bool, listener: object = lambda _: None) -> Mover:
        """As a process of its own has it."""
        tiers = [
            Tier(LocalDriver(str(folder)), [Layer(name="watch", make=lambda _: Watch(points))])
            for folder in (self.cold, self.other)
        ]
        source, target = reversed(tiers) if back else tiers
        records = ManagedLedgerRecords(Metadata(self.records.store, points))  # type: ignore[arg-type]
        return Mover(
            RecordRegistry(records, self.clock),
            source,
            target,
            Audit(),  # type: ignore[arg-type]
            now_ms=self.clock,
            block_bytes=700,
            listener=listener,  # type: ignore[arg-type]
        )

    def relocate(
        self,
        points: Points,
        *,
        back: bool,
        format_: ObjectFormat | None,
        merge: int | None,
        listener: object = lambda _: None,
    ) -> None:
        here, there = (tier_record(Tier(LocalDriver(str(folder)))) for folder in (self.cold, self.other))
        wanted = Wanted(
            source=there if back else here,
            target=here if back else there,
            format=None if merge else format_,
            merge_bytes=merge,
        )
        plan = plan_topic(TOPIC_NAME, self.records.read(NAME).info, wanted)
        with suppress(Killed):
            list(make_moves(self.mover(points, back=back, listener=listener), [plan], parallel=1))

    @rule(back=st.booleans(), format_=_formats, merge=st.sampled_from([None, None, 300, 10_000]))
    def move(self, back: bool, format_: ObjectFormat | None, merge: int | None) -> None:
        self.relocate(Points(), back=back, format_=format_, merge=merge)

    @rule(
        back=st.booleans(),
        format_=_formats,
        merge=st.sampled_from([None, 300]),
        at=st.integers(1, 60),
        fault=st.sampled_from(FAULTS),
    )
    def begin_to_move(
        self, back: bool, format_: ObjectFormat | None, merge: int | None, at: int, fault: Fault
    ) -> None:
        """And be cut off, or fail."""
        with suppress(OffloadError):
            self.relocate(Points(at, fault), back=back, format_=format_, merge=merge)

    @rule(
        back=st.booleans(),
        format_=_formats,
        what=st.sampled_from(["trim", "offload", "hot", "read"]),
        after=st.integers(0, 4),
    )
    def move_meanwhile(self, back: bool, format_: ObjectFormat | None, what: str, after: int) -> None:
        """The topic goes on in the midst of a move."""
        reads = 0

        def go_on(_: int) -> None:
            nonlocal reads
            reads += 1
            if reads != after + 1 or not self.entries:
                return
            end = self.entries[len(self.entries) // 2][0]
            if what == "trim":
                gone = set(self.topic.trim(RetentionPolicies(), consumed_before=end))
                self.entries = [each for each in self.entries if each[0].ledger_id not in gone]
            elif what == "offload":
                self.topic.offload_prefix(end)
            elif what == "hot":
                self.topic.delete_hot_copies(0)
            else:
                self.read_all()

        self.relocate(Points(), back=back, format_=format_, merge=None, listener=go_on)

    @rule(back=st.booleans())
    def delete_replaced(self, back: bool) -> None:
        """After a grace, in which all that read the old copies have ended."""
        self.open_anew(3, 0)
        assert self.mover(Points(), back=back).delete_replaced(TOPIC_NAME, 0).error is None

    @rule(back=st.booleans())
    def clean(self, back: bool) -> None:
        self.mover(Points(), back=back).clean(TOPIC_NAME)
        roles = {each.role.value for each in other_copies(self.records.read(NAME).info)}
        assert roles <= {"replaced"}

    @invariant()
    def both_tiers_have_what_the_record_says(self) -> None:
        """All that is read is there, and nothing that the record does not name."""
        info = self.records.read(NAME).info
        hot = {
            ledger.ledger_id
            for ledger in info.ledgers
            if ledger.context is None or not ledger.context.bookkeeper_deleted
        }
        assert set(self.shared.ledgers) == hot
        read = {str(uuid) for uuid in read_copies(info)}
        named = read | {str(each.uuid) for each in other_copies(info)}
        keys = [each.key for tier in (self.tier, *self.others) for each in tier.list_objects()]
        there = {_UUID.findall(key)[-1] for key in keys}
        assert read <= there <= named

    def teardown(self) -> None:
        """The topic is deleted, and nothing is left of it."""
        delete_managed_ledger(self.environment(0), NAME)
        assert [each.key for tier in (self.tier, *self.others) for each in tier.list_objects()] == []
        self.other_folder.cleanup()
        super().teardown()


RelocationMachine.TestCase.settings = effort(0.2, stateful_step_count=25)
TestRelocation = RelocationMachine.TestCase
