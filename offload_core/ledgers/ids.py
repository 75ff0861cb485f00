"""Ledger ids: each is given once, by whichever process, and is greater than all before it, also than those deleted.

A file beside the ledgers says how many were given, in two slots that are written in turn. Who creates a ledger holds
its lock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from offload_core.ledgers.files import locked, read_up_to, sync_file, write_all
from offload_core.messages.checksum import crc32c
from offload_hooks.errors import ChecksumError
from offload_hooks.private_files import sync_directory

FILE_NAME = "next-ledger-id"

_SLOT_BYTES = 512
_MAGIC = b"PuLI"


@contextmanager
def next_ledger_id(
    root: str, timeout_s: float, has_ledgers: Callable[[], bool], *, at_least: int = 0
) -> Iterator[int]:
    """A new id, durably taken; others wait until the block ends.

    Args:
        at_least: no less than this.
        has_ledgers: asked where no id was ever given.

    Raises:
        ChecksumError: the file is damaged; never is an id given again.
        StoreTimeoutError: another process holds the lock for longer.
    """
    path = os.path.join(root, FILE_NAME)
    with locked(path, os.O_RDWR | os.O_CREAT, timeout_s) as descriptor:
        slots = [read_up_to(descriptor, 16, place * _SLOT_BYTES) for place in (0, 1)]
        counts = [_parse(slot) for slot in slots]
        newest = max(range(2), key=lambda place: counts[place] or 0)
        given, place = counts[newest] or 0, 1 - newest
        if not given and (any(map(_is_written, slots)) or has_ledgers()):
            raise ChecksumError(
                "the file of ledger ids is damaged or was removed",
                key=path,
                offset=0,
                hint="No ledger can be created before the greatest id ever used is known.",
            )
        is_new = not given
        given = max(given, at_least)
        is_damaged = counts[place] is None and _is_written(slots[place])
        given += is_damaged  # it may have been one more
        for _ in range(2 if is_damaged else 1):  # so that the slots are one apart again
            given += 1
            write_all(descriptor, _pack(given), place * _SLOT_BYTES)
            sync_file(descriptor)
            place = 1 - place
        if is_new:
            sync_directory(root)
        yield given - 1


def _is_written(slot: bytes) -> bool:
    return bool(slot.strip(b"\0"))


def _pack(count: int) -> bytes:
    head = _MAGIC + count.to_bytes(8, "big")
    return head + crc32c(head).to_bytes(4, "big")


def _parse(slot: bytes) -> int | None:
    head, checksum = slot[:12], slot[12:16]
    whole = len(checksum) == 4 and head[:4] == _MAGIC and crc32c(head) == int.from_bytes(checksum, "big")
    return int.from_bytes(head[4:], "big") if whole else None
