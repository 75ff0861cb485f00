"""What an entry's bytes tell of themselves: whether they are those that were written.

Pulsar's entries mostly have a CRC-32C over all but a broker's own metadata. One without it may have changed; whether it
can be parsed at all is some evidence, in objects whose other entries can.
"""

from __future__ import annotations

import enum
import struct

from offload_core.messages.checksum import crc32c
from offload_core.messages.entry import CHECKSUM_MAGIC, skip_broker_metadata, split_entry
from offload_hooks.errors import FormatError

_CHECKSUM_HEAD_BYTES = 6


class Verdict(enum.Enum):
    """How sure an entry's bytes are."""

    SOUND = "sound"
    """Its checksum matches."""
    PLAIN = "plain"
    """It has no checksum, and nothing speaks against it."""
    UNSURE = "unsure"
    """It has no checksum, and cannot be parsed, though other entries of its object can."""
    BAD = "bad"
    """Its checksum does not match."""


def judge(entry: bytes, *, are_pulsars: bool) -> Verdict:
    """What is to be thought of an entry; `are_pulsars` if the object has entries of Pulsar's."""
    try:
        start = skip_broker_metadata(entry)
    except FormatError:
        return Verdict.UNSURE if are_pulsars else Verdict.PLAIN
    if len(entry) - start >= _CHECKSUM_HEAD_BYTES:
        magic, stored = struct.unpack_from(">HI", entry, start)
        if magic == CHECKSUM_MAGIC:
            found = crc32c(entry[start + _CHECKSUM_HEAD_BYTES :])
            return Verdict.SOUND if found == stored else Verdict.BAD
    return Verdict.PLAIN if not are_pulsars or can_be_parsed(entry) else Verdict.UNSURE


def can_be_parsed(entry: bytes) -> bool:
    """Whether it is an entry of Pulsar's, by its form."""
    try:
        split_entry(entry)
    except FormatError:
        return False
    return True
