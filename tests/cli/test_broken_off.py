"""What is broken off in the middle never ends with 0, and the next call goes on: over all commands that take long."""

import os
import re
import signal
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest
from scenes.exports import ORDERS, parquet_rows, scanned, two_partitions

from offload_core.interfaces.cli.interruption import ENDS_WITHIN_S
from offload_core.metadata.stores import open_metadata_store

pytestmark = pytest.mark.long

STALLING = """
import os
import signal
import sys
import threading
import time
import types

signal.signal(signal.SIGINT, signal.default_int_handler)  # also where these tests run in the background
from offload_core.interfaces.cli.main import main
from offload_core.storage.tier import Tier

begun, go, count = sys.argv[1], sys.argv[2], threading.Semaphore(int(sys.argv[3]))
lock = threading.Lock()
was_told = False

def stalled(name):
    make = getattr(Tier, name)
    def call(self, *arguments, **named):
        global was_told
        if not count.acquire(blocking=False):
            with lock:
                tells, was_told = not was_told, True
            if tells:
                os.close(os.open(begun, os.O_WRONLY))
            while not os.path.exists(go):  # an open of a pipe may begin just after the signal, and wait for ever
                time.sleep(0.01)
        return make(self, *arguments, **named)
    setattr(Tier, name, call)

for name in ("stat", "read_range", "read_ranges"):
    stalled(name)
sys.argv = ["offload", *sys.argv[4:]]
main()
"""

COMMANDS = {
    "export": ["export", "{tier}", "-t", ORDERS, "--to", "{folder}/out", "--file-bytes=2048", "--workers=1"],
    "export --follow": [
        *("export", "{tier}", "-t", ORDERS, "--to", "{folder}/out", "--file-bytes=2048", "--workers=1"),
        *("--follow", "--interval", "3600"),
    ],
    "cat": ["cat", "{tier}", "-t", ORDERS, "--format", "jsonl"],
    "verify": ["verify", "{tier}", "--deep"],
    "repair": ["repair", "{tier}"],
    "gc": [
        *("gc", "{tier}", "--records", "sqlite:{folder}/records.db", "--not-shared"),
        *("--grace", "0", "--accept-short-grace", "--clock-skew", "1d"),
    ],
    "recover": [
        *("recover", "{tier}", "--into", "sqlite:{folder}/records.db", "--yes", "--audit-log", "{folder}/log")
    ],
    "relocate": ["relocate", "{tier}", "--to", "{folder}/moved", "--yes", "--audit-log", "{folder}/log"],
}

STALLS_AT = {"export": 12, "export --follow": 12}
"""How many calls of the tier are made before; others stop at the third."""

AFTERWARDS = {"gc": 1}
"""The exit code of the next call, whole; of a dry run that finds something."""


@pytest.fixture
def tier(tmp_path):
    with closing(open_metadata_store(f"sqlite:{tmp_path}/records.db", {"create": True})) as store:
        store.put("/managed-ledgers/acme/cold/persistent/other", b"", None)
    return two_partitions(tmp_path / "tier")


@contextmanager
def stalled(folder, calls, arguments):
    """The command in the middle of its work; it goes on when the block ends."""
    begun, go = folder / "begun", folder / "go"
    os.mkfifo(begun)
    command = [sys.executable, "-c", STALLING, str(begun), str(go), str(calls), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with begun.open():  # it is there
        yield process


@pytest.mark.sampled(16)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_broken_off_does_not_end_with_0_and_the_next_call_goes_on(
    offload, tier, tmp_path, name, number
):
    given = [each.format(tier=tier, folder=tmp_path) for each in COMMANDS[name]]
    with stalled(tmp_path, STALLS_AT.get(name, 2), given) as process:
        process.send_signal(number)
        if name.startswith("export"):
            assert process.stderr.readline().startswith(
                "ending after what is under way; once more to break off. expo"
            )
        elif number == signal.SIGINT:
            process.wait(timeout=ENDS_WITHIN_S + 3)  # what does not answer is left alone
    (tmp_path / "go").touch()
    out, err = process.communicate(timeout=120)
    ways = (130,) if number == signal.SIGINT else (143, -signal.SIGTERM)
    assert process.returncode in ways, (out, err)
    if number == signal.SIGINT:
        assert err.endswith("offload: interrupted\n")
        assert re.search(r"^offload: broken off\. \w+: .*\d s", err, re.M) or name.startswith("export")
    if name.startswith("export"):
        assert process.returncode == 128 + number
        assert "the next export goes on from there" in err
    again = offload(*(each for each in given if each not in ("--follow", "--interval", "3600")))
    assert again.code == AFTERWARDS.get(name, 0), again.err
    if name.startswith("export"):
        assert parquet_rows(tmp_path / "out") == scanned(tier)


def test_an_export_that_fails_says_how_to_go_on(offload, tier, tmp_path):
    given = [each.format(tier=tier, folder=tmp_path) for each in COMMANDS["export"]]
    data = max(path for path in tier.iterdir() if re.search(r"-ledger-\d+$", path.name))
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    whole = data.read_bytes()
    data.write_bytes(content)
    failed = offload(*given)
    assert failed.code == 1
    assert "the next export goes on from there" in failed.err
    data.write_bytes(whole)
    assert offload(*given).code == 0
    assert parquet_rows(tmp_path / "out") == scanned(tier)
