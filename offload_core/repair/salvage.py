"""What can be saved of a damaged object, written as a new one: blocks as the offloader cuts them, ids as they were.

Entries that are lost leave no trace but their missing ids, and what the user metadata of both objects says: nothing is
put in their place. A MapFile is saved into a PIP-17 object, which can say it. Source: docs/repair.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from uuid import UUID, uuid5

import numpy as np

from offload_core.codec.block_header import BLOCK_HEADER_BYTES, BlockHeader, pack_block_header
from offload_core.codec.frames import FRAME_HEADER_BYTES
from offload_core.codec.index import BlockEntry
from offload_core.codec.kernels.frames import fill_padding, frame_entries
from offload_core.codec.ledger_info import LedgerInfo
from offload_core.codec.object_format import ROLE_KEY, TOPIC_KEY, ObjectFormat, ObjectKey
from offload_core.codec.pip17 import plan_blocks
from offload_core.codec.salvaged_objects import LOST_KEY, REPAIRED_FROM_KEY, LostEntries
from offload_core.codec.streaming import LEAST_PADDING_BYTES, streaming_block_length
from offload_core.offload.attempt_objects import user_metadata
from offload_core.offload.ledger_offloader import DEFAULT_MAX_BLOCK_BYTES
from offload_core.repair.contents import Contents, FoundEntry, LedgerContents
from offload_core.repair.index_build import index_of
from offload_core.tier import Tier, upload_blocks

_NAMESPACE = UUID("6f3a1f0e-6a54-4d0c-9a57-1d1c6d8f7f51")
"""Of the uuids of salvaged objects."""


def salvaged_key(key: ObjectKey, contents: Contents) -> ObjectKey:
    """The key of the object that these contents are saved to: always the same one, so that a second call goes on."""
    digest = hashlib.sha256(key.data_key.encode())
    for ledger in contents.ledgers:
        digest.update(f"/{ledger.ledger_id} {ledger.first} {ledger.stop}".encode())
        places = [(entry.entry_id, entry.offset, entry.length) for entry in ledger.entries]
        digest.update(np.array(places, dtype=np.int64).tobytes())
    folder = "" if key.is_mapfile else key.folder
    return ObjectKey(
        folder=folder,
        uuid=uuid5(_NAMESPACE, digest.hexdigest()),
        ledger_id=key.ledger_id,
        is_index=False,
    )


@dataclass(slots=True, kw_only=True)
class Salvage:
    """One object to be saved.

    Args:
        lost: what is missing of it.
        said: user metadata of the old objects; `old_index` what there is of the old index.
        recorded: what records say of the ledgers.
    """

    key: ObjectKey
    contents: Contents
    lost: LostEntries
    said: Mapping[str, str]
    old_index: bytes
    recorded: Mapping[int, LedgerInfo]
    is_filtered: bool
    _blocks: dict[int, list[BlockEntry]] = field(default_factory=dict)
    _length: int = 0

    @property
    def target(self) -> ObjectKey:
        """Where it goes."""
        return salvaged_key(self.key, self.contents)

    def user_metadata(self, role: str) -> dict[str, str]:
        """Of the new object: what the old one said, and what is lost."""
        extra = {name: value for name, value in self.said.items() if name != ROLE_KEY}
        if self.key.managed_ledger is not None:
            extra[TOPIC_KEY] = self.key.managed_ledger
        extra[REPAIRED_FROM_KEY] = self.key.data_key
        if self.lost.count:
            extra[LOST_KEY] = self.lost.pack()
        return user_metadata(role, f"pulsar-offload {version('pulsar-offload')}", extra)

    def write(self, tier: Tier) -> None:
        """Write data object and index; nobody reads the one before the other is there.

        Raises:
            StoreError: of either.
        """
        self._blocks, self._length = {}, 0
        longest = max((entry.size for ledger in self.contents.ledgers for entry in ledger.entries), default=0)
        least = tier.describe().capabilities.min_block_bytes
        block_bytes = max(self._block_bytes(least), longest + BLOCK_HEADER_BYTES + FRAME_HEADER_BYTES + 4)
        upload_blocks(
            tier,
            self.target.data_key,
            self._built(tier, least),
            block_bytes=block_bytes,
            user_metadata=self.user_metadata("data"),
        )
        tier.write_index(self.target.index_key, self.index(), user_metadata=self.user_metadata("index"))

    def index(self) -> bytes:
        """The index of what was written."""
        ledgers = [
            replace(
                ledger,
                blocks=self._blocks[ledger.ledger_id],
                payload_bytes=sum(entry.size for entry in ledger.entries),
            )
            for ledger in self.contents.ledgers
            if ledger.ledger_id in self._blocks
        ]
        return index_of(
            self.target.object_format,
            replace(self.contents, ledgers=ledgers),
            old=self.old_index,
            recorded=self.recorded,
            data_length=self._length,
            is_filtered=self.is_filtered or bool(self.lost.count),
        )

    def _block_bytes(self, least: int) -> int:
        known = self.contents.block_bytes
        return (
            known if least <= known <= DEFAULT_MAX_BLOCK_BYTES and known >= 256 else DEFAULT_MAX_BLOCK_BYTES
        )

    def _built(self, tier: Tier, least: int) -> Iterator[memoryview]:
        is_streaming = self.target.object_format is ObjectFormat.STREAMING
        room = self._block_bytes(least) - (LEAST_PADDING_BYTES if is_streaming else 0)
        with_entries = [ledger for ledger in self.contents.ledgers if ledger.entries]
        for ledger in with_entries:
            lengths = np.array([entry.size for entry in ledger.entries], dtype=np.int64)
            plans = list(plan_blocks(lengths, room))
            for plan in plans:
                entries = ledger.entries[plan.first : plan.last]
                first = ledger.first if plan.first == 0 else entries[0].entry_id
                length = plan.block_length
                if is_streaming:
                    is_last = ledger is with_entries[-1] and plan is plans[-1]
                    content = sum(FRAME_HEADER_BYTES + entry.size for entry in entries)
                    length = streaming_block_length(content, 0 if is_last else least)
                yield self._block(tier, ledger, entries, first, length)

    def _block(
        self, tier: Tier, ledger: LedgerContents, entries: Sequence[FoundEntry], first: int, length: int
    ) -> memoryview:
        payloads = [self.contents.payload(entry) for entry in entries]
        header = BlockHeader(
            object_format=self.target.object_format,
            block_length=length,
            first_entry_id=first,
            ledger_id=ledger.ledger_id if self.target.ledger_id is None else None,
        )
        out = tier.new_block(length)
        out[:BLOCK_HEADER_BYTES] = np.frombuffer(pack_block_header(header), dtype=np.uint8)
        values = np.frombuffer(b"".join(payloads), dtype=np.uint8)
        offsets = np.concatenate([[0], np.cumsum([len(each) for each in payloads])]).astype(np.int64)
        ids = np.array([entry.entry_id for entry in entries], dtype=np.int64)
        end = frame_entries(values, offsets, ids, 0, len(entries), out, BLOCK_HEADER_BYTES)
        fill_padding(out, end, length)
        blocks = self._blocks.setdefault(ledger.ledger_id, [])
        number = sum(map(len, self._blocks.values())) + 1
        blocks.append(BlockEntry(first_entry_id=first, part_number=number, offset=self._length))
        self._length += length
        return out.data[:length]
