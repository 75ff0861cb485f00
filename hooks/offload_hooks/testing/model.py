"""What a dict remembers of a tier: its objects, and the uploads that were begun."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from offload_hooks import BlockReceipt, Upload


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedObject:
    """An object as it must be found."""

    data: bytes
    user_metadata: Mapping[str, str]
    content_type: str


@dataclass(slots=True, kw_only=True, eq=False)
class ExpectedUpload:
    """An upload, the sizes of its blocks, and what was written of them."""

    upload: Upload
    sizes: list[int]
    user_metadata: Mapping[str, str]
    content_type: str
    blocks: dict[int, tuple[BlockReceipt, bytes]] = field(default_factory=dict)
    state: Literal["open", "gone", "ended by another"] = "open"

    def written(self) -> list[tuple[BlockReceipt, bytes]]:
        """The blocks from the first to the first that is not written yet."""
        return [
            self.blocks[part] for part in itertools.takewhile(self.blocks.__contains__, itertools.count(1))
        ]
