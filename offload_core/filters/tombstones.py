"""Tombstones: what takes the place of an entry that is dropped, so that Pulsar serves the rest to its consumers.

The form of one is that of `pack_tombstone`, which is the kernel's twin. Markers stay as they are: brokers pass over
them as well, and who reads the topic again needs to know how transactions ended. Source: docs/formats/entry.md.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from offload_core.codec.byte_arrays import Bytes, read_only
from offload_core.messages.checksum import crc32c_address
from offload_core.messages.kernels import fields as f
from offload_core.messages.kernels import tombstones as kernels
from offload_core.messages.new_entry import pack_tombstone
from offload_hooks.errors import MetadataError, placed

_BEFORE = read_only(b"\x0a\x0fpulsar.filtered\x10\x00\x18")
_AFTER = read_only(b"\xa0\x01\x16")
"""Metadata of a tombstone, before and behind the publish time: producer name, sequence id; type of marker."""

MOST_TOMBSTONE_BYTES = 6 + 4 + len(_BEFORE) + 10 + len(_AFTER)
"""No tombstone is longer, but for what a broker put before its entry, which stays."""


def replace_by_tombstones(
    data: Bytes, offsets: npt.NDArray[np.int64], dropped: npt.NDArray[np.bool_], first_entry_id: int
) -> tuple[Bytes, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The payloads, those that are dropped replaced by tombstones, but for markers; and which were replaced.

    Args:
        data: uint8, the payloads behind one another.
        offsets: int64, where each begins in `data`, and the end of the last.
        dropped: bool, of each.
        first_entry_id: the first one's id, for errors.

    Raises:
        FormatError: one that is dropped is no entry of Pulsar's, or damaged; its id is said.
    """
    from offload_core.messages.arrays import new_bytes

    offsets = offsets.view()
    offsets.flags.writeable = False  # one compiled signature, whatever it was
    size = int(offsets[-1] - offsets[0]) + MOST_TOMBSTONE_BYTES * int(dropped.sum())
    _, out = new_bytes(size)
    out_offsets = np.empty_like(offsets)
    replaced = dropped.copy()
    row = np.empty(f.E_FIELDS, dtype=np.int64)
    done = kernels.replace(data, offsets, replaced, crc32c_address(), _BEFORE, _AFTER, row, out, out_offsets)
    if done < len(dropped):
        with placed(entry_id=first_entry_id + done):
            pack_tombstone(data[offsets[done] : offsets[done + 1]].tobytes())
            raise MetadataError("an entry's metadata is not right")
    made = out[: out_offsets[-1]]
    made.flags.writeable = False
    return made, out_offsets, replaced
