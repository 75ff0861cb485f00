"""The objects of an offload attempt: their user metadata, the checksum file beside them, and their deletion.

Checksums are taken from the blocks before they go, and written before the index. The index also has BookKeeper's record
of the ledger. Source: docs/formats/index.md, User metadata; docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress

from offload_core.format.codec.block_checksums import BlockChecksums, pack_block_checksums
from offload_core.format.codec.crc32c import crc32c
from offload_core.format.codec.ledger_metadata import DigestType, Ensemble, LedgerMetadata, LedgerState
from offload_core.format.codec.object_format import (
    FORMAT_VERSION,
    FORMAT_VERSION_KEY,
    ROLE_KEY,
    SOFTWARE_VERSION_KEY,
    ObjectKey,
)
from offload_core.format.codec.object_marks import (
    FILTERED_DROPPED_KEY,
    FILTERED_KEPT_KEY,
    FILTERED_KEY,
    FILTERED_MODE_KEY,
    FILTERED_STOP_KEY,
)
from offload_core.metadata.catalogue.index_reading import MAX_INDEX_BYTES
from offload_core.metadata.records.filter_record import RECORD_KEY, FilterRecord
from offload_core.storage.tier import Tier
from offload_core.writing.offload_filters import FilterRun
from offload_hooks import WholeObject
from offload_hooks.errors import ObjectExistsError, ObjectNotFoundError, StoreError
from offload_hooks.ledger_stores import LedgerStatus

_NO_BOOKIE = "bookie:0"
"""BookKeeper's record names a bookie for each ensemble; the embedded store has none."""


def user_metadata(role: str, software_version: str, extra: Mapping[str, str]) -> dict[str, str]:
    """User metadata of an object; `role` is `data`, `index`, `checksums`. Keys are lower-case; ours go before those of
    `extra`.
    """
    return {key.lower(): value for key, value in extra.items()} | {
        FORMAT_VERSION_KEY: FORMAT_VERSION,
        SOFTWARE_VERSION_KEY: software_version,
        ROLE_KEY: role,
    }


def filter_metadata(run: FilterRun | None) -> dict[str, str]:
    """User metadata of an object whose entries go through a filter, made before they do."""
    if run is None:
        return {}
    stop = {} if run.stop is None else {FILTERED_STOP_KEY: str(run.stop)}
    return {FILTERED_KEY: run.name, FILTERED_MODE_KEY: run.mode.value, **stop}


def filter_counts(record: FilterRecord | None) -> dict[str, str]:
    """User metadata of an index whose entries went through a filter: entries and bytes, beside `filter_metadata`."""
    if record is None:
        return {}
    counts = ((FILTERED_KEPT_KEY, record.kept), (FILTERED_DROPPED_KEY, record.total_dropped))
    return {key: f"{count.entries} entries, {count.payload_bytes} bytes" for key, count in counts}


def ledger_metadata(status: LedgerStatus, record: FilterRecord | None = None) -> LedgerMetadata:
    """BookKeeper's metadata of a sealed ledger that lies in another store; and what a filter did to it.

    Entries and length stay the ledger's, whatever was filtered.
    """
    custom = dict(status.custom_metadata)
    if record is not None:
        custom[RECORD_KEY] = record.pack().encode()
    return LedgerMetadata(
        write_quorum_size=1,
        ensemble_size=1,
        ack_quorum_size=1,
        length=status.size_bytes,
        last_entry_id=status.entry_count - 1,
        state=LedgerState.CLOSED,
        ensembles=(Ensemble(first_entry_id=0, members=(_NO_BOOKIE,)),),
        digest_type=DigestType.CRC32C,
        ctime_ms=status.created_at_ms,
        custom=tuple(sorted(custom.items())),
    )


class WrittenChecksums:
    """The checksums of one attempt. Blocks may come from many threads, each once."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[int, int]] = {}

    def of(self, blocks: Iterable[memoryview]) -> Iterator[memoryview]:
        """These blocks, in their order, each as it is, after it was taken."""
        for number, block in enumerate(blocks, start=1):
            self.take(number, block)
            yield block

    def take(self, part_number: int, block: memoryview) -> None:
        """Take a block, whose part number counts from 1."""
        self._blocks[part_number] = (len(block), crc32c(block))

    def write(self, tier: Tier, key: ObjectKey, index: bytes, about: Mapping[str, str]) -> None:
        """Write the checksums of all blocks and of the index, which is to be written next; `about` is user metadata.

        So where there is an index that its writer gave checksums, these are there.

        Raises:
            StoreError: the store fails.
        """
        blocks = [block for _, block in sorted(self._blocks.items())]
        checksums = BlockChecksums.of(len(index), crc32c(index), blocks)
        tier.write_index(key.block_checksums_key, pack_block_checksums(checksums), user_metadata=about)


def delete_attempt(tier: Tier, key: ObjectKey) -> None:
    """Delete an attempt's uploads, its index, its data object and their checksums; none is left when it returns.

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

    The indexes go first, so that no reader finds an index without its data, and with them what lies beside the two, so
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

    The indexes go first. A process that records an attempt after that finds that it is not whole; one that did so
    before is found by `needed`, and the index is put back.

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


def _read_index(tier: Tier, key: ObjectKey) -> WholeObject | None:
    try:
        return tier.read_object(key.index_key, MAX_INDEX_BYTES)
    except ObjectNotFoundError:
        return None


def _put_back(tier: Tier, indexes: Mapping[ObjectKey, WholeObject], keys: Iterable[ObjectKey]) -> None:
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
                    content_type=index.stat.content_type,
                    user_metadata=index.stat.user_metadata,
                    create_only=create_only,
                )
        except StoreError as error:
            failed = failed or error
    if failed is not None:
        raise failed
