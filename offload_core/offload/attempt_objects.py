"""What an offload attempt may have left in a tier, whatever there is of it, and its deletion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass

from offload_core.codec.object_format import ObjectKey
from offload_core.tier import Tier
from offload_hooks.errors import ObjectExistsError, ObjectNotFoundError, StoreError


def delete_attempt(tier: Tier, key: ObjectKey) -> None:
    """Delete an attempt's uploads, its index, its data object and their checksums; nothing is there when it returns.

    Raises:
        StoreError: the store fails; it can be called again.
    """
    abort_uploads(tier, key)
    delete_objects(tier, [key])


def abort_uploads(tier: Tier, key: ObjectKey) -> None:
    """Abort what an attempt has left of uploads. `StoreError`: the store fails; it can be called again."""
    if tier.describe().capabilities.stale_uploads:
        with suppress(ObjectNotFoundError):  # a tier that nothing was ever written to
            for name in (key.data_key, *(key.checksum_keys or ())):
                for stale in tier.list_uploads(name):
                    tier.abort_data(stale.upload)


def delete_objects(tier: Tier, keys: Sequence[ObjectKey]) -> None:
    """Delete the objects of these attempts, not their uploads, by two calls.

    The indexes go first, so that nobody finds an index without its data, and with them what lies beside the two, so
    that nothing is left of it that no listing of attempts finds.

    Raises:
        StoreError: the store fails; it can be called again.
    """
    tier.delete([name for key in keys for name in (key.index_key, *key.companion_keys)])
    tier.delete([key.data_key for key in keys])


def delete_unless(
    tier: Tier, keys: Sequence[ObjectKey], needed: Callable[[], AbstractContextManager[Collection[ObjectKey]]]
) -> None:
    """Delete the objects of these attempts as `delete_objects`, but keep those that are needed by then.

    The indexes go first. From then on who records an attempt finds that it is not whole; who did so before is found by
    `needed`, and the index is put back.

    Args:
        needed: gives, once the indexes are gone, the attempts that are needed after all; in its block the others go. If
            it raises, all indexes are put back.

    Raises:
        StoreError: the store fails; it can be called again. What `needed` raises.
    """
    indexes = {key: index for key in keys if (index := _read_index(tier, key)) is not None}
    tier.delete([key.index_key for key in keys])
    with ExitStack() as stack:
        try:
            spared = stack.enter_context(needed())
        except Exception:
            _put_back(tier, indexes, keys)
            raise
        _put_back(tier, indexes, spared)
        rest = [key for key in keys if key not in spared]
        tier.delete([name for key in rest for name in key.companion_keys])
        tier.delete([key.data_key for key in rest])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Index:
    data: bytes
    content_type: str
    user_metadata: Mapping[str, str]


def _read_index(tier: Tier, key: ObjectKey) -> _Index | None:
    try:
        stat = tier.stat(key.index_key)
        data = bytes(tier.read_range(key.index_key, 0, stat.size_bytes))
    except ObjectNotFoundError:
        return None
    return _Index(data=data, content_type=stat.content_type, user_metadata=stat.user_metadata)


def _put_back(tier: Tier, indexes: Mapping[ObjectKey, _Index], keys: Iterable[ObjectKey]) -> None:
    """Write indexes once more, as far as they are not there again; all of them, then the first error is raised."""
    create_only = tier.describe().capabilities.create_only
    failed: StoreError | None = None
    for key in keys:
        index = indexes.get(key)
        if index is None:
            continue
        try:
            with suppress(ObjectExistsError):
                tier.write_index(
                    key.index_key,
                    index.data,
                    content_type=index.content_type,
                    user_metadata=index.user_metadata,
                    create_only=create_only,
                )
        except StoreError as error:
            failed = failed or error
    if failed is not None:
        raise failed
