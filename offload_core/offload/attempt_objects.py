"""What an offload attempt may have left in a tier, whatever there is of it, and its deletion."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from offload_core.codec.object_format import ObjectKey
from offload_core.tier import Tier
from offload_hooks.errors import ObjectNotFoundError


def delete_attempt(tier: Tier, key: ObjectKey) -> None:
    """Delete an attempt's uploads, its index, its data object and their checksums; nothing is there when it returns.

    Raises:
        StoreError: the store fails; it can be called again.
    """
    if tier.describe().capabilities.stale_uploads:
        with suppress(ObjectNotFoundError):  # a tier that nothing was ever written to
            for stale in tier.list_uploads(key.data_key):
                tier.abort_data(stale.upload)
    delete_objects(tier, [key])


def delete_objects(tier: Tier, keys: Sequence[ObjectKey]) -> None:
    """Delete the objects of these attempts, not their uploads, by two calls.

    The indexes go first, so that nobody finds an index without its data, and with them what lies beside the two, so
    that nothing is left of it that no listing of attempts finds.

    Raises:
        StoreError: the store fails; it can be called again.
    """
    tier.delete([name for key in keys for name in (key.index_key, *key.companion_keys)])
    tier.delete([key.data_key for key in keys])
