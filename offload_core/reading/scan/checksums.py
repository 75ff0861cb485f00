"""The part of a `.crc` file that covers a run of a MapFile, ready to verify the run's bytes as they come by.

Verified is every chunk that the run holds whole: all but the first and the last where a large ledger is split between
tasks, or read in part.
"""

from __future__ import annotations

from offload_core.format.codec.mapfile.checksums import (
    CHECKSUM_BYTES,
    HEAD_BYTES,
    ChecksumVerifier,
    parse_checksum_head,
)
from offload_core.reading.scan.tasks import Run
from offload_core.storage.tier import Tier
from offload_hooks.errors import BadLengthError, RangeError, placed


def checksum_verifier(tier: Tier, run: Run) -> ChecksumVerifier | None:
    """What verifies the run's bytes; None if its object has no checksums beside it.

    Raises:
        FormatError: the `.crc` file is none, or too short.
        StoreError: the store fails.
    """
    key, file = run.checksum_key, run.sequence_file
    if key is None or file is None:
        return None
    with placed(key=key):
        try:
            size = parse_checksum_head(tier.read_range(key, 0, HEAD_BYTES))
            first = run.blocks[0].offset // size
            last = -(-(run.blocks[-1].offset + run.blocks[-1].length) // size)
            checksums = tier.read_range(
                key, HEAD_BYTES + first * CHECKSUM_BYTES, (last - first) * CHECKSUM_BYTES
            )
        except RangeError as error:
            raise BadLengthError("a .crc file does not cover its file") from error
    return ChecksumVerifier(
        checksums=checksums, chunk_bytes=size, begin=first * size, data_length=file.length
    )
