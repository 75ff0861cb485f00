"""The checksums of what is offloaded, taken from the blocks before they go, and written before the index."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from offload_core.codec.block_checksums import BlockChecksums, crc32c, pack_block_checksums
from offload_core.codec.object_format import ObjectKey
from offload_core.tier import Tier


class WrittenChecksums:
    """The checksums of one attempt. Blocks may come from many threads, each once."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[int, int]] = {}

    def of(self, blocks: Iterable[memoryview]) -> Iterator[memoryview]:
        """These blocks, in their order, each as it is, after it was taken."""
        for number, block in enumerate(blocks, start=1):
            self.take(number, block)
            yield block

    def take(self, part_number: int, block: memoryview) -> None:
        """Take a block, whose part number counts from 1."""
        self._blocks[part_number] = (len(block), crc32c(block))

    def write(self, tier: Tier, key: ObjectKey, index: bytes, about: Mapping[str, str]) -> None:
        """Write the checksums of all blocks and of the index, which is to be written next; `about` is user metadata.

        So where there is an index that its writer gave checksums, these are there.

        Raises:
            StoreError: the store fails.
        """
        blocks = [block for _, block in sorted(self._blocks.items())]
        checksums = BlockChecksums.of(len(index), crc32c(index), blocks)
        tier.write_index(key.block_checksums_key, pack_block_checksums(checksums), user_metadata=about)
