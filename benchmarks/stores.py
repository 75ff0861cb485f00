"""Upload and reading of one object on a real S3 service on this machine, against the clients that others use.

The service, the peer and we share the machine. The service keeps its objects in memory where the machine has a file
system there (`/dev/shm`), because a disk would be what is measured. Blocks are 64 MiB, as Pulsar's.
"""

from __future__ import annotations

import json
import mmap
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import boto3
import obstore
import s3fs
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from obstore.store import S3Store
from servers.versitygw import Versitygw
from stores import s3_options

from benchmarks.measure import Result
from offload_core.format.codec.extent import LedgerExtent
from offload_core.format.codec.index import BlockTable, IndexedBlock, LedgerIndex
from offload_core.format.codec.ledger_metadata import LedgerInfo
from offload_core.format.codec.object_format import ObjectKey
from offload_core.reading.scan.windows import fetch_windows
from offload_core.storage.tier import Layer, MemoryBudget, Tier, open_store, upload_blocks
from offload_drivers.s3 import S3Driver
from offload_hooks import hookimpl

MIB = 1 << 20
KEY = ObjectKey(folder="", uuid=UUID(int=1), ledger_id=1, is_index=False)
IN_MEMORY = Path("/dev/shm")
BLOCK_BYTES = 64 * MIB
OBJECT_BYTES = 1 << 30
READ_BYTES = 512 * MIB
PARTS = 8
BUDGET_BYTES = 640 * MIB
LATENCY_S = 0.03
ROUNDS = 5
READERS = (1, 2, 4, 8)
OURS = "ours"
PEER = "obstore itself"


def run(folder: Path) -> Iterator[Result]:
    """Upload against s3fs and boto3, reading against obstore, with latency, and by many readers."""
    place = in_memory_where_it_can_be(folder)
    source = place / "ledger"
    with source.open("wb") as file:
        block = bytes(range(256)) * (MIB // 256)
        for _ in range(OBJECT_BYTES // MIB):
            file.write(block)
    try:
        with Versitygw().start(place / "server") as server:
            server.make_bucket("bench")
            yield from upload(server, source)
            yield from read(server)
            yield from readers(server)
    finally:
        shutil.rmtree(place)


def in_memory_where_it_can_be(folder: Path) -> Path:
    """A new folder in memory, or in `folder` where the system has no file system there."""
    return Path(
        tempfile.mkdtemp(prefix="offload-bench-", dir=IN_MEMORY if IN_MEMORY.is_dir() else folder)
    ).resolve()


def obstores_own(given: dict[str, str]) -> S3Store:
    """The same bucket as obstore's users open it; it takes these options by the same names but for one."""
    named = {name: value for name, value in given.items() if name != "endpoint_url"}
    return S3Store("bench", endpoint=given["endpoint_url"], **named, client_options={"allow_http": True})


def opened(server: Versitygw) -> Tier:
    """The tier."""
    return open_store("s3://bench/ours", **s3_options(server))


def upload(server: Versitygw, source: Path) -> Iterator[Result]:
    """A 1 GiB ledger in 64 MiB blocks, 8 at once, from a file in memory, which ours maps and the others read."""
    filesystem = s3fs.S3FileSystem(
        key=server.root.access_key,
        secret=server.root.secret_key,
        endpoint_url=server.endpoint,
        skip_instance_cache=True,
    )
    client = boto3.client(
        "s3",
        endpoint_url=server.endpoint,
        region_name=server.region,
        aws_access_key_id=server.root.access_key,
        aws_secret_access_key=server.root.secret_key,
        config=Config(s3={"addressing_style": "path"}),
    )
    transfer = TransferConfig(multipart_chunksize=BLOCK_BYTES, max_concurrency=PARTS)
    tier = opened(server)

    with source.open("rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def ours() -> None:
        upload_blocks(
            tier,
            KEY.data_key,
            (mapped[begin : begin + BLOCK_BYTES] for begin in range(0, OBJECT_BYTES, BLOCK_BYTES)),
            block_bytes=BLOCK_BYTES,
            total_bytes=OBJECT_BYTES,
            budget=MemoryBudget(BUDGET_BYTES),
            parts_in_flight=PARTS,
        )

    runs: dict[str, Callable[[], object]] = {
        "ours": ours,
        "s3fs": lambda: filesystem.put_file(
            str(source), "bench/s3fs", chunksize=BLOCK_BYTES, max_concurrency=PARTS
        ),
        "boto3": lambda: client.upload_file(str(source), "bench", "boto3", Config=transfer),
    }
    taken = side_by_side(runs)
    tier.close()
    client.close()
    fastest = min(("s3fs", "boto3"), key=lambda name: statistics.median(taken[name]))
    others = ", ".join(f"{name} {rate(OBJECT_BYTES, taken[name])}" for name in ("s3fs", "boto3"))
    yield Result(
        name=f"upload 1 GiB, 64 MiB blocks, 8 at once, against the faster ({fastest})",
        ours=rate(OBJECT_BYTES, taken["ours"]),
        peer=others,
        ratio=_median_ratio(taken[fastest], taken["ours"]),
        limit=1.0,
    )


def read(server: Versitygw) -> Iterator[Result]:
    """The whole object by ranges ahead, as a scan fetches it, without and with latency."""
    size = READ_BYTES
    peer = obstores_own(s3_options(server))
    tier = opened(server)
    step = tier.describe().capabilities.range_bytes
    starts = range(0, size, step)
    driver = S3Driver(bucket="bench", prefix="ours", **s3_options(server))
    delayed = Tier(driver, [Layer(name="delay", make=DelayLayer)])
    runs: dict[str, Callable[[], object]] = {
        "ours": lambda: fetch(tier, size),
        "whole": lambda: obstore.get_range(peer, f"ours/{KEY.data_key}", start=0, length=size),
        "ranges": lambda: obstore.get_ranges(
            peer, f"ours/{KEY.data_key}", starts=list(starts), lengths=[step] * len(starts), coalesce=0
        ),
        "delayed": lambda: fetch(delayed, size),
    }
    taken = side_by_side(runs)
    best = min(("whole", "ranges"), key=lambda name: statistics.median(taken[name]))
    yield Result(
        name=f"scan's ranges of one object, against obstore's best ({best})",
        ours=rate(size, taken["ours"]),
        peer=rate(size, taken[best]),
        ratio=_median_ratio(taken[best], taken["ours"]),
        limit=0.8,
    )
    yield Result(
        name="the same, 30 ms added to each request, against none added",
        ours=rate(size, taken["delayed"]),
        peer=rate(size, taken["ours"]),
        ratio=_median_ratio(taken["ours"], taken["delayed"]),
        limit=0.7,
    )
    tier.close()
    delayed.close()


def readers(server: Versitygw) -> Iterator[Result]:
    """Processes that read one object at the same time, each all of it, by ours and by obstore itself."""
    rates = {kind: {count: list[float]() for count in READERS} for kind in (OURS, PEER)}
    for _ in range(ROUNDS):
        for kind, by_count in rates.items():
            for count, measured in by_count.items():
                seconds = _seconds_of_readers(_reader_command(server, kind), count)
                measured.append(count * READ_BYTES / seconds)
    one, all_ = READERS[0], READERS[-1]
    ours, peers = rates[OURS], rates[PEER]
    yield Result(
        name=f"{all_} readers of one object at once, all together against one of them",
        ours=_in_mib(ours),
        peer=_in_mib({one: ours[one]}),
        ratio=_median_ratio(ours[all_], ours[one]),
    )
    yield Result(
        name=f"the same against {all_} readers by obstore itself",
        ours=_in_mib(ours),
        peer=_in_mib(peers),
        ratio=_median_ratio(ours[all_], peers[all_]),
        limit=0.8,
    )


def _in_mib(rates: dict[int, list[float]]) -> str:
    medians = {count: statistics.median(measured) / MIB for count, measured in rates.items()}
    return ", ".join(f"{count}: {median:,.0f}" for count, median in medians.items()) + " MiB/s"


def _median_ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=True))


def _seconds_of_readers(command: list[str], count: int) -> float:
    """From the word to go until each of so many readers has read the object."""
    began = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    for process in began:
        _await(process, "ready")
    start = time.perf_counter()
    for process in began:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in began:
        _await(process, "done")
    seconds = time.perf_counter() - start
    for process in began:
        process.communicate()
    return seconds


def _await(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout
    if process.stdout.readline().strip() != word:
        raise RuntimeError(f"a reader ended before it was {word}")


def _reader_command(server: Versitygw, kind: str) -> list[str]:
    code = f"from benchmarks.stores import work; work({json.dumps(kind)}, {json.dumps(s3_options(server))})"
    return [sys.executable, "-c", code]


def work(kind: str, given: dict[str, str]) -> None:
    """One reader: read a little, say so, wait for a line, read the whole object."""
    with ExitStack() as stack:
        if kind == PEER:
            store = obstores_own(given)

            def read(size: int) -> object:
                return obstore.get_range(store, f"ours/{KEY.data_key}", start=0, length=size)

        else:
            tier = stack.enter_context(open_store("s3://bench/ours", **given))

            def read(size: int) -> object:
                return fetch(tier, size)

        read(8 * MIB)
        print("ready", flush=True)
        sys.stdin.readline()
        read(READ_BYTES)
        print("done", flush=True)


def fetch(tier: Tier, size: int) -> None:
    """The first `size` bytes of the object, in the windows of a scan."""
    block = IndexedBlock(part_number=1, offset=0, length=size, first_entry_id=0, end_entry_id=1)
    extent = LedgerExtent(
        key=KEY,
        ledger=LedgerIndex(ledger_id=1, metadata=LedgerInfo(ledger_id=1), blocks=BlockTable.of([block])),
    )
    got = sum(len(window.data) for window in fetch_windows(tier, [extent]))
    if got != size:
        raise AssertionError(f"{got} bytes instead of {size}")


class DelayLayer:
    """30 ms before each range, as a far store has them."""

    def __init__(self, rest: object) -> None:
        del rest

    @hookimpl(wrapper=True)
    def read_range(self):  # type: ignore[no-untyped-def]
        """See `TierHooks`."""
        time.sleep(LATENCY_S)
        return (yield)


def side_by_side(runs: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Seconds of each, in turn, round by round; the first round is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS + 1):
        for name, call in runs.items():
            began = time.perf_counter()
            call()
            taken[name].append(time.perf_counter() - began)
    return {name: seconds[1:] for name, seconds in taken.items()}


def rate(size: int, seconds: list[float]) -> str:
    """Median rate as text."""
    return f"{size / MIB / statistics.median(seconds):,.0f} MiB/s"
