"""Whether a new copy is what the old one was, before it takes its place: each of its bytes, and each entry.

Every byte is verified as by `offload verify --deep`, and what will read it opens it; of a copy in another format the
entries that come out have the ids, lengths and bytes of those that went in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

from offload_core.catalogue.known_tiers import KnownTiers
from offload_core.catalogue.listing import Pair, listed_of, look_up, look_up_pair
from offload_core.codec.object_format import ObjectKey
from offload_core.metadata import ManagedLedgerInfo
from offload_core.read_handles import ColdReaders, ReadMemory
from offload_core.relocate.kept_entries import EntrySums, sums_of
from offload_core.tier import Tier
from offload_core.verify import Code, Severity
from offload_core.verify.deep import DeepCheck, DeepTask
from offload_core.verify.findings import Finding
from offload_core.verify.objects import examine
from offload_hooks.errors import DataLossError


def check_objects(tier: Tier, key: ObjectKey) -> None:
    """Verify every byte of an attempt.

    Raises:
        DataLossError: something is wrong with it, as its first finding says.
        StoreError: of the tier.
    """
    examined = examine(tier, attempt_at(tier, key))
    if examined is None or examined.index is None or examined.pair.data is None:
        findings = [] if examined is None else examined.findings
        _refuse(key, findings)
        raise DataLossError("a new copy is not there as a whole", key=key.data_key)
    _refuse(key, examined.findings)
    result = DeepCheck(tier=tier)(DeepTask.of(0, examined))
    if result.failure is not None:
        raise result.failure
    if result.is_gone:
        raise DataLossError("a new copy has gone while it was verified", key=key.data_key)
    _refuse(key, list(result.findings))


def check_entries(
    tiers: KnownTiers,
    name: str,
    info: ManagedLedgerInfo,
    ledger_ids: Sequence[int],
    expected: Mapping[int, EntrySums],
) -> None:
    """Open ledgers as a record says that they are, and compare all their entries.

    Args:
        info: the record as it is to be.
        expected: of a ledger, what its entries were; of others they are not read.

    Raises:
        DataLossError: they are others.
        StoreError, FormatError: they cannot be read.
    """
    readers = ColdReaders(tiers, memory=ReadMemory())
    for ledger_id in ledger_ids:
        ledger, sums = info.ledger(ledger_id), expected.get(ledger_id)
        assert ledger is not None
        with closing(readers.open(ledger, name)) as reader:
            found = sums if sums is None else sums_of(reader, ledger.info.entries or 0)
        if found is not None and sums is not None and found != sums:
            raise DataLossError(
                "the entries of a new copy are not those of the old one",
                ledger_id=ledger_id,
                expected=f"{sums.entries} entries, {sums.payload_bytes} bytes, CRC-32 {sums.bytes_crc:08x}",
                found=f"{found.entries} entries, {found.payload_bytes} bytes, CRC-32 {found.bytes_crc:08x}",
            )


def _refuse(key: ObjectKey, findings: list[Finding]) -> None:
    for finding in findings:
        if finding.code is Code.LOST_ENTRIES:
            continue  # the old copy lacks them as well, and both say so
        if finding.code.severity is Severity.ERROR:
            raise DataLossError(
                f"a new copy is not sound: {finding.code.value}: {finding.what}",
                key=finding.key or key.data_key,
                ledger_id=finding.ledger_id,
                expected=finding.expected,
                found=finding.found,
                hint="The old copy is as it was. If that is damaged, `offload verify --deep` says so.",
            )


def attempt_at(tier: Tier, key: ObjectKey) -> Pair:
    """An attempt as it would be listed."""
    pair = look_up_pair(tier, key)
    pair.block_checksums = listed_of(look_up(tier, key.block_checksums_key))
    return pair
