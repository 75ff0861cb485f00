"""Take a ledger from its writer: fence it, and seal its whole entries; or delete it.

Recovery goes through these steps, under the file's lock:

    1. state with the next epoch             the writer, wherever it is, fails from here on
    2. entries walked to the first fault     where all must be whole (`Pages.trusted`), a fault is the end of it
    3. what was not yet durable written      an fsync that failed, in a process that is gone, may have left the system
       again, as it is                       assuming that this is on the disk
    4. footer, cut after it, fsync
    5. sealed state, fsync; both slots

After a crash between them the ledger is as before but for the epoch, and is recovered again. Deletion fences as well,
removes the name, and only then cuts the file, for other processes may have it open.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import dataclass

import xxhash

from offload_core.storage.hot.file_calls import boot_identity, locked, read_up_to, sync_file, write_all
from offload_core.storage.hot.ledger_frames import ledger_seed
from offload_core.storage.hot.ledger_layout import (
    FRAMES_OFFSET,
    SLOT_OFFSETS,
    STATE_BYTES,
    Footer,
    Mark,
    State,
    pack_footer,
    pack_state,
)
from offload_core.storage.hot.ledger_reader import read_footer, read_pages
from offload_core.storage.hot.sparse_index import SparseIndex
from offload_core.storage.hot.walk import WINDOW_BYTES, EntryWalk
from offload_hooks.errors import ChecksumError, FormatError, IndexMismatchError
from offload_hooks.ledger_stores import LedgerStatus, RecoveredLedger
from offload_hooks.private_files import sync_directory

_NO_END = 1 << 62
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _WholeEntries:
    """A ledger's entries up to the first fault."""

    end: Mark
    fault: FormatError | None
    digest: bytes
    index: SparseIndex


def recover(path: str, ledger_id: int, timeout_s: float, accept_loss: bool) -> RecoveredLedger:
    """See `LedgerStore.recover`. `OSError` where the system refuses."""
    with locked(path, os.O_RDWR, timeout_s) as descriptor:
        pages = read_pages(descriptor, ledger_id)
        if pages.state.sealed:
            return RecoveredLedger(status=pages.status)
        state = _fence(descriptor, pages.state, ledger_id)
        entries = _whole_entries(descriptor, ledger_id, pages.trusted.offset)
        if entries.fault is not None and entries.end.offset < pages.trusted.offset and not accept_loss:
            raise entries.fault
        _write_again(descriptor, state.durable.offset, entries.end.offset)
        _seal(descriptor, state, entries, ledger_id)
        status = read_pages(descriptor, ledger_id).status
    lost = max(0, state.acknowledged.entry_count - entries.end.entry_count)
    if lost:
        _log.warning(
            "ledger %d was sealed with %d entries; %d more had been acknowledged, and are lost",
            ledger_id,
            status.entry_count,
            lost,
        )
    return RecoveredLedger(status=status, lost_entry_count=lost)


def delete(path: str, ledger_id: int, timeout_s: float) -> bool:
    """See `LedgerStore.delete`. `OSError` where the system refuses."""
    try:
        with locked(path, os.O_RDWR, timeout_s) as descriptor:
            try:
                _fence(descriptor, read_pages(descriptor, ledger_id).state, ledger_id)
            except FormatError:  # it is to be gone, whatever it is; a writer that is left must find out
                for offset in SLOT_OFFSETS:
                    write_all(descriptor, bytes(STATE_BYTES), offset)
            os.unlink(path)
            os.ftruncate(descriptor, FRAMES_OFFSET)
    except FileNotFoundError:
        return False
    sync_directory(os.path.dirname(path))
    return True


def verify(descriptor: int, ledger_id: int) -> LedgerStatus:
    """See `LedgerStore.verify`."""
    pages = read_pages(descriptor, ledger_id)
    end, digest = pages.trusted, xxhash.xxh3_128()
    walk = EntryWalk(descriptor, ledger_id, SparseIndex(), first_entry_id=0, stop=end.offset, digest=digest)
    footer = read_footer(descriptor, pages.state) if pages.state.sealed else None
    for entry_id, offset in footer.points.tolist() if footer is not None else []:
        walk.skip_to(entry_id)
        if (walk.entry_id, walk.position) != (entry_id, offset):
            raise IndexMismatchError(
                "a sealed ledger's index is not that of its entries",
                entry_id=entry_id,
                expected=f"byte {walk.position}",
                found=f"byte {offset}",
            )
    walk.skip_to(_NO_END)
    if walk.mark != end or (footer is not None and footer.digest != digest.digest()):
        raise ChecksumError(
            "a ledger's entries are not those that it was said to have",
            expected=f"{end.entry_count} entries that end at byte {end.offset}, and their digest",
            found=f"{walk.entry_id} that end at byte {walk.position}",
        )
    return pages.status


def _fence(descriptor: int, state: State, ledger_id: int) -> State:
    """Step 1, in both slots, so that the writer meets it whichever slot it checks."""
    for _ in SLOT_OFFSETS:
        state = _write_state(descriptor, state._replace(epoch=state.epoch + 1), ledger_id)
    return state


def _write_state(descriptor: int, state: State, ledger_id: int) -> State:
    state = state._replace(sequence=state.sequence + 1)
    write_all(descriptor, pack_state(state, ledger_seed(ledger_id)), SLOT_OFFSETS[state.sequence % 2])
    return state


def _whole_entries(descriptor: int, ledger_id: int, expected_end: int) -> _WholeEntries:
    """Step 2."""
    index, digest = SparseIndex(), xxhash.xxh3_128()
    stop = max(os.fstat(descriptor).st_size, expected_end)
    walk = EntryWalk(descriptor, ledger_id, index, first_entry_id=0, stop=stop, digest=digest)
    fault = None
    try:
        walk.skip_to(_NO_END)
    except FormatError as error:
        fault = error
    return _WholeEntries(end=walk.mark, fault=fault, digest=digest.digest(), index=index)


def _write_again(descriptor: int, begin: int, end: int) -> None:
    """Step 3."""
    for offset in range(begin, end, WINDOW_BYTES):
        write_all(descriptor, read_up_to(descriptor, min(WINDOW_BYTES, end - offset), offset), offset)


def _seal(descriptor: int, state: State, entries: _WholeEntries, ledger_id: int) -> None:
    """Steps 4 and 5."""
    end = entries.end
    footer = pack_footer(
        Footer(
            ledger_id=ledger_id,
            end=end,
            sealed_at_ms=time.time_ns() // 1_000_000,
            digest=entries.digest,
            points=entries.index.points(end.offset),
        )
    )
    write_all(descriptor, footer, end.offset)
    os.ftruncate(descriptor, end.offset + len(footer))
    sync_file(descriptor)
    for _ in SLOT_OFFSETS:
        state = state._replace(sealed=True, acknowledged=end, durable=end, boot=boot_identity())
        state = _write_state(descriptor, state, ledger_id)
        sync_file(descriptor)
