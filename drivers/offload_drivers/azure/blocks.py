"""Blocks of a blob as Azure takes them: their ids, and the bytes of a request, sent as they lie in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from offload_drivers.upload_records import check_upload_id
from offload_hooks import BlockReceipt, Upload
from offload_hooks.errors import UploadError

_PIECE_BYTES = 256 << 10


def block_id(upload: Upload, part_number: int, length: int) -> str:
    """The id of a block: upload, part and length, so that a blob's list of blocks tells whose it is and how long.

    All ids of a blob must be equally long, and no longer than 64 bytes. A block that is written again has the same id
    and replaces the first one, if it is as long; otherwise the first is no part of any commit and is dropped by it.
    """
    return f"{upload.upload_id}.{part_number:05d}.{length:08x}"


def block_ids(upload: Upload, receipts: Sequence[BlockReceipt]) -> list[str]:
    """The ids of a commit; `UploadError` for a receipt that is not of this upload."""
    check_upload_id(upload)
    ids = []
    for receipt in receipts:
        ids.append(block_id(upload, receipt.part_number, receipt.length))
        if receipt.tag != ids[-1]:
            raise UploadError(
                "a receipt is not of this upload",
                key=upload.key,
                block=receipt.part_number,
                found=receipt.tag,
            )
    return ids


class RequestBody:
    """The bytes of one request, piece by piece, without a copy.

    The HTTP client cannot rewind it, and so never sends such a request twice behind our back: a create-only write
    that was made twice would be told that the object exists. Nor does the client limit how long the server may take
    none of the bytes; `stall`, in whose scope the request must be made, does.
    """

    def __init__(self, view: memoryview, stall: asyncio.Timeout, patience_s: float) -> None:
        self._view = view
        self._stall = stall
        self._patience_s = patience_s

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        now = asyncio.get_running_loop().time
        for start in range(0, self._view.nbytes, _PIECE_BYTES):
            self._stall.reschedule(now() + self._patience_s)
            yield self._view[start : start + _PIECE_BYTES]
        self._stall.reschedule(None)  # from here on the client's own time-out for the answer counts

    def instead(self) -> Callable[[Any], None]:
        """A hook that puts this body into a request which the SDK was given a copy for."""

        def hook(request: Any) -> None:
            request.http_request.set_streamed_data_body(self)

        return hook
