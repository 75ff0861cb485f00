"""Judgement of one damaged pair of objects: the evidence about it, and the repair that it leads to.

Executors judge pairs; a task and its plan are picklable, without the pair's contents. If another complete copy of the
damaged ledger exists, nothing needs to be saved: a saved copy lacks the lost entries, is newer than all other copies,
and would be read in their place. So a copy is searched for that is right to its last byte, and has all entries that are
expected, and each that the damaged one still has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone

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
from offload_core.format.messages.mapfile_scan import MapFileScan
from offload_core.maintenance.repair.damaged_contents import (
    Contents,
    Expected,
    ObjectBytes,
    read_contents,
    read_mapfile_contents,
)
from offload_core.maintenance.repair.repair_plan import (
    ELSEWHERE,
    OF_BLOCKS,
    OF_DATA,
    OF_INDEX,
    OF_INDEX_METADATA,
    OF_MESSAGES,
    Action,
    Choice,
    PlannedRepair,
    RecordedAttempt,
)
from offload_core.maintenance.repair.salvage import (
    Salvage,
    has_entries,
    index_of,
    mapfile_custom_in,
    mapfile_index,
    pip17_metadata_in,
)
from offload_core.maintenance.verify import Code, Finding
from offload_core.maintenance.verify.deep import DeepTask, check_data, check_task
from offload_core.maintenance.verify.pair_checks import Examined, examine
from offload_core.metadata.catalogue.index_reading import MAX_INDEX_BYTES
from offload_core.metadata.catalogue.listing import Pair, find_pair, stream_pairs
from offload_core.metadata.catalogue.summaries import count_text
from offload_core.metadata.records.filter_record import indexed_filter
from offload_core.storage.tier import Tier
from offload_hooks.errors import FormatError, ObjectNotFoundError, OffloadError

YOUNG = timedelta(minutes=10)
"""An offload may be under way of a data object without an index, or a MapFile, that is younger."""

AS_WRITTEN = frozenset(
    {Code.MESSAGE_BAD_METADATA, Code.MESSAGE_BAD_LENGTH, Code.MESSAGE_DECOMPRESSION, Code.MESSAGE_BAD_BATCH}
)
"""Findings about messages whose bytes may well be those that were written."""


@dataclass(slots=True, kw_only=True)
class Evidence:
    """Facts of a pair by which a repair is chosen, and the means to make it.

    Attributes:
        known: its attempt, by records.
        codes: of its findings; `index_codes` those about the index object.
        is_right: every byte of the data object is right, and it holds all entries that are expected.
        index_fits: an index that was made anew was verified over the data object.
        index: the bytes of that; `index_metadata` its user metadata.
        salvage: the entries that can be saved, where some can; `entries` how many, `lost` those that cannot.
        checksums_only: of a MapFile whose data is right, only the `.crc` file of the data is not.
        is_young: it was written a moment ago, and no record names it.
        other: another copy that has all of it, and is right.
    """

    pair: Pair
    known: RecordedAttempt | None
    codes: Set[Code]
    index_codes: Set[Code]
    is_right: bool = False
    index_fits: bool = False
    index: bytes | None = None
    index_metadata: Mapping[str, str] | None = None
    salvage: Salvage | None = None
    lost: LostEntries | None = None
    entries: int = 0
    checksums_only: bool = False
    is_young: bool = False
    other: ObjectKey | None = None

    @property
    def key(self) -> ObjectKey:
        """The pair's key."""
        return self.pair.key

    @property
    def choice(self) -> Choice:
        """The action that the evidence leads to."""
        choice = _choose(self)
        if self.other is None or choice.action not in (Action.SALVAGE, Action.NOT_SAVABLE):
            return choice
        why = f"it is damaged; {self.other.data_key} has all of it, and is right"
        return Choice(action=Action.OTHER_COPY, why=why)

    @property
    def replacement(self) -> ObjectKey | None:
        """The copy that takes its place: another one, or the one that is saved of it."""
        if self.salvage is not None and self.choice.action is Action.SALVAGE:
            return self.salvage.target
        return self.other


def _choose(seen: Evidence) -> Choice:
    known = seen.codes - {Code.LOST_ENTRIES} or seen.codes
    left = [why for code, why in ELSEWHERE.items() if code in known]
    if left:
        return Choice(action=Action.LEAVE, why=left[0])
    if seen.is_young:
        return Choice(action=Action.LEAVE, why="it is new: an offload of it may be under way")
    if seen.pair.data is None:
        return Choice(action=Action.NOT_SAVABLE, why="its data object is gone")
    if seen.checksums_only:
        return Choice(action=Action.REWRITE_CHECKSUMS, why="its data is right, and not as its .crc file says")
    wrong_index = bool(seen.codes & OF_INDEX or seen.index_codes & OF_INDEX_METADATA)
    if wrong_index and seen.is_right and seen.index_fits:
        return Choice(action=Action.REBUILD_INDEX, why="its data object is right, its index is not")
    if not seen.codes & (OF_DATA | OF_MESSAGES):
        return Choice(action=Action.LEAVE, why=f"it is not damaged itself: {min(seen.codes, key=str).helps}")
    if not seen.codes & OF_DATA or (seen.is_right and not seen.codes & OF_BLOCKS):
        return Choice(
            action=Action.LEAVE, why="its entries are as they were written, or nothing tells otherwise"
        )
    if not seen.entries:
        return Choice(action=Action.NOT_SAVABLE, why="no entry of it can be told apart")
    if seen.lost is None or not seen.lost.count:
        return Choice(action=Action.SALVAGE, why="its data object is damaged; all its entries can be saved")
    saved = f"{count_text(seen.entries, 'entry')} can be saved, {seen.lost.count:,} not"
    return Choice(action=Action.SALVAGE, why=f"its data object is damaged; {saved}")


def _evidence(
    tier: Tier, pair: Pair, findings: Iterable[Finding], known: RecordedAttempt | None, now_ms: int
) -> Evidence:
    """Read all objects of a pair. `StoreError`."""
    key = pair.key
    codes = {finding.code for finding in findings}
    index_codes = {finding.code for finding in findings if finding.key == key.index_key}
    if pair.data is None:
        return Evidence(pair=pair, known=known, codes=codes, index_codes=index_codes)
    user_metadata = _user_metadata(tier, pair)
    marks = ObjectMarks.of(user_metadata)
    prior = marks.lost
    examined = examine(tier, pair)
    index = None if examined is None else examined.index
    old = _old_index(tier, pair)
    data = ObjectBytes(tier, key.data_key, pair.data.size_bytes)
    infos = {} if known is None else known.infos
    expected = _expected(key, index, old, known)
    scan: MapFileScan | None = None
    if key.is_mapfile:
        assert key.ledger_id is not None
        known_of = expected.get(key.ledger_id, Expected())
        found = read_mapfile_contents(data, key, known_of, gaps=marks.has_gaps)
        contents, scan = found.contents, found.scan
    else:
        contents = read_contents(
            data, key, index=index, expected=expected, gaps=marks.has_gaps, lacks=prior is not None
        )
    lost = _lost(contents, index, marks)
    damaged = any(ledger.damaged for ledger in contents.ledgers)
    is_right = contents.is_clean and not damaged and lost.count == (prior.count if prior else 0)
    made = None
    if is_right:
        made = _made(key, contents, scan, old, infos, data.size, user_metadata, index, codes)
    fits = made is not None and _fits(tier, pair, made, data, marks)
    is_same = fits and made == old and not (index_codes & OF_INDEX_METADATA)
    salvage = Salvage(
        key=key,
        contents=contents,
        lost=lost,
        old_metadata=user_metadata,
        old_index=_metadata_of(scan, old),
        recorded=infos,
        is_filtered=marks.is_filtered,
    )
    if Code.SUPERSEDED in codes and is_whole(tier, salvage):
        codes.remove(Code.SUPERSEDED)  # by the copy that was saved from it
    checksums_only = (
        is_right and scan is not None and codes == {Code.MAPFILE_CHECKSUM} and _is_sure(scan, contents)
    )
    return Evidence(
        pair=pair,
        known=known,
        codes=codes,
        index_codes=index_codes,
        is_right=is_right,
        index_fits=fits and (not is_same or Code.INDEX_CHECKSUM in codes),
        index=made,
        index_metadata={**user_metadata, **({"role": "index"} if "role" in user_metadata else {})},
        salvage=salvage,
        lost=lost,
        entries=contents.entry_count,
        checksums_only=checksums_only,
        is_young=(Code.NO_INDEX in codes or key.is_mapfile) and known is None and _is_young(pair, now_ms),
    )


def is_whole(tier: Tier, salvage: Salvage) -> bool:
    """Return whether the saved copy exists, is right to the last byte, and has each entry of the damaged object.

    Raises:
        StoreError: the tier fails.
    """
    pair = find_pair(tier, salvage.target)
    if pair is None or pair.data is None or pair.index is None:
        return False
    examined = examine(tier, pair)
    if examined is None or examined.index is None or not examined.is_sound:
        return False
    result = check_data(tier, examined)
    if result.is_gone or any(each.code not in AS_WRITTEN for each in result.findings):
        return False
    return has_entries(tier, pair.key, examined.index, salvage.contents)


def _user_metadata(tier: Tier, pair: Pair) -> dict[str, str]:
    """Return user metadata of the pair: the data object's, else the index's."""
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
    """Return the entries that are expected: by the records, else by the rest of the index."""
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


def _lost(contents: Contents, index: ObjectIndex | None, marks: ObjectMarks) -> LostEntries:
    """Return the lost entries; of an object with gaps only how many, as far as its index counts its entries."""
    if not marks.has_gaps:
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
    user_metadata: Mapping[str, str],
    index: ObjectIndex | None,
    codes: Set[Code],
) -> bytes:
    if scan is not None:
        assert scan.header is not None
        return mapfile_index(scan.records, key.data_key, scan.header.sync, old)
    marks = ObjectMarks.of(user_metadata)
    is_ours = user_metadata.get(SOFTWARE_VERSION_KEY, "").startswith("pulsar-offload ")
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
        is_filtered=marks.is_filtered or marks.lost is not None,
        with_directory=has_directory,
    )


def _fits(tier: Tier, pair: Pair, made: bytes, data: ObjectBytes, marks: ObjectMarks) -> bool:
    """Return whether an index that was made anew can be parsed, and all of the data object fits it."""
    key = pair.key
    try:
        if key.is_mapfile:
            assert key.ledger_id is not None
            index = parse_mapfile(made, data.read(0, 1 << 20), data.size, key.ledger_id)
        else:
            index = parse_index(made, key)
    except FormatError:
        return False
    task = DeepTask(number=0, key=key, index=index, data_bytes=data.size, marks=marks, checksum_key=None)
    result = check_task(tier, task)
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
    return datetime.fromtimestamp(now_ms / 1000, timezone.utc) - pair.data.modified_at < YOUNG


def _metadata_of(scan: MapFileScan | None, old: bytes) -> bytes:
    """Return the index to take metadata from: of a MapFile, an index of PIP-17 with its ledger's metadata."""
    if scan is None:
        return old
    if scan.metadata is None:
        return b""
    return pack_pip17_index(scan.metadata.with_custom(mapfile_custom_in(old)), [], 0)


def copies_of(tier: Tier, ledger_ids: Collection[int]) -> Mapping[int, list[ObjectKey]]:
    """Return the objects of each of these ledgers alone, of any topic. `StoreError`."""
    found: dict[int, list[ObjectKey]] = defaultdict(list)
    for pair in stream_pairs(tier) if ledger_ids else ():
        ledger_id = pair.key.ledger_id
        if ledger_id in ledger_ids and ledger_id is not None and pair.data and pair.index:
            found[ledger_id].append(pair.key)
    return found


def find_other(
    tier: Tier, salvage: Salvage, managed_ledger: str | None, candidates: Iterable[ObjectKey]
) -> ObjectKey | None:
    """Return the copy that has all entries that a damaged one should have; None if there is none.

    Args:
        managed_ledger: by its record, where the object does not name it.

    Raises:
        StoreError: the tier fails.
    """
    name = salvage.key.managed_ledger or salvage.old_metadata.get(TOPIC_KEY) or managed_ledger
    whose = (name, salvage.old_metadata.get(CLUSTER_KEY))
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
    if not examined.is_sound or examined.findings or examined.marks.skips_ids or examined.marks.is_filtered:
        return False
    result = check_data(tier, examined)
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
        known: its attempt, by records.
        copies: objects of the same ledger, of any topic.
    """

    key: ObjectKey
    findings: tuple[Finding, ...]
    known: RecordedAttempt | None = None
    copies: tuple[ObjectKey, ...] = ()


def plan_pair(tier: Tier, now_ms: int, task: JudgeTask) -> PlannedRepair:
    """Plan the repair of one pair, without records and the hot tier; an error of the pair is in the result."""
    left = PlannedRepair(
        key=task.key.data_key,
        findings=task.findings,
        choice=Choice(action=Action.LEAVE, why=task.findings[0].code.helps),
    )
    try:
        evidence = judge_pair(tier, task, now_ms)
        if evidence is None:
            return left
        choice = evidence.choice
        salvage = evidence.salvage if choice.action is Action.SALVAGE else None
        return replace(
            left,
            choice=choice,
            entries=evidence.entries,
            lost=evidence.lost,
            target=None if salvage is None else salvage.target.data_key,
            other=None if evidence.other is None else evidence.other.data_key,
            is_done=salvage is not None and is_whole(tier, salvage),
        )
    except OffloadError as error:
        choice = Choice(action=Action.LEAVE, why=f"it could not be read: {error}")
        return replace(left, choice=choice, failure=error.at(key=task.key.data_key))


def judge_pair(tier: Tier, task: JudgeTask, now_ms: int) -> Evidence | None:
    """Gather the evidence about a pair; None if neither of its objects exists. `StoreError`."""
    pair = find_pair(tier, task.key)
    if pair is None:
        return None
    found = _evidence(tier, pair, task.findings, task.known, now_ms)
    if found.salvage is not None and found.choice.action in (Action.SALVAGE, Action.NOT_SAVABLE):
        name = None if found.known is None else found.known.managed_ledger
        found.other = find_other(tier, found.salvage, name, task.copies)
    return found
