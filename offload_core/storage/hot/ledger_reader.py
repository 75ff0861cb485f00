"""The reader of one ledger file: entries by id, from a ledger that is sealed or grows.

`read_pages` and `read_footer` read the parts of the file before and after its entries, by descriptor.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from offload_core.storage.hot.descriptors import DescriptorPool
from offload_core.storage.hot.file_calls import boot_identity, read_up_to, translated
from offload_core.storage.hot.ledger_frames import FRAME_HEAD_BYTES, ledger_seed
from offload_core.storage.hot.ledger_layout import (
    FRAMES_OFFSET,
    MAX_FOOTER_BYTES,
    PAGE_BYTES,
    Footer,
    Header,
    Mark,
    State,
    newest_state,
    parse_footer,
    parse_header,
)
from offload_core.storage.hot.sparse_index import STRIDE_BYTES, Indexes, SparseIndex
from offload_core.storage.hot.walk import MAX_WINDOW_BYTES, EntryWalk
from offload_hooks.errors import FormatError, LedgerClosedError, RangeError, UnknownLedgerError, placed
from offload_hooks.ledger_stores import DEFAULT_READ_BYTES, EntryBatch, LedgerStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """The pages before a ledger's first entry."""

    header: Header
    state: State

    @property
    def trusted(self) -> Mark:
        """The end of the part that must be whole: acknowledged entries until the next boot, then durable ones."""
        state = self.state
        runs_on = state.boot != 0 and state.boot == boot_identity()
        return state.acknowledged if state.sealed or runs_on else state.durable

    @property
    def status(self) -> LedgerStatus:
        """The ledger for readers."""
        return LedgerStatus(
            ledger_id=self.header.ledger_id,
            entry_count=self.trusted.entry_count,
            size_bytes=self.trusted.size_bytes,
            sealed=self.state.sealed,
            created_at_ms=self.header.created_at_ms,
            custom_metadata=self.header.custom_metadata,
        )


def read_pages(descriptor: int, ledger_id: int) -> Pages:
    """The pages of a ledger's file.

    Raises:
        UnknownLedgerError: the file was deleted.
        FormatError: they are damaged.
    """
    if os.fstat(descriptor).st_nlink == 0:
        raise UnknownLedgerError("the ledger was deleted", ledger_id=ledger_id)
    data = read_up_to(descriptor, FRAMES_OFFSET, 0)
    header = parse_header(data[:PAGE_BYTES], ledger_id)
    return Pages(header=header, state=newest_state(data, ledger_seed(ledger_id)))


def read_footer(descriptor: int, state: State) -> Footer:
    """The footer of a sealed ledger; `FormatError` if it is damaged, or something follows it."""
    offset = state.acknowledged.offset
    return parse_footer(read_up_to(descriptor, MAX_FOOTER_BYTES + 1, offset), offset, state)


class FileLedgerReader:
    """Reads one ledger; see `LedgerReader`. Made by the store."""

    def __init__(self, path: str, ledger_id: int, files: DescriptorPool, indexes: Indexes) -> None:
        self._path = path
        self._ledger_id = ledger_id
        self._files = files
        self._indexes = indexes
        self._last: Pages | None = None
        self._closed = False
        self.status()

    @property
    def ledger_id(self) -> int:
        """See `LedgerReader`."""
        return self._ledger_id

    def status(self) -> LedgerStatus:
        """See `LedgerReader`."""
        with self._opened() as descriptor:
            return self._look(descriptor).status

    def read(
        self, first_entry_id: int, last_entry_id: int, max_bytes: int = DEFAULT_READ_BYTES
    ) -> EntryBatch:
        """See `LedgerReader`."""
        with self._opened() as descriptor:
            pages = self._look(descriptor)
            end = pages.trusted
            if not 0 <= first_entry_id <= last_entry_id < end.entry_count or max_bytes < 1:
                raise RangeError(
                    "the ledger does not have these entries",
                    ledger_id=self._ledger_id,
                    expected=f"first ≤ last < {end.entry_count}, at least 1 byte",
                    found=f"{first_entry_id} to {last_entry_id}, {max_bytes} bytes",
                )
            index = self._indexes.find(self._ledger_id, lambda: _make_index(descriptor, pages.state))
            behind = index.offset_behind(last_entry_id)
            walk = EntryWalk(
                descriptor,
                self._ledger_id,
                index,
                first_entry_id=first_entry_id,
                stop=end.offset if behind is None else min(end.offset, behind),
                window_bytes=min(MAX_WINDOW_BYTES, max_bytes + max_bytes // 16 + 2 * STRIDE_BYTES),
            )
            try:
                walk.skip_to(first_entry_id)
                return walk.copy(last_entry_id + 1, max_bytes)
            finally:
                walk.close()

    def size_before(self, entry_id: int) -> int:
        """See `SizedLedgerReader`; from the nearest point of the index on, entries are passed."""
        with self._opened() as descriptor:
            pages = self._look(descriptor)
            end = pages.trusted
            if not 0 <= entry_id <= end.entry_count:
                raise RangeError(
                    "the ledger does not have this entry",
                    ledger_id=self._ledger_id,
                    expected=f"0 to {end.entry_count}",
                    found=entry_id,
                )
            index = self._indexes.find(self._ledger_id, lambda: _make_index(descriptor, pages.state))
            walk = EntryWalk(
                descriptor,
                self._ledger_id,
                index,
                first_entry_id=entry_id,
                stop=end.offset,
                window_bytes=2 * STRIDE_BYTES,
            )
            try:
                walk.skip_to(entry_id)
                return walk.position - FRAMES_OFFSET - FRAME_HEAD_BYTES * entry_id
            finally:
                walk.close()

    def close(self) -> None:
        """See `LedgerReader`."""
        self._closed = True

    def _look(self, descriptor: int) -> Pages:
        """The ledger's pages as they are now; of a sealed one, as they are for ever."""
        last = self._last
        if last is not None and last.state.sealed and os.fstat(descriptor).st_nlink:
            return last
        pages = read_pages(descriptor, self._ledger_id)
        if last is not None and last.state.sequence > pages.state.sequence:
            return last  # the newer slot was just being written
        self._last = pages
        return pages

    @contextmanager
    def _opened(self) -> Iterator[int]:
        if self._closed:
            raise LedgerClosedError("the ledger's reader was closed", ledger_id=self._ledger_id)
        with translated("read a ledger", self._path, self._ledger_id):
            file = self._files.acquire(self._path, writable=False)
            try:
                with placed(key=self._path, ledger_id=self._ledger_id):
                    yield file.descriptor
            except FormatError as error:
                if os.fstat(file.descriptor).st_nlink == 0:  # its entries were cut off as it was deleted
                    raise UnknownLedgerError("the ledger was deleted", ledger_id=self._ledger_id) from error
                raise
            finally:
                self._files.release(file)


def _make_index(descriptor: int, state: State) -> SparseIndex:
    return SparseIndex(read_footer(descriptor, state).points) if state.sealed else SparseIndex()
