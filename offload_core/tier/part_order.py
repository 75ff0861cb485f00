"""Blocks in the order of their part numbers, for drivers that declare `ordered_parts`.

A block that comes early waits for those before it, so **all earlier parts must be written concurrently by
other threads, or have been written**: a thread that writes part 2 and then part 1 of the same upload waits
for ever, and so does a pool of n threads that is given n later parts before part 1. Hand parts to a pool in
order. When a part fails, those that wait for it fail as well (`UploadError`), rather than wait for a retry
that may never come; the failed part and then the later ones may be written again. Committing or aborting an
upload ends all waiting for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import UploadError


@dataclass(slots=True, eq=False)
class _Progress:
    """How far one upload has come; guarded by its condition."""

    turn: threading.Condition = field(default_factory=threading.Condition)
    next_part: int = 1
    writing: bool = False
    failed_part: int | None = None
    ended: bool = False


class PartOrder:
    """Lets the blocks of each upload through one after another, in order of their part numbers.

    It knows the uploads that were begun here. One that was begun elsewhere goes straight to the driver:
    whoever continues another process's upload must keep the order.
    """

    def __init__(self) -> None:
        self._uploads: dict[Upload, _Progress] = {}

    def begin(self, upload: Upload) -> None:
        """From now on order the parts of this upload, which is new."""
        self._uploads[upload] = _Progress()

    def write(self, upload: Upload, part_number: int, write: Callable[[], BlockReceipt]) -> BlockReceipt:
        """Call `write` when it is this part's turn; a part that was written before may be written again."""
        progress = self._uploads.get(upload)
        if progress is None:
            return write()
        self._take_turn(progress, upload, part_number)
        failed: int | None = part_number
        try:
            receipt = write()
            failed = None
        finally:
            with progress.turn:
                progress.writing = False
                progress.failed_part = failed
                if failed is None:
                    progress.next_part = max(progress.next_part, part_number + 1)
                progress.turn.notify_all()
        return receipt

    def end(self, upload: Upload) -> None:
        """Forget an upload; whoever still waits to write to it gets an `UploadError`."""
        progress = self._uploads.pop(upload, None)
        if progress is not None:
            with progress.turn:
                progress.ended = True
                progress.turn.notify_all()

    def _take_turn(self, progress: _Progress, upload: Upload, part_number: int) -> None:
        with progress.turn:
            while progress.writing or part_number > progress.next_part:
                self._check(progress, upload, part_number)
                progress.turn.wait()
            self._check(progress, upload, part_number)
            progress.writing = True

    def _check(self, progress: _Progress, upload: Upload, part_number: int) -> None:
        if progress.ended:
            raise UploadError(
                "the upload was ended before this block's turn came", key=upload.key, block=part_number
            )
        if progress.failed_part is not None and part_number > progress.failed_part:
            raise UploadError(
                f"block {progress.failed_part} failed, and this store takes blocks in order only",
                key=upload.key,
                block=part_number,
                hint="Write the failed block again and then this one, or abort the upload.",
            )
