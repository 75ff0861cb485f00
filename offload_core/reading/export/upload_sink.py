"""Files as uploads to a Tier: what is written is stored block by block, and seen by nobody until it is committed."""

from __future__ import annotations

import io
from dataclasses import dataclass

from offload_core.reading.export.model import StagedUpload
from offload_core.storage.tier import Tier
from offload_hooks import BlockReceipt
from offload_hooks.values import ReadableBuffer

BLOCK_BYTES = 8 << 20


class UploadSink(io.RawIOBase):
    """A file that becomes an upload; holds at most a block of it."""

    def __init__(self, tier: Tier, key: str) -> None:
        super().__init__()
        self.file = self
        self._tier = tier
        self._upload = tier.begin_data(key)
        self._block_bytes = max(BLOCK_BYTES, tier.describe().capabilities.min_block_bytes)
        self._pending = bytearray()
        self._receipts: list[BlockReceipt] = []
        self._offset = 0

    def writable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """How many bytes were written."""
        return self._offset + len(self._pending)

    def write(self, data: ReadableBuffer) -> int:  # type: ignore[override]
        """Take bytes; whole blocks are stored."""
        view = memoryview(data).cast("B")
        self._pending += view
        while len(self._pending) >= self._block_bytes:
            self._store(self._block_bytes)
        return len(view)

    def finish(self) -> StagedUpload:
        """Store what is left."""
        if self._pending:
            self._store(len(self._pending))
        return StagedUpload(upload=self._upload, receipts=tuple(self._receipts))

    def discard(self) -> None:
        """Drop the upload."""
        self._tier.abort_data(self._upload)

    def _store(self, length: int) -> None:
        block = bytes(memoryview(self._pending)[:length])
        receipt = self._tier.write_block(self._upload, len(self._receipts) + 1, self._offset, block)
        self._receipts.append(receipt)
        self._offset += length
        del self._pending[:length]


@dataclass(frozen=True, slots=True)
class TierPlace:
    """Files are uploads to this Tier, named alike by whoever writes them: of several the commit makes one visible."""

    tier: Tier
    attempt: str = ""

    def open(self, key: str) -> UploadSink:
        """A new upload."""
        return UploadSink(self.tier, key)
