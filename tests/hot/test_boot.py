"""Systems that cannot tell whether they were started anew: who writes a ledger sees what was acknowledged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from offload_core.storage.hot import FileLedgerStore, file_calls
from offload_core.storage.hot.file_calls import boot_identity
from offload_hooks.errors import RangeError


@pytest.fixture
def without_boot_id(monkeypatch):
    monkeypatch.setattr(file_calls, "_LINUX", Path("/nonexistent"))
    monkeypatch.setattr(file_calls, "_MACOS", ["/nonexistent"])
    boot_identity.cache_clear()
    yield
    boot_identity.cache_clear()


def become_another_process(monkeypatch):
    monkeypatch.setattr(file_calls, "_OF_PROCESS", os.urandom(16))
    boot_identity.cache_clear()


def test_the_identity_is_the_machines():
    code = "from offload_core.storage.hot.file_calls import boot_identity; print(boot_identity())"
    another = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert another.stdout == f"{boot_identity()}\n"


def test_without_one_it_is_the_processs(without_boot_id, monkeypatch):
    assert 0 != boot_identity() == boot_identity()
    first = boot_identity()
    become_another_process(monkeypatch)
    assert boot_identity() != first


def test_without_one_the_writers_process_reads_what_was_acknowledged_and_others_what_is_durable(
    without_boot_id, monkeypatch, tmp_path
):
    store = FileLedgerStore(tmp_path, sync="never")
    writer = store.create({})
    writer.append_batch([b"durable", b"as well"])
    writer.sync()
    writer.append(b"acknowledged")
    reader = store.open(writer.ledger_id)
    assert reader.status().entry_count == 3
    assert bytes(reader.read(2, 2)[0]) == b"acknowledged"
    become_another_process(monkeypatch)
    other = FileLedgerStore(tmp_path).open(writer.ledger_id)
    assert other.status().entry_count == 2
    with pytest.raises(RangeError):
        other.read(2, 2)
    writer.close()
    assert other.status().entry_count == 3
