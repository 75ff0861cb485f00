"""The blocks of an upload: how they get into files, and one file is made of them at the commit.

HDFS can concatenate files, but its client here cannot ask for that, and a file is written by one writer from its
begin to its end. So each process writes the blocks that it is given one behind the other into one file, a *run*, which
stays open between them; each block is synced to the DataNodes' disks before its receipt is given. The receipt's tag
says where the block lies: `<run>:<offset>`. In the usual case one process writes all blocks in their order, the run is
the object, and the commit renames it. That is why the driver declares `ordered_parts`: nothing is copied then.
(Appending to a closed file for each block was measured, too: it costs a wait of the client's, 0.4 s, for each HDFS
block; so does a file for each part, all of which would have to be copied as well.)

Else the commit copies the blocks that the receipts name into one file: after a block that failed (a new run begins
then, since what the broken one holds is not known), when a block was written again, or when another process went on.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from offload_drivers.hdfs.client import HdfsClient
from offload_drivers.hdfs.connection import kept_by_children
from offload_drivers.hdfs.uploads import HdfsTier, folder_at_home, folder_of
from offload_drivers.upload_records import gone
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import ObjectNotFoundError, OffloadError, StoreTimeoutError, UploadError

COPY = "copy"
"""The name of the file that blocks of more than one run are copied into."""

_TAG = re.compile(r"(run-[0-9a-f]{32}):([0-9]{1,18})\Z")
_PIECE_BYTES = 8 << 20
_POLL_S = 0.05


@dataclass(slots=True, eq=False, weakref_slot=True)
class _Run:
    """A file that this process is writing."""

    name: str
    client: HdfsClient
    writer: Any
    end: int = 0


@dataclass(slots=True, eq=False)
class _Writing:
    """Blocks of one upload that this process writes, one at a time."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    run: _Run | None = None


class Runs:
    """The runs that are open, of all uploads of one driver; a forked child begins without any."""

    def __init__(self) -> None:
        self._by_process: dict[int, dict[str, _Writing]] = {}

    def write(self, tier: HdfsTier, upload: Upload, data: memoryview) -> str:
        """Store a block; answer the receipt's tag."""
        writing = self._mine().setdefault(upload.upload_id, _Writing())
        with writing.lock:
            run = writing.run
            try:
                if run is None:
                    run = writing.run = _begin(tier, upload)
                place = run.end
                run.client.write(run.writer, data)
                run.client.sync(run.writer)
            except OffloadError as error:
                writing.run = None
                if not error.retryable and folder_of(tier, upload) is None:  # another process ended it
                    raise gone(upload) from error
                raise
            run.end += len(data)
            return f"{run.name}:{place}"

    def joined(
        self, tier: HdfsTier, upload: Upload, folder: str, receipts: Sequence[BlockReceipt], size_bytes: int
    ) -> str:
        """The name in the upload's folder of a file, closed, of just these blocks.

        It may be missing if a commit got further before: that is for the caller to judge.
        """
        places = [_place(upload, receipt) for receipt in receipts]
        closed = self._finish(upload)
        names = {name for name, _ in places}
        missing = [name for name in names if not _close(tier.client, f"{folder}/{name}", name == closed)]
        if missing:
            return COPY if len(names) > 1 else missing[0]
        first = places[0][0]
        in_order = all(
            place == (first, receipt.offset) for place, receipt in zip(places, receipts, strict=True)
        )
        status = tier.client.status(f"{folder}/{first}")
        if in_order and (status is None or status.length == size_bytes):
            return first
        _copy(tier.client, folder, places, receipts)
        for name in names:
            tier.client.remove(f"{folder}/{name}")
        return COPY

    def forget(self, upload: Upload) -> None:
        """Write no more to an upload that is over."""
        self._mine().pop(upload.upload_id, None)

    def close(self) -> None:
        """Close this process's runs; a later write begins new ones."""
        for writing in self._by_process.pop(os.getpid(), {}).values():
            if writing.run is not None:
                with contextlib.suppress(OffloadError):  # then the commit has it closed
                    writing.run.client.close_writer(writing.run.writer)

    def _mine(self) -> dict[str, _Writing]:
        return self._by_process.setdefault(os.getpid(), {})

    def _finish(self, upload: Upload) -> str:
        """Close this process's run of the upload; its name, empty if there is none or it could not be closed."""
        writing = self._mine().pop(upload.upload_id, None)
        if writing is None or writing.run is None:
            return ""
        with writing.lock:
            try:
                writing.run.client.close_writer(writing.run.writer)
            except OffloadError:  # or it is broken, and who has it closed finds what there is of it
                return ""
        return writing.run.name


def _begin(tier: HdfsTier, upload: Upload) -> _Run:
    name = new_name()
    writer = tier.client.writer(f"{folder_at_home(tier, upload)}/{name}")
    run = _Run(name=name, client=tier.client, writer=writer)
    kept_by_children(run)
    return run


def new_name() -> str:
    """The name of a new run."""
    return f"run-{uuid.uuid4().hex}"


def _place(upload: Upload, receipt: BlockReceipt) -> tuple[str, int]:
    """The run that a block lies in, and where in it."""
    found = _TAG.match(receipt.tag)
    if not found:
        raise UploadError(
            "a receipt is not of this upload", key=upload.key, block=receipt.part_number, found=receipt.tag
        )
    return found[1], int(found[2])


def _close(client: HdfsClient, path: str, is_closed: bool) -> bool:
    """Close a file, even if another process writes it; False if it is not there."""
    until = time.monotonic() + client.deadline_s
    try:
        while not is_closed and not client.recover_lease(path):
            if time.monotonic() > until:
                raise StoreTimeoutError(f"cannot have a file closed in {client.location}: it takes too long")
            time.sleep(_POLL_S)
    except ObjectNotFoundError:
        return False
    return True


def _copy(
    client: HdfsClient, folder: str, places: Sequence[tuple[str, int]], receipts: Sequence[BlockReceipt]
) -> None:
    """Copy blocks of several runs into one file, in the order of the receipts."""
    ends: dict[str, int] = {}
    for (name, start), receipt in zip(places, receipts, strict=True):
        path = f"{folder}/{name}"
        ends[path] = max(ends.get(path, 0), start + receipt.length)
    readers = client.readers(ends, len(ends))
    writer = client.writer(f"{folder}/{COPY}")
    for (name, start), receipt in zip(places, receipts, strict=True):
        reader, end = readers[f"{folder}/{name}"], start + receipt.length
        if end > reader.file_length():
            raise UploadError(
                "fewer bytes were written than a receipt says",
                block=receipt.part_number,
                expected=end,
                found=reader.file_length(),
            )
        for place in range(start, end, _PIECE_BYTES):
            wanted = (reader, place, min(_PIECE_BYTES, end - place))
            client.write(writer, memoryview(client.read_ranges([wanted], 1)[0]))
    client.close_writer(writer)
