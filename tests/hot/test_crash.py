"""Processes that are killed: at every call of the operating system, and at any moment while threads append."""

from __future__ import annotations

import json
import subprocess
import sys

import ledger_appender
import ledger_crashes
import pytest
from dying import DIED
from ledger_files import all_entries

from offload_core.storage.hot import FileLedgerStore

pytestmark = pytest.mark.long


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sync", ["always", "interval"])
def test_a_kill_at_any_step_keeps_what_was_acknowledged(tmp_path, sync, sample):
    numbers = sample(range(1, 500), 16)
    done = subprocess.run(
        [sys.executable, ledger_crashes.__file__, str(tmp_path), sync, str(numbers[0]), str(numbers.step)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results = [json.loads(line) for line in done.stdout.splitlines()]
    codes = [result["code"] for result in results]
    assert set(codes) == {0, DIED}
    assert codes.count(0) == 2
    assert len(results) > 100 // numbers.step
    for result in results:
        told, counts = result["reported"], {int(key): value for key, value in result["counts"].items()}
        if "created" in told:
            assert counts[told["created"]] >= told.get("appended", 0), result
        if "sealed" in told and "recovered" not in told:
            assert counts[told["sealed"]] == 12, result
        if "deleted" in told:
            assert told["deleted"] not in counts
        given = [value for what, value in told.items() if what in ("created", "sealed", "deleted")]
        assert result["new"] > max([*counts, *given], default=-1)
        left = {f"{ledger_id}.ledger" for ledger_id in [*counts, result["new"]]}
        assert set(result["names"]) == left | {"next-ledger-id"}
    assert {1, 2} <= {len(result["counts"]) for result in results}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("sync", ["always", "interval", "never"])
@pytest.mark.parametrize("acknowledged", [1, 400])
def test_a_kill_while_threads_append_keeps_what_was_acknowledged(tmp_path, sync, acknowledged):
    command = [sys.executable, ledger_appender.__file__, str(tmp_path), sync]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(1 + acknowledged)]
        process.kill()
        lines += process.stdout.readlines()
    ledger_id = int(lines[0].split()[1])
    store = FileLedgerStore(tmp_path)
    recovered = store.recover(ledger_id)
    entries = all_entries(store.open(ledger_id))
    assert recovered.lost_entry_count == 0
    assert len(lines) > acknowledged
    for line in lines[1:]:
        entry_id, thread, number = map(int, line.split())
        assert entries[entry_id] == ledger_appender.entry(thread, number)
    for entry in entries:  # those that nobody was told of are whole as well
        thread, number, _ = entry.split(b" ", 2)
        assert entry == ledger_appender.entry(int(thread), int(number))
    store.close()
