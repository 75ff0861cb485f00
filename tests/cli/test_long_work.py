"""Long work shows itself by lines where there is no terminal, sums up, and cleans up after Ctrl-C before it ends."""

import re
import signal
import subprocess
import sys
from time import monotonic, sleep

import pytest
from commands import INTERRUPTIBLE
from scenes.moves import MovedTopic
from waiting import wait_for

from offload_core.interfaces.cli import long_work as module
from offload_core.interfaces.cli.long_work import long_work
from offload_core.metadata.records import other_copies
from offload_hooks.errors import OffloadError
from pulsar_offload import open_tier


def test_a_line_comes_every_some_seconds(monkeypatch, capsys):
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.1)
    monkeypatch.setattr(module, "_LEAST_S", 0)
    with long_work("moving", logs=True) as work:
        work.update("1 of 2 copies", whole_bytes=4_000_000)
        work.advance(1_000_000)
        sleep(0.25)
    first, *_ = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"offload: moving: 1 of 2 copies, 1\.0 MB of 4\.0 MB, [\d.]+ MB/s, 0\.\d s, \d\.\d s left", first
    )


def test_what_is_short_says_nothing_and_what_was_long_its_sum(monkeypatch, capsys):
    with long_work("verifying", logs=True) as work:
        work.update("7 objects")
    monkeypatch.setattr(module, "_LONG_S", 0)
    with long_work("listing"):
        pass
    assert capsys.readouterr().err == ""
    with long_work("verifying", logs=True) as work:
        work.update("7 objects")
    assert capsys.readouterr().err == "offload: verifying: 7 objects, 0.0 s\n"


def test_bytes_that_were_read_of_the_store_are_shown_where_the_work_counts_none(tmp_path):
    with open_tier(tmp_path) as reader, long_work("verifying") as work:
        reader.store.write_index("k", bytes(12_000))
        reader.store.read_range("k", 0, 12_000)
        assert "12.0 kB read" in work.state()
    with open_tier(tmp_path) as reader:
        reader.store.read_range("k", 0, 12_000)
    assert work.done_bytes == 12_000


def test_threads_learn_from_their_next_piece_that_it_was_broken_off(capsys):
    with long_work("moving") as work:
        work.advance(1000)
        work.break_off("The next call goes on.")
        with pytest.raises(OffloadError, match="broken off"):
            work.advance(1)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("offload: broken off. moving: 1.0 kB read, ")
    assert line.endswith(" The next call goes on.")


@pytest.mark.long
def test_moves_that_are_broken_off_leave_nothing_and_the_next_call_goes_on_at_once(tmp_path, offload):
    url = f"sqlite:{tmp_path}/records.db"
    world = MovedTopic.make(tmp_path, url)
    for count in (200, 200):
        world.offload(world.add_ledger(count))
    arguments = ["relocate", str(world.source.describe().location).removeprefix("file://"), "--to"]
    arguments += [str(tmp_path / "target"), "--records", url, "--yes", "--audit-log", str(tmp_path / "audit")]
    command = [sys.executable, "-c", INTERRUPTIBLE, *arguments, "--rate", "2kB", "--parallel", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(lambda: process.poll() is not None or other_copies(world.info), within_s=60)
        began = monotonic()
        process.send_signal(signal.SIGINT)
        line = process.stderr.readline()
        assert monotonic() - began < 4  # 2 s, on a machine that has nothing else to do
        assert line.startswith("offload: broken off. moving: ")
        assert line.endswith("the next call goes on with the rest.\n")
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err.splitlines()[-1]) == (130, "offload: interrupted"), (out, err)
    again = offload(*arguments)
    assert again.code == 0, again.err
    world.records.store.close()
