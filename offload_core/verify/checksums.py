"""The checksums beside a pair of objects, against what is known of the two without their blocks."""

from __future__ import annotations

import numpy as np

from offload_core.catalogue.listing import Pair
from offload_core.catalogue.reading import read_block_checksums
from offload_core.codec.block_checksums import BlockChecksums, block_lengths_of
from offload_core.codec.index import ObjectIndex
from offload_core.codec.object_format import ObjectFormat, ObjectKey
from offload_core.tier import Tier
from offload_core.verify.codes import Code
from offload_core.verify.findings import Finding, Findings, of_error
from offload_hooks.errors import FormatError, ObjectNotFoundError, UnsupportedVersionError


def checked_checksums(tier: Tier, pair: Pair, index_crc: int, found: Findings) -> BlockChecksums | None:
    """The checksums of a pair, whose index has this CRC-32C; None if there are none, or none that are of its objects.

    Raises:
        StoreError: the tier cannot be read.
    """
    listed, data, index = pair.block_checksums, pair.data, pair.index
    if listed is None or data is None or index is None:
        return None
    try:
        checksums = read_block_checksums(tier, pair.key, listed.size_bytes)
    except ObjectNotFoundError:
        return None
    except UnsupportedVersionError as error:
        found.add(of_error(Code.CHECKSUMS_VERSION, error))
        return None
    except FormatError as error:
        found.add(of_error(Code.CHECKSUMS_DAMAGED, error))
        return None
    stored = (data.size_bytes, index.size_bytes)
    if stored != (checksums.data_length, checksums.index_length):
        said = (checksums.data_length, checksums.index_length)
        found.add(
            _other(
                pair.key.block_checksums_key, *("{} and {} bytes".format(*each) for each in (said, stored))
            )
        )
        return None
    if checksums.index_crc != index_crc:
        code = Code.CHECKSUMS_INDEX
        found.add(
            Finding(
                code=code,
                what=code.meaning,
                key=pair.key.index_key,
                ledger_id=pair.key.ledger_id,
                expected=f"{checksums.index_crc:08x}",
                found=f"{index_crc:08x}",
            )
        )
    return checksums


def fits(checksums: BlockChecksums, key: ObjectKey, index: ObjectIndex, found: Findings) -> bool:
    """Whether the checksums are of the blocks that the index has; a MapFile's are of stretches of any length."""
    lengths = block_lengths_of(index)
    if index.object_format is ObjectFormat.MAPFILE or np.array_equal(lengths, checksums.lengths):
        return True
    said = f"{len(checksums.lengths)} blocks, {checksums.data_length} bytes"
    stored = f"{len(lengths)} blocks, {lengths.sum()} bytes"
    found.add(_other(key.block_checksums_key, said, f"{stored} by the index"))
    return False


def _other(key: str, expected: str, found: str) -> Finding:
    code = Code.CHECKSUMS_OTHER
    return Finding(code=code, what=code.meaning, key=key, expected=expected, found=found)
