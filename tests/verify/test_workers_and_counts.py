"""Who does the work of a verification, what is counted, and when it gives up an object."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from damage import SCENES, Scene
from damage.scenes import (
    LEDGER,
    PAYLOADS,
    in_memory_tier,
    one_ledger,
    streaming,
)
from entries import batch_entry, entry, pip17_object
from tiers import MANAGED_LEDGER, lay_out

from offload_core.maintenance.verify import Code, Finding, Severity, Verification
from offload_core.storage.executors import ProcessExecutor, ThreadExecutor
from offload_core.storage.tier import Tier, open_store
from offload_hooks import hookimpl
from offload_hooks.testing import MemoryDriver, MemoryTier
from offload_hooks.values import Capabilities
from offload_proto.messages_pb2 import BrokerEntryMetadata


def test_an_object_of_which_very_much_is_wrong_is_given_up() -> None:
    scene = Scene()
    scene.add(pip17_object([entry(b"%04d" % i) for i in range(300)], ledger_id=LEDGER), 0)
    for i in range(300):
        scene.flip(scene.key(), scene.frame(i) + 20)
    found = scene.findings()
    assert [each.code for each in found] == [Code.MESSAGE_CHECKSUM] * 100 + [Code.MORE]
    assert [each.entry_id for each in found[:100]] == list(range(100))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("entry_id", [2**63 - 2, 2**63 - 1])
def test_an_id_that_no_entry_can_have_ends_its_block(entry_id: int) -> None:
    """Where ids may be missing, any id that is greater is one."""
    scene = SCENES["filtered"]()
    scene.set(scene.key(), "q", 128 + 4, entry_id)
    assert {each.code for each in scene.findings()} == {Code.ENTRY_WRONG_ID}


@pytest.mark.timeout(60)
def test_a_block_that_by_its_index_begins_with_such_an_id_ends_there() -> None:
    scene = streaming(records=False)
    index = scene.objects[scene.index_key(1)].data
    at = index.rindex(struct.pack(">qi", 3, 3))  # ledger 8's last block
    scene.set(scene.index_key(1), "q", at, 2**63 - 1)
    assert {Code.BLOCK_WRONG_FIRST_ENTRY, Code.ENTRY_WRONG_ID} <= {each.code for each in scene.findings()}


def test_what_was_looked_at_is_counted() -> None:
    scene = SCENES["no-checksums"]()
    scene.add(one_ledger(), 3)
    verification = scene.verification(deep=True)
    assert [each.code for each in verification] == [Code.COPIES_DIFFER]
    summary = verification.summary
    assert (summary.objects, summary.deep_objects, summary.entries) == (2, 2, 2 + len(PAYLOADS))
    assert summary.unchecked_entries == 2
    assert summary.object_bytes == sum(len(stored.data) for stored in scene.objects.values())
    assert (summary.count(Severity.ERROR), summary.count(Severity.WARNING)) == (1, 0)


def test_entries_with_a_brokers_metadata_have_their_checksum_behind_it() -> None:
    broker = BrokerEntryMetadata(broker_timestamp=1, index=5)
    scene = Scene()
    payloads = [entry(b"x", broker=broker), entry(b"y", broker=broker, checksum=False), batch_entry([b"z"])]
    scene.add(pip17_object(payloads, ledger_id=LEDGER), 0)
    verification = scene.verification(deep=True)
    assert list(verification) == []
    assert verification.summary.unchecked_entries == 1


def test_an_entry_that_its_windows_cut_in_its_length_is_verified() -> None:
    window = 2 << 20
    payloads = [
        entry(b"x" * (window - 5 - 128 - 12 - len(entry(b"")))),
        entry(b"y" * (window - 500_000)),
        entry(b"z"),
    ]
    assert 128 + 12 + len(payloads[0]) == window - 5
    scene = Scene()
    scene.add(pip17_object(payloads, ledger_id=LEDGER, max_block_bytes=1 << 23), 0)

    class ReadsCopies(MemoryDriver):
        """What stands in memory before a window is nothing of the object."""

        @hookimpl
        def read_range(self, key: str, offset: int, length: int) -> bytes:
            return bytes(bytearray(super().read_range(key, offset, length)))

    def findings(ranges_ahead: int) -> list[Finding]:
        capabilities = Capabilities(range_bytes=window, ranges_ahead=ranges_ahead)
        return list(Verification(Tier(ReadsCopies(in_memory_tier(scene.objects), capabilities)), deep=True))

    assert findings(0) == findings(4) == []
    scene.flip(scene.key(), scene.frame(2) + 20)
    (finding,) = findings(4)
    assert (finding.code, finding.entry_id) == (Code.MESSAGE_CHECKSUM, 2)


@pytest.mark.parametrize("executor", [ThreadExecutor(3), ProcessExecutor(1)], ids=["threads", "processes"])
def test_threads_and_processes_find_the_same(
    tmp_path: Path, executor: ThreadExecutor | ProcessExecutor
) -> None:
    for attempt in range(3):
        written = pip17_object(PAYLOADS, ledger_id=LEDGER + attempt)
        damaged = written.data[:-3] + b"!" + written.data[-2:]
        lay_out(tmp_path, replace(written, data=damaged) if attempt == 1 else written, attempt=attempt)
    with open_store(tmp_path) as tier:
        found = list(Verification(tier, deep=True, executor=executor))
    assert [(each.code, each.ledger_id, each.entry_id) for each in found] == [
        (Code.MESSAGE_CHECKSUM, LEDGER + 1, len(PAYLOADS) - 1)
    ]


def test_many_objects_are_listed_some_at_a_time() -> None:
    scene = Scene()
    written = pip17_object([b"x"], ledger_id=LEDGER)
    for number in range(2500):
        scene.add(written, number)
        key = scene.written[-1].key
        for name in (key.data_key, key.index_key):
            scene.objects[name].metadata["managedledgername"] = f"{MANAGED_LEDGER}-{number}"
    verification = scene.verification(deep=False)
    assert (list(verification), verification.summary.objects) == ([], 2500)


def test_findings_are_given_as_objects_are_looked_at() -> None:
    """Also of objects whose indexes cannot be read: there may be any number of them."""
    scene = Scene()
    for number in range(3):
        scene.add(one_ledger(), number)
        scene.cut(scene.index_key(number), 10)
    verification = scene.verification(deep=False)
    found = next(iter(verification))
    assert (found.code, verification.summary.objects) == (Code.INDEX_TRUNCATED, 1)


class Noting(MemoryDriver):
    """It notes the keys that are read, in their order."""

    def __init__(self, tier: MemoryTier) -> None:
        super().__init__(tier, Capabilities())
        self.read: list[str] = []

    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> bytes:
        self.read.append(key)
        return bytes(super().read_range(key, offset, length))


def test_indexes_wait_for_their_data_up_to_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    for number in range(30):
        scene.add(pip17_object([b"x"], ledger_id=number), number)
    index_bytes = len(scene.objects[scene.index_key()].data)
    monkeypatch.setattr("offload_core.maintenance.verify.verification.INDEX_BYTES_AT_ONCE", 5 * index_bytes)
    driver = Noting(in_memory_tier(scene.objects))
    assert list(Verification(Tier(driver), deep=True, executor=ThreadExecutor(1))) == []
    waiting, most = 0, 0
    for key in driver.read:
        waiting += 1 if key.endswith("-index") else -1
        most = max(most, waiting)
    assert (waiting, 5 <= most <= 8) == (0, True)
