"""Ledger files as a kill or a failure of the machine leaves them, and their state as a store reads it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from entries import read_through

from offload_core.storage.hot import FileLedgerStore, ledger_layout
from offload_core.storage.hot.ledger_frames import FRAME_HEAD_BYTES, ledger_seed
from offload_hooks.ledger_stores import LedgerReader


def frame_borders(payloads: list[bytes]) -> list[int]:
    """The begin of each entry's frame in its file, and the end of the last."""
    borders = [ledger_layout.FRAMES_OFFSET]
    for payload in payloads:
        borders.append(borders[-1] + FRAME_HEAD_BYTES + len(payload))
    return borders


def left_by_a_kill(folder: Path, payloads: list[bytes], synced: int = 0, sync: str = "never") -> Path:
    """The file of ledger 0, whose writer wrote these entries and made the first `synced` durable, and was killed."""
    with_writer = folder / "with-writer"
    store = FileLedgerStore(with_writer, sync=sync)
    writer = store.create({"a": b"b"})
    if synced:
        writer.append_batch(payloads[:synced])
        writer.sync()
    for payload in payloads[synced:]:
        writer.append(payload)
    killed = folder / "killed"
    shutil.copytree(with_writer, killed)  # before the store is closed, which makes all durable
    store.close()
    return killed / "0.ledger"


def edit(file: Path, offset: int, data: bytes) -> None:
    """Overwrite bytes of a file."""
    descriptor = os.open(file, os.O_RDWR)
    os.pwrite(descriptor, data, offset)
    os.close(descriptor)


def flip(file: Path, bit: int) -> None:
    """Change one bit of a file."""
    byte = file.read_bytes()[bit // 8]
    edit(file, bit // 8, bytes([byte ^ 1 << bit % 8]))


def state_of(file: Path) -> ledger_layout.State:
    """The file's state."""
    return ledger_layout.newest_state(
        file.read_bytes()[: ledger_layout.FRAMES_OFFSET], ledger_seed(int(file.stem))
    )


def set_state(file: Path, **fields: object) -> None:
    """Write another state into both slots."""
    state = state_of(file)._replace(**fields)
    for i, offset in enumerate(ledger_layout.SLOT_OFFSETS):
        newer = state._replace(sequence=state.sequence // 2 * 2 + 2 + i)
        edit(file, offset, ledger_layout.pack_state(newer, ledger_seed(int(file.stem))))


def after_a_power_failure(file: Path) -> None:
    """Say that it was written before the machine was started."""
    set_state(file, boot=12345)


def all_entries(reader: LedgerReader) -> list[bytes]:
    """All entries of a ledger."""
    return [payload for _, payload in read_through(reader, 0, reader.status().entry_count - 1)]
