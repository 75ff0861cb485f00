"""Tombstones: what takes the place of an entry that is dropped, so that Pulsar serves the rest to its consumers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from offload_core.codec.byte_arrays import Bytes
from offload_hooks.errors import OptionError

MOST_TOMBSTONE_BYTES = 128
"""No tombstone is longer."""


def replace_by_tombstones(
    data: Bytes, offsets: npt.NDArray[np.int64], dropped: npt.NDArray[np.bool_], first_entry_id: int
) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """The payloads, those that are dropped replaced by tombstones.

    Args:
        data: uint8, the payloads behind one another.
        offsets: int64, where each begins in `data`, and the end of the last.
        dropped: bool, of each.
        first_entry_id: the first one's id, for errors.

    Raises:
        FormatError: one that is dropped is no entry of Pulsar's; its id is said.
    """
    raise OptionError("tombstones are not made yet", entry_id=first_entry_id, found=(data, offsets, dropped))
