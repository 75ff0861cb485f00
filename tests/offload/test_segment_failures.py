"""A segment whose store fails at any call, or that is given up at any moment: nothing of it is left."""

import logging
import threading
from uuid import UUID

import pytest
from crash_points import watched
from layered import Gate, layer
from scenes.offered import NAMES, UUID_1, Part, begin_of, offer, offer_on, offloader_of, read_back

from offload_core.metadata.records import EntryPosition
from offload_core.storage.tier import MemoryBudget, Tier
from offload_core.writing.offload import OfferResult
from offload_drivers.local import LocalDriver
from offload_hooks.errors import StoreUnavailableError, UploadError
from offload_hooks.ledger_stores import EntryBatch
from offload_hooks.testing.fault_plan import FaultPlan
from offload_hooks.testing.faults import FaultLayer

SOON_S = 60
CLOSED = OfferResult.SEGMENT_CLOSED
BLOCKS = 5
PART = Part(ledger_id=1, payloads=[bytes([i + 1]) * 200 for i in range(2 * BLOCKS)], ended=False)
BLOCK_BYTES = 128 + 2 * 212 + 4
CALLS = [("begin_data", 1), ("write_block", BLOCKS), ("commit_data", 1), ("write_index", 1)]
POINTS = [(hook, call) for hook, calls in CALLS for call in range(1, calls + 1)]


def tier_with(folder, faults):
    return Tier(LocalDriver(str(folder)), [layer(FaultLayer, plan=FaultPlan.parse(faults))])


def leftovers(folder):
    """Objects and uploads that are there, sidecars and temporary files among them; not the driver's lock."""
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    return names - {".offload-uploads/lock"}


def offer_all(handle):
    """Offer the part entry by entry, until the segment takes no more, and close it."""
    for entry_id, payload in enumerate(PART.payloads):
        if offer_on(handle, 1, EntryBatch.of(entry_id, [payload])) is CLOSED:
            break
    handle.close()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", ["fail-before", "fail-after"])
@pytest.mark.parametrize(("hook", "call"), POINTS)
def test_a_failure_at_any_call_ends_the_segment_and_another_attempt_succeeds(tmp_path, hook, call, kind):
    tier = tier_with(tmp_path, f"{kind} {hook} #{call}")
    with offloader_of(tier, max_block_bytes=BLOCK_BYTES) as offloader:
        handle = offloader.open_segment(UUID_1, begin_of([PART]), NAMES)
        offer_all(handle)
        with pytest.raises(StoreUnavailableError, match=hook) as caught:
            handle.result().result(SOON_S)
        assert handle.failure is caught.value
        assert handle.offer_entry(1, len(PART.payloads), b"x") is CLOSED
        assert not handle.can_offer(1)
        assert kind == "fail-before" or leftovers(tmp_path) == set()  # of a store that answers
        offloader.delete_offloaded(UUID_1)  # what a begun upload leaves whose answer was lost
        assert leftovers(tmp_path) == set()
        again = offloader.open_segment(UUID(int=2), begin_of([PART]), NAMES)
        offer_all(again)
        assert again.result().result(SOON_S).blocks == BLOCKS
    assert read_back(tier, UUID(int=2), PART) == PART.payloads


@pytest.mark.parametrize("hook", ["abort_data", "list_uploads", "delete"])
def test_a_store_that_cannot_even_delete_is_told_of_and_the_first_error_counts(tmp_path, hook, caplog):
    tier = tier_with(tmp_path, f"fail-before write_index #1; fail-before {hook} #1")
    with caplog.at_level(logging.WARNING), offloader_of(tier, max_block_bytes=BLOCK_BYTES) as offloader:
        handle = offloader.open_segment(UUID_1, begin_of([PART]), NAMES)
        offer_all(handle)
        with pytest.raises(StoreUnavailableError, match="write_index"):
            handle.result().result(SOON_S)
        assert f"the attempt {UUID_1} could not be deleted: {hook} failed" in caplog.text
        offloader.delete_offloaded(UUID_1)
        assert leftovers(tmp_path) == set()


class Held:
    """Holds up the calls of one hook, before or after they are made; see `Points`."""

    def __init__(self, hook, *, after=False):
        self.gate, self._held = Gate(), (hook, after)

    def before(self, name):
        if self._held == (name, False):
            self.gate.hold()

    def after(self, name):
        if self._held == (name, True):
            self.gate.hold()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("hook", [hook for hook, _ in CALLS])
def test_a_segment_is_given_up_at_any_moment_and_nothing_is_left(tmp_path, hook, after):
    held = Held(hook, after=after)
    tier = Tier(LocalDriver(str(tmp_path)), [watched(held)])
    with offloader_of(tier, max_block_bytes=BLOCK_BYTES) as offloader:
        handle = offloader.open_segment(UUID_1, begin_of([PART]), NAMES)
        offer(handle, PART)
        handle.close()
        held.gate.wait_for()
        handle.abort()
        handle.abort()
        assert not handle.result().done()
        held.gate.open()
        with pytest.raises(UploadError, match="aborted"):
            handle.result().result(SOON_S)
        assert leftovers(tmp_path) == set()


def test_a_segment_that_is_given_up_before_its_first_block_asks_nothing_of_the_store(tmp_path):
    tier = tier_with(tmp_path, "fail-before any 100%")
    with offloader_of(tier) as offloader:
        handle = offloader.open_segment(UUID_1, EntryPosition(1, 0), NAMES)
        handle.offer_entry(1, 0, b"x")
        handle.abort()
        with pytest.raises(UploadError, match="aborted"):
            handle.result().result(SOON_S)


def test_offers_wait_neither_for_a_store_that_hangs_nor_for_memory(tmp_path):
    held = Held("write_block")
    tier = Tier(LocalDriver(str(tmp_path)), [watched(held)])
    payloads = [bytes([i % 251]) * 900 for i in range(200)]
    with offloader_of(tier, max_block_bytes=10_000) as offloader:
        handle = offloader.open_segment(UUID_1, EntryPosition(1, 0), NAMES)
        assert handle.offer_entries(1, EntryBatch.of(0, payloads)) == (200, OfferResult.ACCEPTED)
        handle.close()
        held.gate.wait_for()
        assert not handle.result().done()
        held.gate.open()
        assert handle.result().result(SOON_S).entries == 200
    assert read_back(tier, UUID_1, Part(ledger_id=1, payloads=payloads)) == payloads


@pytest.mark.sampled(10)
@pytest.mark.parametrize("turn", range(30))
def test_offers_race_with_the_end_of_their_segment(tmp_path, turn):
    """Closed or given up while others offer: what is accepted is there, or nothing is, and no memory stays taken."""
    tier = Tier(LocalDriver(str(tmp_path)))
    with offloader_of(tier, MemoryBudget(20_000), max_block_bytes=1000) as offloader:
        handle = offloader.open_segment(UUID_1, EntryPosition(1, 0), NAMES)
        enough = threading.Event()

        def end():
            assert enough.wait(SOON_S)
            (handle.abort if turn % 2 else handle.close)()

        ending = threading.Thread(target=end)
        ending.start()
        accepted = 0
        while (result := handle.offer_entry(1, accepted, b"%05d" % accepted)) is not CLOSED:
            accepted += result is OfferResult.ACCEPTED
            if accepted == turn * 5 + 1:
                enough.set()
        ending.join()
        if turn % 2:
            assert isinstance(handle.result().exception(SOON_S), UploadError)
            assert leftovers(tmp_path) == set()
        else:
            assert handle.result().result(SOON_S).entries == accepted
