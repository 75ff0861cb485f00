"""`offload export` as a process of its own: followed, ended by signals, killed, and seen on a terminal."""

import contextlib
import os
import re
import signal
import subprocess
import time

import psutil
import pytest
from commands import COMMAND
from scenes.exports import ORDERS, add_ledger, messages, parquet_files, parquet_rows, scanned, two_partitions


@pytest.fixture
def tier(tmp_path):
    return two_partitions(tmp_path / "tier")


@contextlib.contextmanager
def started(tier, out, *more):
    """An export in a process group of its own, killed in the end if it is still there."""
    command = [str(COMMAND), "export", str(tier), "-t", ORDERS, "--to", str(out), *more]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with process:  # closes its pipe
            pass


def wait_for_files(process, out, count):
    while len(parquet_files(out)) < count:
        assert process.poll() is None
        time.sleep(0.01)  # a loop that only looks takes a processor from what it waits for


@pytest.mark.long
@pytest.mark.sampled(8)
@pytest.mark.parametrize("workers", ["--workers=2", "--processes"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_follow_ends_cleanly_by_a_signal(number, workers, tier, tmp_path):
    out = tmp_path / "out"
    with started(tier, out, "--follow", "--interval", "3600", workers) as process:
        wait_for_files(process, out, 4)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal's Ctrl-C: to the workers as well
        else:
            process.send_signal(number)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "64 rows in 4 files" in said
    assert parquet_rows(out) == scanned(tier)


@pytest.mark.nightly
@pytest.mark.parametrize("workers", ["--workers=2", "--processes"])
def test_follow_killed_again_and_again_loses_and_doubles_nothing(workers, tier, tmp_path):
    out, more = tmp_path / "out", ("--file-bytes", "2048", workers)
    for ledger_id, files in ((8, 1), (9, 6)):
        with started(tier, out, "--follow", "--interval", "0", *more) as process:
            wait_for_files(process, out, files)
            add_ledger(tier, ledger_id, messages(f"ledger {ledger_id}", 12, day=2), partition=0)
            workers_of_it = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
            assert psutil.wait_procs(workers_of_it, timeout=60)[1] == []  # none is left behind
    with started(tier, out, *more) as process:
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert parquet_rows(out) == scanned(tier)


@pytest.mark.long
def test_a_bar_is_shown_on_a_terminal_and_only_there(offload, on_a_terminal, tier, tmp_path):
    arguments = ("export", tier, "-t", ORDERS, "--file-bytes=2048", "--workers=1", "--to")
    _, shown = on_a_terminal(*arguments, tmp_path / "shown")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert re.search(r"exporting .*\d+/\d+", text), text
    assert re.search(r"[\d.]+/[\d.]+ kB", text), text
    report = r"64 rows in \d+ files, [\d.]+ kB\n"
    assert re.search(report + "$", text.replace("\r\n", "\n")), text
    piped = offload(*arguments, tmp_path / "piped")
    assert piped.code == 0
    assert re.fullmatch(report, piped.err)
