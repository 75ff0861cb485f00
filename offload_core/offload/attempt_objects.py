"""What an offload attempt may have left in a tier, whatever there is of it, and its deletion."""

from __future__ import annotations

from contextlib import suppress

from offload_core.codec.object_format import ObjectKey
from offload_core.tier import Tier
from offload_hooks.errors import ObjectNotFoundError


def delete_attempt(tier: Tier, key: ObjectKey) -> None:
    """Delete an attempt's uploads, its index, its data object and their checksums; nothing is there when it returns.

    The index goes first, so that nobody finds an index without its data.

    Raises:
        StoreError: the store fails; it can be called again.
    """
    if tier.describe().capabilities.stale_uploads:
        with suppress(ObjectNotFoundError):  # a tier that nothing was ever written to
            for stale in tier.list_uploads(key.data_key):
                tier.abort_data(stale.upload)
    tier.delete([key.index_key])
    tier.delete([key.data_key, *key.companion_keys])
