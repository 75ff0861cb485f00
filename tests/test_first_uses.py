"""What is found, imported or made at its first use, used first by many threads at once: each in a fresh process."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest
from entries import CODECS, batch_entry, pip17_object
from tiers import TOPIC, lay_out

from offload_core.format.messages import payload_opener as decompressors

THREADS = 16

TOGETHER = f"""
import sys, threading, time
sys.setswitchinterval(1e-5)

def at_once(use):
    \"\"\"What each of many threads got, or raised, that called this at the same moment.\"\"\"
    start, got = threading.Barrier({THREADS}), [None] * {THREADS}

    def run(number):
        start.wait()
        try:
            got[number] = use(number)
        except BaseException as error:
            got[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range({THREADS})]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    wrong = [each for each in got if isinstance(each, BaseException)]
    if wrong:
        raise wrong[0]
    return got
"""

DECOMPRESS = """
import pickle
entries = pickle.load(sys.stdin.buffer)

def use(_):
    from offload_core.format.messages.payload_opener import decompress_payloads
    import numpy as np
    block = np.frombuffer(b"".join(data for _, data, _ in entries), np.uint8)
    codecs, lengths, sizes = (np.array(each, np.int64) for each in zip(*((a, len(b), c) for a, b, c in entries)))
    out = np.empty(sizes.sum(), np.uint8)
    starts, places = np.cumsum(lengths) - lengths, np.cumsum(sizes) - sizes
    left = decompress_payloads(block, starts, lengths, codecs, out, places, sizes)
    return len(left), bytes(out[:9])

print(set(at_once(use)))
"""

READ = """
def use(_):
    from pulsar_offload import open_tier, scan
    with open_tier(sys.argv[1]) as tier:
        table = scan(tier, sys.argv[2], isolation="uncommitted").to_table()
    return table.num_rows, hash(tuple(table["value"].to_pylist()))

print(len(set(at_once(use))), use(0)[0])
"""

FORK = """
import contextlib, os, signal
from offload_core.metadata.stores import sqlite

class Store:
    at_rest = contextlib.nullcontext

stores = [Store() for _ in range(16)]
at_once(lambda number: sqlite._forks.add(stores[number]))
signal.alarm(60)  # a fork that waits for itself
child = os.fork()
if not child:
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

SAME_BOOT = """
from pathlib import Path
from offload_core.storage.hot import file_calls
file_calls._LINUX, file_calls._MACOS = Path("/nonexistent"), ["/nonexistent"]
print(len(set(at_once(lambda _: file_calls.boot_identity()))))
"""

ONE_USER = """
import os
os.environ.pop("HADOOP_USER_NAME", None)
from offload_drivers.hdfs import connection
from offload_hooks.errors import OptionError

def use(number):
    try:
        connection._take_user(f"user {number}")
    except OptionError:
        return None
    return f"user {number}"

users = set(at_once(use)) - {None}
print(len(users), users == {os.environ["HADOOP_USER_NAME"]})
"""


def run(program, *arguments, data=b""):
    done = subprocess.run(
        [sys.executable, "-c", TOGETHER + program, *arguments],
        input=data,
        capture_output=True,
        check=False,
        timeout=300,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


def run_often(times, program, *arguments, data=b""):
    """What so many fresh processes print."""
    with ThreadPoolExecutor(2) as pool:
        return set(pool.map(lambda _: run(program, *arguments, data=data), range(times)))


@pytest.fixture(scope="module")
def tier(tmp_path_factory):
    """A ledger whose entries are compressed in every way."""
    place = tmp_path_factory.mktemp("tier")
    payloads = [batch_entry([b"value" * 20] * 3, compression=codec) for codec in CODECS for _ in range(20)]
    lay_out(place, pip17_object(payloads))
    return place


PAYLOADS = pickle.dumps(
    [(codec, CODECS[codec](b"offloaded" * 50), 450) for codec in (1, 2, 3) for _ in range(5)]
)
CASES = [
    pytest.param(DECOMPRESS, PAYLOADS, {"{(0, b'offloaded')}"}, id="decompression"),
    pytest.param(READ, b"", {"1 300"}, id="a read"),
    pytest.param(FORK, b"", {"7"}, id="a fork after stores were opened"),
    pytest.param(SAME_BOOT, b"", {"1"}, id="the identity of a machine that does not tell one"),
    pytest.param(ONE_USER, b"", {"1 True"}, id="the user of HDFS"),
]


@pytest.mark.long
@pytest.mark.sampled(4)
@pytest.mark.parametrize(("program", "data", "expected"), CASES)
def test_threads_may_be_first_together(program, data, expected, tier):
    assert run_often(3, program, str(tier), TOPIC, data=data) == expected


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("program", "data", "expected"), CASES)
def test_threads_may_be_first_together_in_a_hundred_processes(program, data, expected, tier):
    assert run_often(100, program, str(tier), TOPIC, data=data) == expected


def test_functions_are_found_while_another_thread_imports_their_module(monkeypatch):
    """It is among the modules then, and does not tell yet where it came from."""
    importlib.import_module("lz4.block")
    unfinished = ModuleType("lz4.block._block")
    assert unfinished.__spec__ is None
    monkeypatch.setitem(sys.modules, "lz4.block._block", unfinished)
    assert decompressors._lz4.__wrapped__() is not None
