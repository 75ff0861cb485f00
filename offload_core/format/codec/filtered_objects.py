"""What an object's user metadata says of entries that a filter took out while it was offloaded.

`pulsaroffloadfiltered` names the filter; who has the key is a filtered object. `pulsaroffloadfilteredmode` says what
took the place of such an entry: `gap`, nothing, so that ids are missing; `tombstone`, an entry of its own, so that none
is. Without a mode it is `gap`. Source: docs/formats/index.md, User metadata.
"""

from __future__ import annotations

from collections.abc import Mapping

FILTERED_KEY = "pulsaroffloadfiltered"
FILTERED_TRANSACTIONS = "transactions"
"""The filter that keeps settled entries only, and of transactions those that were committed."""

FILTERED_MODE_KEY = "pulsaroffloadfilteredmode"
TOMBSTONE_MODE = "tombstone"
GAP_MODE = "gap"

FILTERED_STOP_KEY = "pulsaroffloadfilteredstop"
"""The first position that the filter did not decide of."""
FILTERED_KEPT_KEY = "pulsaroffloadfilteredkept"
FILTERED_DROPPED_KEY = "pulsaroffloadfiltereddropped"
"""Entries and bytes, of an index object only."""


def filter_of(user_metadata: Mapping[str, str]) -> str | None:
    """The filter that an object was written through; None if it was through none."""
    return user_metadata.get(FILTERED_KEY)


def is_filtered(user_metadata: Mapping[str, str]) -> bool:
    """Whether an object was written through a filter, whichever."""
    return FILTERED_KEY in user_metadata


def has_gaps(user_metadata: Mapping[str, str]) -> bool:
    """Whether any ids may be missing on purpose. In other objects a missing id is damage."""
    return is_filtered(user_metadata) and user_metadata.get(FILTERED_MODE_KEY, GAP_MODE) != TOMBSTONE_MODE


def is_settled(user_metadata: Mapping[str, str]) -> bool:
    """Whether all entries of transactions that are left count as committed, with or without a marker."""
    return filter_of(user_metadata) == FILTERED_TRANSACTIONS
