"""The embedded hot tier: ledgers as files in one folder, which many processes of one machine may share.

    <path>/next-ledger-id     the ids that were given
    <path>/<id>.ledger        a ledger, sealed or open
    <path>/<id>.new           one that is being created, or was when its process ended

The files' bytes are described in docs/formats/ledger-file.md, what is safe when in docs/hot-tier.md.

Each ledger id is given once, by whichever process, and is greater than all before it, also than those deleted. The file
that counts them has two slots that are written in turn; a process that creates a ledger holds its lock.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Literal

from offload_core.format.codec.crc32c import crc32c
from offload_core.storage.hot import ledger_recovery
from offload_core.storage.hot.descriptors import DescriptorPool
from offload_core.storage.hot.file_calls import (
    boot_identity,
    locked,
    read_up_to,
    sync_file,
    translated,
    write_all,
)
from offload_core.storage.hot.ledger_frames import MAX_ENTRY_BYTES, ledger_seed
from offload_core.storage.hot.ledger_layout import (
    PAGE_BYTES,
    SLOT_OFFSETS,
    Header,
    Mark,
    State,
    pack_header,
    pack_state,
)
from offload_core.storage.hot.ledger_reader import FileLedgerReader
from offload_core.storage.hot.ledger_writer import FileLedgerWriter
from offload_core.storage.hot.sparse_index import Indexes
from offload_hooks.errors import (
    ChecksumError,
    LedgerClosedError,
    LedgerFailedError,
    LedgerFencedError,
    OffloadError,
    StoreError,
    UnknownLedgerError,
    placed,
)
from offload_hooks.ledger_stores import LedgerStatus, LedgerStoreDescription, RecoveredLedger
from offload_hooks.option_text import as_choice, as_count, as_name, as_seconds
from offload_hooks.private_files import make_directories, open_file, sync_directory

FILE_NAME = "next-ledger-id"

_SLOT_BYTES = 512
_MAGIC = b"PuLI"


@contextmanager
def next_ledger_id(
    root: str, timeout_s: float, has_ledgers: Callable[[], bool], *, at_least: int = 0
) -> Iterator[int]:
    """A new id, durably taken; others wait until the block ends.

    Args:
        at_least: no less than this.
        has_ledgers: asked where no id was ever given.

    Raises:
        ChecksumError: the file is damaged; never is an id given again.
        StoreTimeoutError: another process holds the lock for longer.
    """
    path = os.path.join(root, FILE_NAME)
    with locked(path, os.O_RDWR | os.O_CREAT, timeout_s) as descriptor:
        slots = [read_up_to(descriptor, 16, place * _SLOT_BYTES) for place in (0, 1)]
        counts = [_parse(slot) for slot in slots]
        newest = max(range(2), key=lambda place: counts[place] or 0)
        given, place = counts[newest] or 0, 1 - newest
        if not given and (any(map(_is_written, slots)) or has_ledgers()):
            raise ChecksumError(
                "the file of ledger ids is damaged or was removed",
                key=path,
                offset=0,
                hint="No ledger can be created before the greatest id ever used is known.",
            )
        is_new = not given
        given = max(given, at_least)
        is_damaged = counts[place] is None and _is_written(slots[place])
        given += is_damaged  # it may have been one more
        for _ in range(2 if is_damaged else 1):  # so that the slots are one apart again
            given += 1
            write_all(descriptor, _pack(given), place * _SLOT_BYTES)
            sync_file(descriptor)
            place = 1 - place
        if is_new:
            sync_directory(root)
        yield given - 1


def _is_written(slot: bytes) -> bool:
    return bool(slot.strip(b"\0"))


def _pack(count: int) -> bytes:
    head = _MAGIC + count.to_bytes(8, "big")
    return head + crc32c(head).to_bytes(4, "big")


def _parse(slot: bytes) -> int | None:
    head, checksum = slot[:12], slot[12:16]
    whole = len(checksum) == 4 and head[:4] == _MAGIC and crc32c(head) == int.from_bytes(checksum, "big")
    return int.from_bytes(head[4:], "big") if whole else None


_log = logging.getLogger(__name__)


class IntervalSync:
    """Calls `sync` of writers that have something to make durable, in rounds, `interval_s` after the last one."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._dirty: set[FileLedgerWriter] = set()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, writer: FileLedgerWriter) -> None:
        """A writer has acknowledged entries that are not durable."""
        with self._lock:
            self._dirty.add(writer)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="offload-ledger-sync", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """End the thread; it does not sync any more."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._interval_s):
            with self._lock:
                dirty, self._dirty = self._dirty, set()
            for writer in dirty:
                if self._stopped.is_set():
                    break
                try:
                    writer.sync()
                except LedgerClosedError:
                    pass  # meanwhile: it is sealed
                except (LedgerFailedError, LedgerFencedError) as error:  # the writer's next call reports it
                    _log.warning("ledger %d: %s", writer.ledger_id, error)
                except Exception:  # the thread must go on, and this ledger is not durable yet
                    _log.warning("ledger %d is not synced yet", writer.ledger_id, exc_info=True)
                    with self._lock:
                        self._dirty.add(writer)


SyncPolicy = Literal["always", "interval", "never"]

_NAME = re.compile(r"(0|[1-9][0-9]{0,18})\.ledger")
_MAX_INDEX_POINTS = 1 << 21
"""32 MiB of indexes of ledgers that are read."""


class FileLedgerStore:
    """Ledgers as files; see `LedgerStore`.

    Args:
        path: the folder, made if need be; it and its files are for this user alone. A local file system: locks and
            fsync must work.
        sync: when what is acknowledged is on the disk: `always` before that; `interval` after `sync_interval_s` and
            the time that it takes; `never` when the system likes, or the ledger is sealed.
        sync_interval_s: see `sync`.
        max_open_files: how many ledgers have an open file at once, however many are written and read.
        lock_timeout_s: how long to wait for another process.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        sync: SyncPolicy = "always",
        sync_interval_s: float = 0.1,
        max_open_files: int = 256,
        lock_timeout_s: float = 30.0,
    ) -> None:
        self._root = os.path.abspath(as_name("path", os.fspath(path)))
        self._sync = as_choice("sync", sync, ("always", "interval", "never"))
        self._interval = IntervalSync(as_seconds("sync_interval_s", sync_interval_s))
        self._lock_timeout_s = as_seconds("lock_timeout_s", lock_timeout_s)
        self._files = DescriptorPool(as_count("max_open_files", max_open_files))
        self._indexes = Indexes(_MAX_INDEX_POINTS)
        self._lock = threading.Lock()
        self._writers: dict[int, FileLedgerWriter] = {}
        self._process = os.getpid()
        self._closed = False
        self._tidied = False

    def __repr__(self) -> str:
        return f"<FileLedgerStore {self._root}>"

    def describe(self) -> LedgerStoreDescription:
        """See `LedgerStore`."""
        return LedgerStoreDescription(name="embedded", location=self._root, max_entry_bytes=MAX_ENTRY_BYTES)

    def skip_ids(self, last: int) -> None:
        """Reserve all ids up to this one, durably: a topic has ledgers with such ids that this store did not create.

        Raises:
            ChecksumError: the file of ids is damaged.
            StoreError: the folder cannot be written.
        """
        self._check_open()
        with translated("skip ledger ids", self._root):
            make_directories(self._root)
            with next_ledger_id(self._root, self._lock_timeout_s, lambda: bool(self._list()), at_least=last):
                pass  # it is at least `last`, and was not given before

    def create(self, custom_metadata: Mapping[str, bytes]) -> FileLedgerWriter:
        """See `LedgerStore`. The metadata has 4 KiB."""
        self._check_open()
        created_at_ms = time.time_ns() // 1_000_000
        boot = boot_identity()
        with translated("create a ledger", self._root):
            make_directories(self._root)
            with next_ledger_id(self._root, self._lock_timeout_s, lambda: bool(self._list())) as ledger_id:
                self._tidy()
                header = Header(
                    ledger_id=ledger_id, created_at_ms=created_at_ms, custom_metadata=dict(custom_metadata)
                )
                state = State(
                    sequence=1, epoch=1, sealed=False, acknowledged=Mark(), durable=Mark(), boot=boot
                )
                self._make_file(ledger_id, pack_header(header), state)
        writer = FileLedgerWriter(
            path=self._path_of(ledger_id),
            header=header,
            state=state,
            files=self._files,
            always=self._sync == "always",
            lock_timeout_s=self._lock_timeout_s,
            on_dirty=self._interval.add if self._sync == "interval" else None,
            on_end=self._ended,
        )
        with self._lock:
            self._writers[ledger_id] = writer
        self._indexes.begin(ledger_id, writer.index)
        return writer

    def open(self, ledger_id: int) -> FileLedgerReader:
        """See `LedgerStore`."""
        self._check_open()
        return FileLedgerReader(self._path_of(ledger_id), ledger_id, self._files, self._indexes)

    def recover(self, ledger_id: int, accept_loss: bool = False) -> RecoveredLedger:
        """See `LedgerStore`."""
        path = self._path_of(ledger_id)
        self._check_open()
        with translated("recover a ledger", path, ledger_id), placed(key=path, ledger_id=ledger_id):
            recovered = ledger_recovery.recover(path, ledger_id, self._lock_timeout_s, accept_loss)
        self._forget(ledger_id)
        return recovered

    def verify(self, ledger_id: int) -> LedgerStatus:
        """See `LedgerStore`."""
        path = self._path_of(ledger_id)
        self._check_open()
        with translated("verify a ledger", path, ledger_id), placed(key=path, ledger_id=ledger_id):
            file = self._files.acquire(path, writable=False)
            try:
                return ledger_recovery.verify(file.descriptor, ledger_id)
            finally:
                self._files.release(file)

    def delete(self, ledger_id: int) -> bool:
        """See `LedgerStore`."""
        self._check_open()
        with suppress(UnknownLedgerError):
            path = self._path_of(ledger_id)
            with translated("delete a ledger", path, ledger_id), placed(key=path, ledger_id=ledger_id):
                deleted = ledger_recovery.delete(path, ledger_id, self._lock_timeout_s)
            self._files.forget(path)
            self._forget(ledger_id)
            return deleted
        return False

    def ledger_ids(self) -> list[int]:
        """See `LedgerStore`."""
        self._check_open()
        with translated("list the ledgers", self._root):
            return self._list()

    def close(self) -> None:
        """See `LedgerStore`."""
        if self._closed:
            return
        self._closed = True
        self._interval.stop()
        with self._lock:
            writers = list(self._writers.values())
        failures: list[OffloadError] = []
        for writer in writers:
            try:
                writer.stop()
            except OffloadError as error:
                failures.append(error)
        self._files.close()
        if failures:
            raise failures[0]

    def _path_of(self, ledger_id: int) -> str:
        if ledger_id < 0:
            raise UnknownLedgerError("there is no such ledger", ledger_id=ledger_id)
        return os.path.join(self._root, f"{ledger_id:d}.ledger")

    def _list(self) -> list[int]:
        try:
            with os.scandir(self._root) as found:
                matches = [_NAME.fullmatch(entry.name) for entry in found]
        except FileNotFoundError:
            return []
        return sorted(int(match[1]) for match in matches if match is not None)

    def _tidy(self) -> None:
        """Remove the remains of ledgers whose creation was cut off; one that creates a ledger holds the lock."""
        if not self._tidied:
            with os.scandir(self._root) as found:
                left = [entry.path for entry in found if entry.name.endswith(".new")]
            for path in left:
                os.unlink(path)
            self._tidied = True

    def _make_file(self, ledger_id: int, header_page: bytes, state: State) -> None:
        path = self._path_of(ledger_id)
        unfinished = os.path.join(self._root, f"{ledger_id:d}.new")
        descriptor = open_file(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            slots = [bytes(PAGE_BYTES) for _ in SLOT_OFFSETS]
            slots[state.sequence % 2] = pack_state(state, ledger_seed(ledger_id)).ljust(PAGE_BYTES, b"\0")
            write_all(descriptor, header_page + b"".join(slots), 0)
            sync_file(descriptor)
        finally:
            os.close(descriptor)
        os.rename(unfinished, path)
        sync_directory(self._root)

    def _ended(self, writer: FileLedgerWriter) -> None:
        self._forget(writer.ledger_id)

    def _forget(self, ledger_id: int) -> None:
        with self._lock:
            self._writers.pop(ledger_id, None)
        self._indexes.end(ledger_id)

    def _check_open(self) -> None:
        if self._closed:
            raise LedgerClosedError("the ledger store was closed", key=self._root)
        if os.getpid() != self._process:
            raise StoreError(
                "a ledger store is used in a forked child",
                key=self._root,
                hint="Make a store of its own there.",
            )
