"""Blocks that another process writes: as a driver's own, whatever becomes of either process."""

from __future__ import annotations

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import psutil
import pytest
from tiers import Folder

from offload_core.storage.tier import (
    PluginSpec,
    Tier,
    TierSpec,
    UploadProcess,
    UploadTimeouts,
    open_with_upload_process,
    upload_blocks,
)
from offload_core.storage.tier.upload_process import SharedMemory, UploadingDriver
from offload_drivers.local import LocalDriver
from offload_hooks import Upload
from offload_hooks.errors import (
    BrokenPluginError,
    OptionError,
    StoreError,
    StoreUnavailableError,
    UploadError,
)
from offload_hooks.testing.cases.committing import CommittingCases
from offload_hooks.testing.cases.uploading import UploadingCases
from offload_hooks.testing.conformance import ProcessCases, SequenceCases
from offload_hooks.testing.forks import in_forked_child
from offload_hooks.testing.threads import together

pytestmark = pytest.mark.long

DEADLINE_S = 60

STALLING = """
    import os
    import signal
    import threading
    from pathlib import Path
    from offload_drivers.local import LocalDriver
    from offload_hooks import hookimpl
    from offload_hooks.errors import StoreError, StoreUnavailableError

    class OfTwo(StoreUnavailableError):
        def __init__(self, first, second):
            super().__init__(first + second)

    class WithoutText(StoreError):
        def __str__(self):
            raise RuntimeError("no text")
        def __reduce__(self):
            raise SystemExit(4)

    def fail(kind, key):
        if kind == b"lock":
            raise StoreError("the store said no", key=key, found=threading.Lock())
        if kind == b"two!":
            raise OfTwo("one", "two")
        if kind == b"long":
            raise StoreError("said at length", key=key, found="x" * 1_000_000)
        if kind == b"none":
            raise WithoutText("what")
        if kind == b"exit":
            raise SystemExit(3)
        if kind == b"wait":
            threading.Event().wait()

    class Driver(LocalDriver):
        @hookimpl
        def write_block(self, upload, part_number, offset, data):
            fail(bytes(data[:4]), upload.key)
            if bytes(data[:4]) == b"odd!":
                raise RuntimeError("a fault of its own")
            told = Path(self._root).parent / "dies"
            if bytes(data[:4]) == b"die!" and not told.exists():
                told.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().write_block(upload, part_number, offset, data)
"""

UPLOADS_AND_WAITS = """
import sys
from offload_core.storage.tier import TierSpec
from offload_core.storage.tier.upload_process import UploadProcess
from offload_hooks import Upload
from offload_drivers.local import LocalDriver

root = sys.argv[1]
uploads = UploadProcess(TierSpec(driver="local", options={"root": root}))
upload = LocalDriver(root).begin_data("key", "application/octet-stream", {})
uploads.write_block(upload, 1, 0, b"block")
print(uploads.process_id, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def spec(tmp_path):
    return TierSpec(driver="local", options={"root": str(tmp_path / "tier")})


@pytest.fixture
def faulty(install, module_name, spec):
    """A driver that is killed by its first block that says so, and fails by one that says so."""
    install(
        "faulty-driver",
        {"pulsar_offload.drivers": {"faulty": f"{module_name}:Driver"}},
        {module_name: STALLING},
    )
    return TierSpec(driver="faulty", options=spec.options)


@pytest.mark.sampled(6)
class TestUploadingDriver(SequenceCases, ProcessCases, CommittingCases, UploadingCases):
    """What drivers promise of blocks and of what is made of them."""

    max_examples = 10

    @pytest.fixture
    def make_driver(self, spec, tmp_path):
        uploads = UploadProcess(spec)
        yield lambda: UploadingDriver(LocalDriver(tmp_path / "tier"), uploads)
        uploads.close()

    @pytest.fixture
    def back_door(self, tmp_path):
        return Folder(tmp_path / "tier")


def opened(spec):
    return open_with_upload_process(spec, UploadProcess(spec))


def content(size):
    return random.Random(size).randbytes(size)


def test_an_object_of_many_blocks_is_what_was_sent(spec):
    blocks = [content(size) for size in (70_000, 1, 4096, 4097, 2, 123_457)]
    with opened(spec) as tier:

        def made():
            for i, block in enumerate(blocks):
                if i % 2:
                    yield block
                    continue
                own = tier.new_block(len(block) + 10)
                own[: len(block)] = np.frombuffer(block, dtype=np.uint8)
                yield own.data[: len(block)]

        stored = upload_blocks(tier, "key", made(), block_bytes=200_000)
        assert stored.size_bytes == sum(map(len, blocks))
        assert bytes(tier.read_range("key", 0, stored.size_bytes)) == b"".join(blocks)


def test_the_process_has_a_lower_priority(spec):
    uploads = UploadProcess(spec, niceness=3)
    assert uploads.process_id is None
    upload = LocalDriver(spec.options["root"]).begin_data("key", "text/plain", {})
    uploads.write_block(upload, 1, 0, b"block")
    assert uploads.process_id is not None
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    assert psutil.Process(uploads.process_id).nice() == min(ours + 3, 19)
    uploads.close()
    assert uploads.process_id is None
    uploads.close()


@pytest.mark.parametrize("niceness", [-1, 20])
def test_a_niceness_that_there_is_not_is_refused(spec, niceness):
    with pytest.raises(OptionError, match="niceness"):
        UploadProcess(spec, niceness=niceness)


def test_the_drivers_errors_come_through(faulty):
    with opened(faulty) as tier:
        with pytest.raises(UploadError) as gone:
            tier.write_block(Upload(key="key", upload_id="unknown"), 1, 0, b"block")
        assert gone.value.key == "key"
        upload = tier.begin_data("key")
        with pytest.raises(BrokenPluginError, match="RuntimeError"):
            tier.write_block(upload, 1, 0, b"odd!")


def test_a_killed_process_is_a_store_that_is_not_there_now(faulty):
    with opened(faulty) as tier:
        upload = tier.begin_data("key")
        first = tier.write_block(upload, 1, 0, b"fine")
        with pytest.raises(StoreUnavailableError, match="has ended"):
            tier.write_block(upload, 2, 4, b"die!")
        second = tier.write_block(upload, 2, 4, b"die!")
        tier.commit_data(upload, [first, second])
        assert bytes(tier.read_range("key", 0, 8)) == b"finedie!"


@pytest.mark.parametrize(
    ("block", "kind", "text"),
    [
        (b"lock", StoreError, "the store said no"),
        (b"two!", StoreUnavailableError, "OfTwo: onetwo"),
        (b"long", StoreError, "said at length"),
        (b"none", StoreError, "WithoutText"),
        (b"exit", BrokenPluginError, "SystemExit"),
    ],
)
def test_an_error_that_cannot_be_sent_comes_by_its_type_and_text(faulty, block, kind, text):
    with opened(faulty) as tier:
        upload = tier.begin_data("key")
        with pytest.raises(kind, match=text) as failed:
            tier.write_block(upload, 1, 0, block)
        assert type(failed.value) is kind
        assert len(str(failed.value)) < 2000
        assert tier.write_block(upload, 1, 0, b"fine").length == 4  # by the same process


def test_a_process_that_stands_still_is_killed_and_replaced(spec):
    uploads = UploadProcess(spec, timeouts=UploadTimeouts(silence_s=3))
    with open_with_upload_process(spec, uploads) as tier:
        upload = tier.begin_data("key")
        first = tier.write_block(upload, 1, 0, b"one")
        assert uploads.process_id is not None
        stopped = psutil.Process(uploads.process_id)
        descriptors = psutil.Process().num_fds()
        stopped.suspend()
        with ThreadPoolExecutor(8) as pool:
            places = [3 + 3 * number for number in range(8)]
            answers = [pool.submit(tier.write_block, upload, at // 3 + 1, at, b"two") for at in places]
            receipts = [each.result(DEADLINE_S) for each in answers]
        assert not stopped.is_running()
        assert uploads.process_id not in (None, stopped.pid)
        tier.commit_data(upload, [first, *receipts])
        assert bytes(tier.read_range("key", 0, 27)) == b"one" + b"two" * 8
        assert psutil.Process().num_fds() <= descriptors


def test_a_process_that_never_answers_to_a_block_is_killed(faulty):
    uploads = UploadProcess(faulty, timeouts=UploadTimeouts(block_s=1))
    with open_with_upload_process(faulty, uploads) as tier:
        upload = tier.begin_data("key")
        with pytest.raises(StoreUnavailableError, match="did not answer for 1 s"):
            tier.write_block(upload, 1, 0, b"wait")
        assert uploads.process_id is None
    with opened(faulty) as tier:
        assert tier.write_block(tier.begin_data("key"), 1, 0, b"fine").length == 4


def test_the_retry_layer_goes_on_with_another_process(faulty):
    layers = (PluginSpec(name="retry", options={"first_wait_s": 0.01, "jitter_s": 0}),)
    spec = TierSpec(driver=faulty.driver, options=faulty.options, layers=layers)
    with opened(spec) as tier:
        blocks = [b"die!" + content(1000 + i) for i in range(10)]
        stored = upload_blocks(tier, "key", blocks, block_bytes=2000)
        assert bytes(tier.read_range("key", 0, stored.size_bytes)) == b"".join(blocks)


def test_the_process_ends_with_the_one_that_started_it(tmp_path):
    command = [sys.executable, "-c", UPLOADS_AND_WAITS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        child = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    psutil.wait_procs([child], timeout=DEADLINE_S)
    assert not child.is_running()


def test_a_forked_child_writes_its_blocks_itself(spec):
    with opened(spec) as tier:
        upload_blocks(tier, "ours", [b"ours"], block_bytes=10)
        block = tier.new_block(4)

        def work():
            assert tier.new_block(4) is not None
            upload_blocks(tier, "theirs", [b"theirs"], block_bytes=10)
            tier.close()

        in_forked_child(work, DEADLINE_S)
        block[:] = np.frombuffer(b"last", dtype=np.uint8)
        upload_blocks(tier, "again", [block.data], block_bytes=10)
        assert [bytes(tier.read_range(key, 0, 4)) for key in ("ours", "theirs", "again")] == [
            b"ours",
            b"thei",
            b"last",
        ]


def test_a_pickled_tier_writes_its_blocks_itself(spec):
    with opened(spec) as tier:
        again = pickle.loads(pickle.dumps(tier))
        assert type(again) is Tier
        upload_blocks(again, "key", [b"block"], block_bytes=10)
        assert tier.stat("key").size_bytes == 5


def test_a_block_larger_than_the_shared_memory_is_refused(spec):
    uploads = UploadProcess(spec, shared_bytes=10_000)
    with open_with_upload_process(spec, uploads) as tier:
        upload = tier.begin_data("key")
        with pytest.raises(OptionError, match="larger than the memory"):
            tier.write_block(upload, 1, 0, bytes(20_000))
        assert len(tier.new_block(20_000)) == 20_000
        tier.abort_data(upload)


def test_blocks_wait_for_room_in_the_shared_memory(spec):
    uploads = UploadProcess(spec, shared_bytes=2 * 4096)
    blocks = [content(4096 - i) for i in range(40)]
    with open_with_upload_process(spec, uploads) as tier:
        stored = upload_blocks(tier, "key", blocks, block_bytes=4096, parts_in_flight=6)
        assert bytes(tier.read_range("key", 0, stored.size_bytes)) == b"".join(blocks)
        assert uploads.memory.used_bytes == 0


def test_memory_comes_back_when_a_block_and_its_views_are_gone():
    memory = SharedMemory(3 * 4096)
    first, second = memory.new_block(4096), memory.new_block(5000)
    assert second is not None
    assert memory.new_block(1) is None
    view = first[10:20].data
    del first
    assert memory.used_bytes == 3 * 4096
    del view
    assert memory.used_bytes == 2 * 4096
    third = memory.new_block(4096)
    assert memory.place_of(third.data) == 0
    assert memory.place_of(second.data) == 4096
    assert memory.place_of(b"elsewhere") is None
    del second, third
    assert memory.used_bytes == 0
    whole = memory.new_block(3 * 4096)
    assert not whole.any()  # its pages went back to the system


def test_whoever_waits_for_room_gets_it():
    memory = SharedMemory(4096)
    block = memory.new_block(1)
    got: list[object] = []
    waiting = threading.Thread(target=lambda: got.append(memory.new_block(1, wait=True)))
    waiting.start()
    assert not got
    del block
    waiting.join(DEADLINE_S)
    assert len(got) == 1


def test_blocks_of_many_threads_never_share_a_byte():
    memory = SharedMemory(40 * 4096)

    def work(seed):
        rng = random.Random(seed)
        held = []
        for _ in range(300):
            block = memory.new_block(rng.randrange(1, 20_000))
            if block is not None:
                block[:] = seed
                held.append(block)
            if held and rng.random() < 0.6:
                taken = held.pop(rng.randrange(len(held)))
                assert (taken == seed).all()

    together([partial(work, seed) for seed in range(1, 7)], DEADLINE_S)
    assert memory.used_bytes == 0
