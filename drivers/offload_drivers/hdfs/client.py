"""What the driver asks of HDFS, one method for each request: with a deadline, and with our errors.

A rename or removal whose answer was lost may be made again, by the library or a layer, and then finds nothing: who
renames must not take `NO_SOURCE` for a failure without looking.
"""

from __future__ import annotations

import enum
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from hdfs_native import WriteOptions

from offload_drivers.hdfs.errors import NOT_EMPTY, translation
from offload_hooks.errors import (
    InvalidKeyError,
    ObjectExistsError,
    ObjectNotFoundError,
    OffloadError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
)

# The HDFS client waits without end for a NameNode that is there and does not answer. So a thread makes each call, and
# the caller waits for it until a deadline. A call that was given up goes on in its thread until the connection breaks;
# such threads do not keep the process alive.


_Answer = tuple[int, Any, BaseException | None]


class DeadlinePassed(Exception):  # noqa: N818
    """A call did not come back in time; what it does, it does unheard."""


def within(seconds: float, call: Callable[..., _T], *arguments: Any) -> _T:
    """Call and answer what it answers; `DeadlinePassed` if that takes longer."""
    return within_all(seconds, [lambda: call(*arguments)], 1)[0]


def within_all(seconds: float, calls: Sequence[Callable[[], _T]], at_once: int) -> list[_T]:
    """Make many calls, some at once, and answer in their order; the first error is raised, and none begun after it.

    The deadline is that of each call: it passes when none of those under way comes back for so long.
    """
    waiting = iter(list(enumerate(calls)))
    answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                number, call = next(waiting, (-1, None))
            if call is None:
                return
            try:
                answers.put((number, call(), None))
            except BaseException as error:  # a panic of the client is no Exception; the caller raises it
                answers.put((number, None, error))
                return

    for _ in range(min(at_once, len(calls))):
        threading.Thread(target=work, daemon=True, name="hdfs-call").start()
    done: dict[int, _T] = {}
    try:
        while len(done) < len(calls):
            number, answer, error = answers.get(timeout=seconds)
            if error is not None:
                raise error
            done[number] = answer
    except queue.Empty:
        raise DeadlinePassed(f"no answer within {seconds:g} s") from None
    finally:
        with lock:
            waiting = iter(())
    return [done[number] for number in range(len(calls))]


PAGE = 1000
"""How many entries of a directory a NameNode gives at once, by default."""

SLICE_BYTES = 4 << 20
"""How much is handed to a writer at once: it copies what it is given."""

REPORT_S = 5.0
"""How long DataNodes may take to report a closed file's last block; they do so at once."""

_POLL_S = 0.005

_T = TypeVar("_T")


class Renamed(enum.Enum):
    """The outcome of a rename."""

    DONE = enum.auto()
    NO_SOURCE = enum.auto()
    NO_PARENT = enum.auto()
    EXISTS = enum.auto()


class HdfsClient:
    """One process's client of one file system.

    Args:
        raw: the library's client.
        location: the tier's URL, for messages.
        deadline_s: how long one request may take.
        replication: of new files; None for the server's default.

    Attributes:
        hangs: whether a request was given up; its connection may be dead, and this client with it.
    """

    def __init__(self, raw: Any, location: str, deadline_s: float, replication: int | None) -> None:
        self._raw = raw
        self._replication = replication
        self.location = location
        self.deadline_s = deadline_s
        self.hangs = False

    def status(self, path: str) -> Any | None:
        """The status of a file or directory; None if there is none."""
        try:
            return self._call("look", self._raw.get_file_info, path)
        except (ObjectNotFoundError, InvalidKeyError):  # or a part of the path is a file
            return None

    def listing(self, path: str) -> Iterator[Any]:
        """The statuses in a directory, page by page; `ObjectNotFoundError` if there is none.

        The order is the NameNode's, which takes bytes for signed: not that of the hooks.
        """
        entries = self._raw.list_status(path)  # no request yet
        while True:
            page = self._call("list", _page, entries)
            yield from page
            if len(page) < PAGE:
                return

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it, if need be."""
        self._call("make a directory", self._raw.mkdirs, path, 0o755, True)

    def rename(self, source: str, target: str, *, overwrite: bool = False) -> Renamed:
        """Rename in one step; without `overwrite` nothing that exists is touched."""
        try:
            self._call("rename", self._raw.rename, source, target, overwrite)
        except ObjectExistsError:
            return Renamed.EXISTS
        except ObjectNotFoundError as error:
            of_parent = "destination parent" in str(error.__cause__)
            return Renamed.NO_PARENT if of_parent else Renamed.NO_SOURCE
        return Renamed.DONE

    def remove(self, path: str) -> bool:
        """Remove a file or an empty directory; whether that was there."""
        return self._remove(path, recursive=False)

    def remove_all(self, path: str) -> bool:
        """Remove a directory with all in it; whether it was there."""
        return self._remove(path, recursive=True)

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Give a file another time of modification."""
        self._call("set a time", self._raw.set_times, path, modified_ms, 2**64 - 1)  # the other one stays

    def recover_lease(self, path: str) -> bool:
        """Close a file that another writer left open, which can write no more then; True if it is closed."""
        return bool(self._call("close a file", self._raw.recover_lease, path))

    # --- bytes -----------------------------------------------------------------------------------

    def read_whole(self, path: str) -> bytes | None:
        """A small file's bytes; None if it is not there."""
        try:
            return self._call("read", _read_whole, self._raw, path)
        except ObjectNotFoundError:
            return None

    def write_files(self, files: Mapping[str, bytes | memoryview]) -> None:
        """Write small files, all at once, in directories that are there."""
        options = self._write_options()
        self._all(
            "write",
            [partial(_write_file, self._raw, path, files[path], options) for path in files],
            len(files),
        )

    def readers(self, wanted: Mapping[str, int], at_once: int) -> dict[str, Any]:
        """Files opened for reading, by path, with their length as `file_length()`.

        `wanted` says how many bytes of each one will be read. A reader has fewer only if the file has.
        """
        calls = [partial(_reader, self._raw, path, wanted[path]) for path in wanted]
        return dict(zip(wanted, self._all("read", calls, at_once), strict=True))

    def read_ranges(self, ranges: Sequence[tuple[Any, int, int]], at_once: int) -> list[bytes]:
        """Bytes of opened files: reader, offset, length each, which the file must have."""
        calls = [partial(reader.read_range, offset, length) for reader, offset, length in ranges]
        return self._all("read", calls, at_once)

    def writer(self, path: str) -> Any:
        """A new file, opened for writing, in a directory that is there."""
        return self._call("write", _writer, self._raw, path, self._write_options())

    def write(self, writer: Any, data: memoryview) -> None:
        """Write on to an opened file."""
        for start in range(0, len(data), SLICE_BYTES):
            self._call("write", writer.write, data[start : start + SLICE_BYTES])

    def sync(self, writer: Any) -> None:
        """Have all that was written on the DataNodes' disks."""
        self._call("write", writer.hsync)

    def close_writer(self, writer: Any) -> None:
        """Close an opened file."""
        self._call("close a file", writer.close)

    # ---------------------------------------------------------------------------------------------

    def _remove(self, path: str, *, recursive: bool) -> bool:
        try:
            return bool(self._call("remove", self._raw.delete, path, recursive))
        except InvalidKeyError:  # a part of the path is a file
            return False
        except StoreError as error:
            if error.found == NOT_EMPTY:
                return False
            raise

    def _write_options(self) -> Any:
        return WriteOptions(overwrite=True, create_parent=False, replication=self._replication)

    def _call(self, doing: str, call: Callable[..., _T], *arguments: Any) -> _T:
        return self._judged(doing, lambda: within(self.deadline_s, call, *arguments))

    def _all(self, doing: str, calls: Sequence[Callable[[], _T]], at_once: int) -> list[_T]:
        return self._judged(doing, lambda: within_all(self.deadline_s, calls, at_once))

    def _judged(self, doing: str, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except DeadlinePassed as error:
            self.hangs = True
            raise StoreTimeoutError(
                f"cannot {doing} in {self.location}: HDFS did not answer in time", found=str(error)
            ) from error
        except (OffloadError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library's panics are no Exceptions
            raise translation(error, doing, self.location) from error


def _page(entries: Iterator[Any]) -> list[Any]:
    return list(itertools.islice(entries, PAGE))


def _read_whole(raw: Any, path: str) -> bytes:
    reader = _reader(raw, path, 1)
    return bytes(reader.read_range(0, reader.file_length()))


def _reader(raw: Any, path: str, wanted: int) -> Any:
    """A reader of so many bytes, or of all that the file has.

    A NameNode may let a file be closed before its last block has been reported
    (`dfs.namenode.file.close.num-committed-allowed`); a reader that is made before then lacks that block.
    """
    until = time.monotonic() + REPORT_S
    while True:
        reader = raw.inner.read(path)
        if reader.file_length() >= wanted or reader.file_length() >= raw.get_file_info(path).length:
            return reader
        if time.monotonic() > until:
            raise StoreUnavailableError("the end of a file cannot be read: it is still being written")
        time.sleep(_POLL_S)


def _writer(raw: Any, path: str, options: Any) -> Any:
    """A writer that asks nothing of HDFS when it is freed.

    The library's own one is an `io.RawIOBase`, which is closed then: by the garbage collector, in whatever thread that
    runs, which waits without end for a connection that is dead.
    """
    return raw.inner.create(path, options)


def _write_file(raw: Any, path: str, data: bytes | memoryview, options: Any) -> None:
    writer = _writer(raw, path, options)
    for start in range(0, len(data), SLICE_BYTES):
        writer.write(data[start : start + SLICE_BYTES])
    writer.close()
