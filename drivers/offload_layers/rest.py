"""What a layer calls: the hooks of everything below it, by keyword. The law of each is in `offload_hooks.specs`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from offload_hooks import (
    BlockReceipt,
    ByteRange,
    DriverDescription,
    ListedObject,
    ObjectStat,
    ReadableBuffer,
    StaleUpload,
    Upload,
    WholeObject,
)


class Rest(Protocol):
    """The hooks below a layer; usable from the first call on, not in the layer's constructor."""

    def describe(self) -> DriverDescription:
        """See `TierHooks`."""

    def begin_data(self, *, key: str, content_type: str, user_metadata: Mapping[str, str]) -> Upload:
        """See `TierHooks`."""

    def write_block(
        self, *, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        """See `TierHooks`."""

    def commit_data(
        self, *, upload: Upload, receipts: Sequence[BlockReceipt], create_only: bool
    ) -> ObjectStat:
        """See `TierHooks`."""

    def abort_data(self, *, upload: Upload) -> bool:
        """See `TierHooks`."""

    def write_index(
        self,
        *,
        key: str,
        data: ReadableBuffer,
        content_type: str,
        user_metadata: Mapping[str, str],
        create_only: bool,
    ) -> ObjectStat:
        """See `TierHooks`."""

    def read_range(self, *, key: str, offset: int, length: int) -> ReadableBuffer:
        """See `TierHooks`."""

    def read_ranges(self, *, ranges: Sequence[ByteRange]) -> list[ReadableBuffer]:
        """See `TierHooks`."""

    def read_object(self, *, key: str, most_bytes: int) -> WholeObject:
        """See `TierHooks`."""

    def stat(self, *, key: str) -> ObjectStat:
        """See `TierHooks`."""

    def list_objects(self, *, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """See `TierHooks`."""

    def delete(self, *, keys: Sequence[str]) -> int:
        """See `TierHooks`."""

    def list_uploads(self, *, prefix: str) -> Iterator[StaleUpload]:
        """See `TierHooks`."""
