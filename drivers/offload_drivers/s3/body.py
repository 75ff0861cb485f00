"""The body of an upload's request: the caller's bytes themselves, no copy, sent piece by piece.

- Its SHA-256, where the signature covers it and the server checks it, is computed in the calling thread: the one thread
  that sends for all others would do it for one block after another, and send nothing meanwhile.
- It goes out once. The HTTP client makes a PUT that lost its connection again by itself; a create-only PUT that
  had succeeded would then be told that the object exists. Only a rewind, botocore's for another region, allows it.
- It knows how much of it was taken, so that a server which stopped reading is noticed, however slow the line.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from botocore.auth import AUTH_TYPE_MAPS, UNSIGNED_PAYLOAD, S3SigV4Auth
from botocore.handlers import S3_SIGNING_NAMES
from isal import isal_zlib

from offload_hooks import ReadableBuffer

_PIECE_BYTES = 256 << 10
_SIGNER = "pulsar-offload-s3v4"


class BlockBody:
    """Bytes as botocore signs and aiohttp sends them; `signed` says whether the signature covers them."""

    def __init__(self, data: ReadableBuffer, *, signed: bool) -> None:
        self._view = memoryview(data).cast("B")
        self._length = self._view.nbytes
        self._position = 0
        self._may_go_out = True
        self.content_hash = hashlib.sha256(self._view).hexdigest() if signed else UNSIGNED_PAYLOAD
        self.taken_bytes = 0

    def crc32(self) -> str:
        """The CRC-32 of all of it, as S3 writes it: big-endian, in base 64."""
        return base64.b64encode(isal_zlib.crc32(self._view).to_bytes(4, "big")).decode()

    def __len__(self) -> int:
        return self._length

    def read(self, size: int | None = -1) -> memoryview:
        """The next bytes; by having this, a body is a file to botocore."""
        end = self._length if size is None or size < 0 else self._position + size
        piece = self._view[self._position : end]
        self._position += piece.nbytes
        return piece

    def tell(self) -> int:
        """The position of the next `read`."""
        return self._position

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to an offset, as in a file."""
        self._position = offset + (0, self._position, self._length)[whence]
        self._may_go_out = True
        return self._position

    async def __aiter__(self) -> AsyncIterator[memoryview]:
        if not self._may_go_out:
            raise ConnectionResetError("the connection was lost, and the request is not made again")
        self._may_go_out = False
        for start in range(0, self._length, _PIECE_BYTES):
            yield self._view[start : start + _PIECE_BYTES]
            self.taken_bytes = start + _PIECE_BYTES

    def release(self) -> None:
        """Release the caller's bytes, even if the body is still referenced."""
        self._view.release()


async def watched(request: Coroutine[Any, Any, Any], body: BlockBody, stalled_s: float) -> Any:
    """The answer of a request that sends `body`; `TimeoutError` when nothing is taken of it for so long."""
    task = asyncio.ensure_future(request)
    taken = -1
    try:
        while not (await asyncio.wait({task}, timeout=stalled_s))[0]:
            # Once all is taken the HTTP client's own time-out for the answer runs.
            if taken == body.taken_bytes < len(body):
                raise TimeoutError("the server takes nothing more of the body")
            taken = body.taken_bytes
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


def sign_bodies(session: Any) -> None:
    """Make all clients of a botocore session take the hash that a `BlockBody` brings along."""
    AUTH_TYPE_MAPS.setdefault(_SIGNER, _BlockSigner)
    for operation in ("UploadPart", "PutObject"):
        session.register(f"choose-signer.s3.{operation}", _choose_signer)


class _BlockSigner(S3SigV4Auth):  # type: ignore[misc]
    """Signature version 4 with the hash that a body brings along."""

    def payload(self, request: Any) -> Any:
        body = request.data
        return body.content_hash if isinstance(body, BlockBody) else super().payload(request)


def _choose_signer(signature_version: Any, signing_name: Any, **_: Any) -> str | None:
    # Before botocore's own handler, which makes s3v4 of v4 for these names. Other ways to sign stay as they are.
    ours = signature_version in ("v4", "s3v4") and signing_name in S3_SIGNING_NAMES
    return _SIGNER if ours else None
