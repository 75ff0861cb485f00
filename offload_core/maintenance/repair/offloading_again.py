"""Offload a ledger again, to a new copy, if its cold copy is damaged or gone and it has a hot copy.

The new copy is verified to its last byte, and against the hot entries, before the record names it. Its steps are those
of `managed_ledger.copy_registry`; what is left of one that is broken off, the next call cleans.
Source: docs/repair.md."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from uuid import UUID, uuid4

from offload_core.format.codec.object_format import TOPIC_KEY, ObjectKey
from offload_core.maintenance.repair.damage_judging import AS_WRITTEN
from offload_core.maintenance.verify import Severity
from offload_core.maintenance.verify.deep import check_data
from offload_core.maintenance.verify.pair_checks import examine
from offload_core.metadata.catalogue.known_tiers import KnownTiers, tier_record
from offload_core.metadata.catalogue.listing import find_pair
from offload_core.metadata.records import EntryPosition, LedgerRecord, OtherCopy, ledger_copy_key
from offload_core.metadata.records.filter_record import FilterMode, FilterRecord
from offload_core.metadata.records.ledger_changes import LedgerCounts, copies_read, counts_of
from offload_core.metadata.records.replacements import CopyForm
from offload_core.metadata.records.segments import shares_of
from offload_core.metadata.stores import ManagedLedgerRecords
from offload_core.reading.read_handles import ColdReader, ColdReaders, ReadMemory
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_core.writing.managed_ledger import Environment
from offload_core.writing.managed_ledger.copy_registry import RecordRegistry, Replacement
from offload_core.writing.managed_ledger.environment import NAME_KEY
from offload_core.writing.managed_ledger.followed_transactions import open_filter
from offload_core.writing.offload import LedgerOffloader
from offload_core.writing.offload.ledger_offloader import OffloadProgress
from offload_core.writing.offload_filters import FilterRun
from offload_hooks.errors import (
    AttemptError,
    DataLossError,
    OffloadError,
    OutcomeUnknownError,
    UnknownLedgerError,
)
from offload_hooks.ledger_stores import LedgerReader, LedgerStatus, LedgerStore


def find_hot(store: LedgerStore, name: str, ledger_id: int) -> LedgerStatus | None:
    """A managed ledger's ledger as the hot tier has it; None if it has none of this id, or another's.

    Raises:
        StoreError, FormatError: it cannot be read.
    """
    try:
        with closing(store.open(ledger_id)) as reader:
            status = reader.status()
    except UnknownLedgerError:
        return None
    return status if status.custom_metadata.get(NAME_KEY) == name.encode() else None


def why_hot_forbids(
    store: LedgerStore | None, name: str, ledger: LedgerRecord, counts: LedgerCounts
) -> str | None:
    """Return the reason why the hot copy contradicts these counts of its ledger; None if it does not.

    Args:
        store: the hot tier; None if it is not known.

    Raises:
        StoreError, FormatError: it cannot be read.
    """
    if not ledger.has_hot_copy:
        return None
    if store is None:
        return (
            "by its record the hot copy is there, and it was not asked: --config says where the hot tier is"
        )
    status = find_hot(store, name, ledger.ledger_id)
    if status is None:
        return "by its record the hot copy is there, and the hot tier does not have it"
    if not status.sealed:
        return "its hot copy is not sealed"
    found = LedgerCounts(entries=status.entry_count, size_bytes=status.size_bytes)
    return None if found == counts else f"its hot copy says otherwise: {found}"


_log = logging.getLogger(__name__)
_READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HotCopies:
    """Offloads hot copies again, as the service does whose records and ledgers these are.

    Attributes:
        environment: where the ledgers are, and which filter their entries go through.
        offloader_of: makes what writes a managed ledger's copies to a tier, by its name.
    """

    environment: Environment
    offloader_of: Callable[[Tier, str], LedgerOffloader] = lambda tier, _: LedgerOffloader(tier)

    @property
    def store(self) -> LedgerStore:
        """The hot tier."""
        return self.environment.hot.store

    def why_not(self, name: str, ledger: LedgerRecord) -> str | None:
        """Return why a ledger cannot be offloaded again, in words; None if it can.

        Raises:
            StoreError, FormatError: the hot tier cannot be read.
        """
        if shares_of(ledger):
            return "it is offloaded by segments"
        if not copies_read(ledger) or not ledger.info.is_closed:
            return "its record does not say that all of it is offloaded"
        status = find_hot(self.store, name, ledger.ledger_id)
        if status is None:
            return "the hot tier does not have it"
        if not status.entry_count:
            return "its hot copy is empty"
        return why_hot_forbids(self.store, name, ledger, counts_of(ledger))

    def offload(
        self,
        records: ManagedLedgerRecords,
        tier: Tier,
        name: str,
        ledger_id: int,
        old: UUID,
        audit: AuditLog,
        now_ms: Callable[[], int],
    ) -> tuple[ObjectKey, Replacement]:
        """Offload a ledger again; when it returns, the record names the new copy. Its key, and the steps.

        Args:
            records: where the ledger's record is switched.
            tier: where the new copy goes.
            name: of the managed ledger.
            ledger_id: of the ledger.
            old: the copy that is damaged, which the record names.
            audit: records each change before it is made.
            now_ms: the time, since 1970, UTC.

        Raises:
            LiveAttemptError: another process works on another copy of it; nothing was changed.
            AttemptError: the record, or the hot copy, is not such that it can be.
            DataLossError: the new copy is not what the hot one is; it was deleted.
            StoreError, FormatError, PluginError, UnresolvedTransactionError: of tiers, records, or the filter.
        """
        known = records.read(name)
        ledger = None if known is None else known.info.ledger(ledger_id)
        if known is None or ledger is None or copies_read(ledger) != (old,):
            raise AttemptError("the ledger has another copy by now", ledger_id=ledger_id, expected=old)
        why = self.why_not(name, ledger)
        if why is not None:
            raise AttemptError(f"the ledger cannot be offloaded again: {why}", ledger_id=ledger_id)
        last = EntryPosition(ledger_id, (ledger.info.entries or 0) - 1)
        run = open_filter(self.environment, name, last, known.info)
        if run is not None and not run.takes(last):
            raise AttemptError("the ledger's filter does not let it be offloaded yet", ledger_id=ledger_id)
        driver = tier_record(tier)
        key = ledger_copy_key(name, ledger_id, uuid4(), driver)
        copy = OtherCopy(
            uuid=key.uuid, form=CopyForm.LEDGER, driver=driver, since_ms=now_ms(), ledger_ids=(ledger_id,)
        )
        steps = Replacement(
            registry=RecordRegistry(records, now_ms),
            name=name,
            copy=copy,
            old=old,
            tier=tier,
            audit=audit,
            why="its copy is damaged, and is offloaded again",
        )
        with steps.attempt() as check:
            try:
                filters = self._write(steps, key, run, check)
                check()
                steps.switch(filters)
            except OutcomeUnknownError:
                raise  # it may be the one that is read: nothing is deleted on a guess
            except OffloadError as error:
                self._give_up(steps, error)
                raise
        return key, steps

    def _write(
        self, steps: Replacement, key: ObjectKey, run: FilterRun | None, check: Callable[[], None]
    ) -> dict[int, str]:
        """Write and verify; what the filter did, by ledger."""
        assert key.ledger_id is not None
        steps.audit.record(
            Change(
                action=ChangeAction.WRITE,
                why="its copy is damaged or gone, and its hot copy is there",
                managed_ledger=steps.name,
                ledger_id=key.ledger_id,
                uuid=key.uuid,
                key=key.data_key,
                after="all entries of the hot copy",
            )
        )

        def watch(_: OffloadProgress) -> None:
            check()

        with closing(self.store.open(key.ledger_id)) as reader:
            offloaded = self.offloader_of(steps.tier, steps.name).offload(
                reader, key.uuid, {TOPIC_KEY: steps.name}, filter_run=run, listener=watch
            )
            filter_record = offloaded.filter
            filters = {key.ledger_id: "" if filter_record is None else filter_record.pack(short=True)}
            record = steps.switched(filters).ledger(key.ledger_id)
            assert record is not None
            check_copy(steps.tier, key, record, steps.name, reader, check, filter_record)
        return filters

    def _give_up(self, steps: Replacement, error: OffloadError) -> None:
        try:
            steps.give_up(f"a ledger could not be offloaded again: {type(error).__name__}")
        except OffloadError as failure:
            _log.warning("attempt %s of %s is not cleaned up yet: %s", steps.copy.uuid, steps.name, failure)


def check_copy(
    tier: Tier,
    key: ObjectKey,
    record: LedgerRecord,
    name: str,
    hot: LedgerReader,
    check: Callable[[], None],
    filtered: FilterRecord | None = None,
) -> None:
    """Verify every byte of a new copy, and that its entries are those of the hot copy.

    Args:
        record: the ledger's, as it is to be.
        check: called now and then; what it raises ends it.
        filtered: what a filter did to them: what it left out is not there, or something in its place.

    Raises:
        DataLossError: it is not so.
        StoreError, FormatError: of either side.
    """
    pair = find_pair(tier, key)
    examined = None if pair is None else examine(tier, pair)
    if examined is None or examined.index is None or not examined.is_sound:
        raise DataLossError("a new copy is not there as a whole", key=key.data_key)
    result = check_data(tier, examined)
    findings = (*examined.findings, *result.findings)
    wrong = [each for each in findings if each.code.severity is Severity.ERROR]
    if result.is_gone or any(each.code not in AS_WRITTEN for each in wrong):
        found = wrong[0].code.value if wrong else "nothing"
        raise DataLossError("a new copy is not sound", key=key.data_key, found=found)
    if filtered is not None and filtered.mode is FilterMode.TOMBSTONE:
        return  # an empty frame is not the entry it replaces; the walk has counted what the filter kept
    with closing(ColdReaders(KnownTiers(tier), memory=ReadMemory()).open(record, name)) as reader:
        found_entries = _cold_entries(reader, record.info.entries or 0)
        cold = next(found_entries, None)
        for entry_id, payload in _hot_entries(hot, check):
            if cold is not None and cold[0] == entry_id and cold[1] == payload:
                cold = next(found_entries, None)
            elif filtered is None or (cold is not None and cold[0] <= entry_id):
                raise _other_entry(key, entry_id)
        if cold is not None:
            raise _other_entry(key, cold[0])


def _other_entry(key: ObjectKey, entry_id: int) -> DataLossError:
    return DataLossError(
        "an entry of a new copy is not that of the hot one",
        key=key.data_key,
        ledger_id=key.ledger_id,
        entry_id=entry_id,
    )


def _cold_entries(reader: ColdReader, count: int) -> Iterator[tuple[int, memoryview]]:
    begin = 0
    while begin < count:
        read = reader.read_sparse(begin, count - 1, _READ_BYTES)
        data, offsets = read.data.data, read.offsets.tolist()
        for number, entry_id in enumerate(read.entry_ids.tolist()):
            yield entry_id, data[offsets[number] : offsets[number + 1]]
        begin = read.stop_entry_id


def _hot_entries(reader: LedgerReader, check: Callable[[], None]) -> Iterator[tuple[int, memoryview]]:
    begin, stop = 0, reader.status().entry_count
    while begin < stop:
        check()
        batch = reader.read(begin, stop - 1, _READ_BYTES)
        yield from enumerate(batch, batch.first_entry_id)
        begin = batch.stop_entry_id
