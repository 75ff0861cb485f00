"""What the objects of an offloaded ledger say of themselves: user metadata, and BookKeeper's record in the index.

Source: docs/formats/index.md, User metadata; docs/formats/metadata.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from offload_core.codec.filtered_objects import (
    FILTERED_DROPPED_KEY,
    FILTERED_KEPT_KEY,
    FILTERED_KEY,
    FILTERED_MODE_KEY,
    FILTERED_STOP_KEY,
)
from offload_core.codec.ledger_metadata import DigestType, Ensemble, LedgerMetadata, LedgerState
from offload_core.codec.object_format import (
    FORMAT_VERSION,
    FORMAT_VERSION_KEY,
    ROLE_KEY,
    SOFTWARE_VERSION_KEY,
)
from offload_core.filters import FilterRecord, FilterRun
from offload_core.metadata.filter_record import RECORD_KEY
from offload_hooks.ledger_stores import LedgerStatus

_NO_BOOKIE = "bookie:0"
"""BookKeeper's record names a bookie for each ensemble; the embedded store has none."""


def user_metadata(role: str, software_version: str, extra: Mapping[str, str]) -> dict[str, str]:
    """What an object carries; `role` is `data`, `index` or `checksums`. Keys are lower-case; ours count before those of
    `extra`.
    """
    return {key.lower(): value for key, value in extra.items()} | {
        FORMAT_VERSION_KEY: FORMAT_VERSION,
        SOFTWARE_VERSION_KEY: software_version,
        ROLE_KEY: role,
    }


def filter_metadata(run: FilterRun | None) -> dict[str, str]:
    """User metadata of an object whose entries go through a filter: what is known before they do."""
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
    """What BookKeeper would say of a sealed ledger that lies in another store; and what a filter did to it.

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
