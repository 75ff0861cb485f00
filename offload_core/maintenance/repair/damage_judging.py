"""Judgement of one damaged pair of objects: what it still holds, what an index over it would be, what to do about it.

Executors judge pairs; a task and its decision are picklable, without what the pair holds. Another complete copy of the
damaged ledger makes it needless to save what is left: what is saved lacks what is lost, is newer than all other copies,
and would be read in their place. So a copy is looked for that is right to its last byte, has all entries that are
expected, and each that the damaged one still has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from offload_core.format.codec.decoder import parse_index
from offload_core.format.codec.entry_directory import STRIDE_BYTES
from offload_core.format.codec.index import ObjectIndex
from offload_core.format.codec.ledger_metadata import LedgerInfo, LedgerMetadata
from offload_core.format.codec.mapfile.index_file import parse_mapfile
from offload_core.format.codec.mapfile.sequence_file import FileCompression
from offload_core.format.codec.object_format import (
    CLUSTER_KEY,
    SOFTWARE_VERSION_KEY,
    TOPIC_KEY,
    ObjectFormat,
    ObjectKey,
)
from offload_core.format.codec.object_marks import LostEntries, ObjectMarks
from offload_core.format.codec.pip17 import pack_pip17_index
from offload_core.maintenance.repair.damaged_contents import (
    Contents,
    Expected,
    read_contents,
    read_mapfile_contents,
)
from offload_core.maintenance.repair.found_frames import ObjectBytes
from offload_core.maintenance.repair.mapfile_scan import MapFileScan
from offload_core.maintenance.repair.repair_plan import (
    OF_INDEX_METADATA,
    Action,
    Choice,
    Evidence,
    PlannedRepair,
    choose,
)
from offload_core.maintenance.repair.repair_targets import RecordedAttempt
from offload_core.maintenance.repair.salvage import (
    Salvage,
    has_entries,
    index_of,
    mapfile_index,
    pip17_metadata_in,
)
from offload_core.maintenance.verify import Code, Finding
from offload_core.maintenance.verify.deep import DeepCheck, DeepTask
from offload_core.maintenance.verify.pair_checks import Examined, examine
from offload_core.metadata.catalogue.index_reading import MAX_INDEX_BYTES
from offload_core.metadata.catalogue.listing import Pair, find_pair, stream_pairs
from offload_core.metadata.records.filter_record import indexed_filter
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError, ObjectNotFoundError, OffloadError

YOUNG = timedelta(minutes=10)
"""Of a data object without an index that is newer, or a MapFile, an offload may be under way."""

AS_WRITTEN = frozenset(
    {
        Code.MESSAGE_BAD_METADATA,
        Code.MESSAGE_BAD_LENGTH,
        Code.MESSAGE_DECOMPRESSION,
        Code.MESSAGE_BAD_BATCH,
    }
)
"""What is wrong with messages whose bytes may well be those that were written."""


@dataclass(slots=True, kw_only=True)
class Judged:
    """A pair, and what is done about it.

    Attributes:
        index: the bytes of an index made anew, where the data object is right.
        index_metadata: user metadata of that.
        salvage: what can be saved, where something can.
        lost: entries that cannot.
        other: another copy that makes it needless.
    """

    pair: Pair
    choice: Choice
    known: RecordedAttempt | None
    codes: Set[Code]
    index: bytes | None = None
    index_metadata: Mapping[str, str] | None = None
    salvage: Salvage | None = None
    lost: LostEntries | None = None
    entries: int = 0
    other: ObjectKey | None = None

    @property
    def key(self) -> ObjectKey:
        """The pair's key."""
        return self.pair.key

    @property
    def replacement(self) -> ObjectKey | None:
        """Return what takes its place: another copy, or what is saved of it."""
        if self.choice.action is Action.SALVAGE and self.salvage is not None:
            return self.salvage.target
        return self.other


def judge(
    tier: Tier, pair: Pair, findings: list[Finding], known: RecordedAttempt | None, *, now_ms: int
) -> Judged:
    """Look at all that is there of a pair, and decide.

    Raises:
        StoreError: the tier fails.
    """
    key = pair.key
    codes = {finding.code for finding in findings}
    index_codes = {finding.code for finding in findings if finding.key == key.index_key}
    said = _said(tier, pair)
    if pair.data is None:
        seen = Evidence(codes=codes, index_codes=index_codes, has_data=False)
        return Judged(pair=pair, choice=choose(seen), known=known, codes=codes)
    examined = examine(tier, pair)
    index = None if examined is None else examined.index
    old = _old_index(tier, pair)
    data = ObjectBytes(tier, key.data_key, pair.data.size_bytes)
    infos = {} if known is None else known.infos
    expected = _expected(key, index, old, known)
    scan: MapFileScan | None = None
    if key.is_mapfile:
        assert key.ledger_id is not None
        found = read_mapfile_contents(data, key, expected.get(key.ledger_id, Expected()))
        contents, scan = found.contents, found.scan
    else:
        contents = read_contents(
            data,
            key,
            index=index,
            expected=expected,
            gaps=ObjectMarks.of(said).has_gaps,
            lacks=ObjectMarks.of(said).lost is not None,
        )
    lost = _lost(contents, index, said)
    prior = ObjectMarks.of(said).lost
    damaged = any(ledger.damaged for ledger in contents.ledgers)
    is_right = contents.is_clean and not damaged and lost.count == (prior.count if prior else 0)
    made = None
    if is_right:
        made = _made(key, contents, scan, old, infos, data.size, said, index, codes)
    fits = made is not None and _fits(tier, pair, made, data, said)
    is_same = fits and made == old and not (index_codes & OF_INDEX_METADATA)
    salvage = Salvage(
        key=key,
        contents=contents,
        lost=lost,
        said=said,
        old_index=_metadata_of(scan, old),
        recorded=infos,
        is_filtered=ObjectMarks.of(said).is_filtered,
    )
    if Code.SUPERSEDED in codes and is_whole(tier, salvage):
        codes.remove(Code.SUPERSEDED)  # by what was saved of it
    checksums_only = (
        is_right and scan is not None and codes == {Code.MAPFILE_CHECKSUM} and _is_sure(scan, contents)
    )
    seen = Evidence(
        codes=codes,
        index_codes=index_codes,
        has_data=True,
        is_right=is_right,
        index_fits=fits and (not is_same or Code.INDEX_CHECKSUM in codes),
        entries=contents.entry_count,
        lost=lost,
        checksums_only=checksums_only,
        is_young=(Code.NO_INDEX in codes or key.is_mapfile) and known is None and _is_young(pair, now_ms),
    )
    return Judged(
        pair=pair,
        choice=choose(seen),
        known=known,
        codes=codes,
        index=made,
        index_metadata={**said, **({"role": "index"} if "role" in said else {})},
        salvage=salvage,
        lost=lost,
        entries=contents.entry_count,
    )


def is_whole(tier: Tier, salvage: Salvage) -> bool:
    """Return whether what was saved is there, and right to the last byte: each entry is that of the damaged object.

    Raises:
        StoreError: the tier fails.
    """
    pair = find_pair(tier, salvage.target)
    if pair is None or pair.data is None or pair.index is None:
        return False
    examined = examine(tier, pair)
    if examined is None or examined.index is None or not examined.is_sound:
        return False
    task = replace(DeepTask.of(0, examined), lost=salvage.lost.count)
    result = DeepCheck(tier=tier)(task)
    if result.failure is not None:
        raise result.failure
    if result.is_gone or any(each.code not in AS_WRITTEN for each in result.findings):
        return False
    return has_entries(tier, pair.key.data_key, examined.index, salvage.contents)


def _said(tier: Tier, pair: Pair) -> dict[str, str]:
    """User metadata of the pair: the data object's, else the index's."""
    for listed in (pair.data, pair.index):
        if listed is not None:
            try:
                return dict(tier.stat(listed.key).user_metadata)
            except (FormatError, ObjectNotFoundError):
                continue
    return {}


def _old_index(tier: Tier, pair: Pair) -> bytes:
    if pair.index is None or not 0 < pair.index.size_bytes <= MAX_INDEX_BYTES:
        return b""
    return bytes(tier.read_range(pair.key.index_key, 0, pair.index.size_bytes))


def _expected(
    key: ObjectKey, index: ObjectIndex | None, old: bytes, known: RecordedAttempt | None
) -> dict[int, Expected]:
    """Return which entries must be there: by the records, else by what is left of the index."""
    found: dict[int, Expected] = {}
    if key.object_format is ObjectFormat.PIP17 and key.ledger_id is not None:
        metadata = pip17_metadata_in(old)
        last = None if metadata is None else metadata.last_entry_id
        found[key.ledger_id] = Expected(first=0, stop=None if last is None else last + 1)
    elif index is not None and index.object_format is ObjectFormat.STREAMING:
        in_order = sorted(index.ledgers, key=lambda ledger: ledger.blocks[0].offset)
        for ledger in in_order:
            info = ledger.metadata
            goes_on = ledger is in_order[-1] and isinstance(info, LedgerInfo) and info.is_closed
            stop = None if goes_on or isinstance(info, LedgerMetadata) else info.entries
            found[ledger.ledger_id] = Expected(first=ledger.first_entry_id, stop=stop)
    for ledger_id, each in ({} if known is None else known.expected).items():
        before = found.get(ledger_id, Expected())
        found[ledger_id] = Expected(
            first=before.first if each.first is None else each.first,
            stop=before.stop if each.stop is None else each.stop,
        )
    return found


def _lost(contents: Contents, index: ObjectIndex | None, said: Mapping[str, str]) -> LostEntries:
    """Return what is missing; of an object with gaps only how many, as far as its index counts what was kept."""
    if not ObjectMarks.of(said).has_gaps:
        return contents.lost()
    lost = sum(len(ledger.damaged) for ledger in contents.ledgers)
    ids = [(each.ledger_id, i, i + 1) for each in contents.ledgers for i in each.damaged]
    for ledger in () if index is None else index.ledgers:
        try:
            record = indexed_filter(ledger)
        except FormatError:
            continue
        if record is not None:
            here = [each for each in contents.ledgers if each.ledger_id == ledger.ledger_id]
            missing = record.kept.entries - sum(len(each.entries) for each in here)
            known = sum(len(each.damaged) for each in here)
            lost += max(0, missing - known)
    return LostEntries(count=lost, ranges=tuple(sorted(ids)), is_all=lost == len(ids))


def _made(
    key: ObjectKey,
    contents: Contents,
    scan: MapFileScan | None,
    old: bytes,
    infos: Mapping[int, LedgerInfo],
    data_length: int,
    said: Mapping[str, str],
    index: ObjectIndex | None,
    codes: Set[Code],
) -> bytes:
    if scan is not None:
        assert scan.header is not None
        return mapfile_index(scan.records, key.data_key, scan.header.sync)
    is_ours = said.get(SOFTWARE_VERSION_KEY, "").startswith("pulsar-offload ")
    has_directory = (
        Code.INDEX_DIRECTORY in codes
        or (index is not None and index.directory is not None)
        or (is_ours and key.object_format is ObjectFormat.PIP17 and data_length > STRIDE_BYTES)
    )
    return index_of(
        key.object_format,
        contents,
        old=old,
        recorded=infos,
        data_length=data_length,
        is_filtered=ObjectMarks.of(said).is_filtered or ObjectMarks.of(said).lost is not None,
        with_directory=has_directory,
    )


def _fits(tier: Tier, pair: Pair, made: bytes, data: ObjectBytes, said: Mapping[str, str]) -> bool:
    """Return whether an index that was made anew is one, and all of the data object is as it says."""
    key, prior = pair.key, ObjectMarks.of(said).lost
    try:
        if key.is_mapfile:
            assert key.ledger_id is not None
            index = parse_mapfile(made, data.read(0, 1 << 20), data.size, key.ledger_id)
        else:
            index = parse_index(made, key)
    except FormatError:
        return False
    task = DeepTask(
        number=0,
        key=key,
        index=index,
        data_bytes=data.size,
        is_filtered=ObjectMarks.of(said).is_filtered,
        has_gaps=ObjectMarks.of(said).skips_ids,
        checksum_key=None,
        lost=0 if prior is None else prior.count,
    )
    result = DeepCheck(tier=tier)(task)
    if result.failure is not None:
        raise result.failure
    return not result.is_gone and all(each.code in AS_WRITTEN for each in result.findings)


def _is_sure(scan: MapFileScan, contents: Contents) -> bool:
    """Return whether the data's own checksums cover it, so that the `.crc` file must be what is wrong."""
    unsure = any(ledger.unsure for ledger in contents.ledgers)
    compressed = scan.header is not None and scan.header.compression is not FileCompression.NONE
    return compressed and not unsure


def _is_young(pair: Pair, now_ms: int) -> bool:
    assert pair.data is not None
    return datetime.fromtimestamp(now_ms / 1000, UTC) - pair.data.modified_at < YOUNG


def _metadata_of(scan: MapFileScan | None, old: bytes) -> bytes:
    """Return what is left of a MapFile's index, for a PIP-17 object made of it: one with its ledger's metadata."""
    if scan is None:
        return old
    return b"" if scan.metadata is None else pack_pip17_index(scan.metadata, [], 0)


def copies_of(tier: Tier, ledger_ids: Collection[int]) -> Mapping[int, list[ObjectKey]]:
    """The objects that are of one of these ledgers alone, by ledger; of whichever topic.

    Raises:
        StoreError: the tier cannot be listed.
    """
    found: dict[int, list[ObjectKey]] = defaultdict(list)
    for pair in stream_pairs(tier) if ledger_ids else ():
        ledger_id = pair.key.ledger_id
        if ledger_id in ledger_ids and ledger_id is not None and pair.data and pair.index:
            found[ledger_id].append(pair.key)
    return found


def find_other(
    tier: Tier, salvage: Salvage, managed_ledger: str | None, candidates: Iterable[ObjectKey]
) -> ObjectKey | None:
    """The one of these that has all that the ledger of a damaged object should have; None if there is none.

    Args:
        managed_ledger: by its record, which counts where the object does not say it.

    Raises:
        StoreError: the tier fails.
    """
    name = salvage.key.managed_ledger or salvage.said.get(TOPIC_KEY) or managed_ledger
    whose = (name, salvage.said.get(CLUSTER_KEY))
    own = {salvage.key.data_key, salvage.target.data_key}
    for key in sorted(candidates, key=lambda each: each.data_key):
        if name is None or key.data_key in own:
            continue
        pair = find_pair(tier, key)
        examined = None if pair is None else examine(tier, pair)
        if examined is None or (examined.managed_ledger, examined.cluster) != whose:
            continue
        if _is_right(tier, examined) and _has_all(_contents(tier, examined), salvage.contents):
            return key
    return None


def _is_right(tier: Tier, examined: Examined) -> bool:
    """Return whether nothing at all is wrong with a copy, and it has every entry of its ledger."""
    if not examined.is_sound or examined.findings or examined.has_gaps or examined.is_filtered:
        return False
    result = DeepCheck(tier=tier)(DeepTask.of(0, examined))
    if result.failure is not None:
        raise result.failure
    return not result.is_gone and not result.findings


def _contents(tier: Tier, examined: Examined) -> Contents:
    pair, key, index = examined.pair, examined.key, examined.index
    assert pair.data is not None
    data = ObjectBytes(tier, key.data_key, pair.data.size_bytes)
    if key.is_mapfile:
        return read_mapfile_contents(data, key, Expected()).contents
    return read_contents(data, key, index=index, expected={}, gaps=False)


def _has_all(other: Contents, damaged: Contents) -> bool:
    (ledger,) = other.ledgers or (None,)
    if ledger is None or ledger.lost():
        return False
    entries = {entry.entry_id: entry for entry in ledger.entries}
    return all(
        each.stop <= ledger.stop
        and all(
            entry.entry_id in entries and other.payload(entries[entry.entry_id]) == damaged.payload(entry)
            for entry in each.entries
        )
        for each in damaged.ledgers
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTask:
    """A pair that is to be judged.

    Attributes:
        known: what records say of it.
        copies: objects of the same ledger, of whichever topic.
    """

    key: ObjectKey
    findings: tuple[Finding, ...]
    known: RecordedAttempt | None = None
    copies: tuple[ObjectKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgePairs:
    """Judges pairs of a tier; what is raised of one is said of that one."""

    tier: Tier
    now_ms: int

    def __call__(self, task: JudgeTask) -> PlannedRepair:
        """Judge one pair; what records and the hot tier have to say of it is added later."""
        why = task.findings[0].code.helps
        left = PlannedRepair(
            key=task.key.data_key, findings=task.findings, choice=Choice(action=Action.LEAVE, why=why)
        )
        try:
            judged = judge_pair(self.tier, task, self.now_ms)
            if judged is None:
                return left
            salvage = judged.salvage if judged.choice.action is Action.SALVAGE else None
            return replace(
                left,
                choice=judged.choice,
                entries=judged.entries,
                lost=judged.lost,
                target=None if salvage is None else salvage.target.data_key,
                other=None if judged.other is None else judged.other.data_key,
                is_done=salvage is not None and is_whole(self.tier, salvage),
            )
        except OffloadError as error:
            why = f"it could not be looked at: {error}"
            choice = Choice(action=Action.LEAVE, why=why)
            return replace(left, choice=choice, failure=error.at(key=task.key.data_key))


def judge_pair(tier: Tier, task: JudgeTask, now_ms: int) -> Judged | None:
    """Return what there is of a pair, and what is done about it; None if there is nothing.

    Raises:
        StoreError: the tier fails.
    """
    pair = find_pair(tier, task.key)
    if pair is None:
        return None
    judged = judge(tier, pair, list(task.findings), task.known, now_ms=now_ms)
    if judged.choice.action in (Action.SALVAGE, Action.NOT_SAVABLE) and judged.salvage is not None:
        name = None if judged.known is None else judged.known.managed_ledger
        judged.other = find_other(tier, judged.salvage, name, task.copies)
        if judged.other is not None:
            why = f"it is damaged; {judged.other.data_key} has all of it, and is right"
            judged.choice = Choice(action=Action.OTHER_COPY, why=why)
    return judged
