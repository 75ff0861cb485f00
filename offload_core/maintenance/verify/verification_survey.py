"""The survey of a verification: what is found of all objects of a tier, with the extents of ledgers in them.

Only the thread that made it uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from uuid import UUID

from offload_core.format.codec.index import LedgerIndex, ObjectIndex
from offload_core.format.codec.object_format import ObjectKey, parse_key
from offload_core.maintenance.verify.pair_checks import Examined, LedgerExtent
from offload_core.metadata.catalogue.copy_check import CopyStat, with_end
from offload_core.metadata.catalogue.listing import Pair
from offload_core.metadata.catalogue.survey import Survey, SurveyRow, packed, unpacked

_TABLES = """
    CREATE TABLE lone_checksums (key TEXT, checksums TEXT);
    CREATE TABLE standing_in (managed_ledger TEXT, object INTEGER);
    CREATE INDEX broken ON objects (managed_ledger, cluster) WHERE NOT is_whole;
    CREATE INDEX by_topic ON standing_in (managed_ledger);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPair:
    """A pair of objects.

    Attributes:
        number: in the survey.
        key: of the data object, whether that is there or not.
        is_sound: both objects are there and go together.
        last_ledger_id: the last of the ledgers in it; None if it is not sound.
        stands_in: it was made to stand in for a copy that records may still name.
        is_spared: that may be so, for a ledger of it is recorded.
        stat: what its data object tells; None without one.
        data_length: of the data object by the index; None if it is not sound.
    """

    number: int
    key: ObjectKey
    cluster: str | None
    managed_ledger: str | None
    has_data: bool
    has_index: bool
    is_sound: bool
    has_gaps: bool
    modified_at: float
    last_ledger_id: int | None
    stands_in: bool
    stat: CopyStat | None
    data_length: int | None
    is_spared: bool = False


class VerificationSurvey(Survey[StoredPair]):
    """The objects of a tier while it is verified; a context manager."""

    def __init__(self) -> None:
        super().__init__(_TABLES)

    # --- filling -------------------------------------------------------------------------------

    def add(self, found: Examined) -> int:
        """Take a pair; its number."""
        pair, number = found.pair, self._new_number()
        index = found.abridged
        stored = StoredPair(
            number=number,
            key=_key(found.key.data_key),
            cluster=found.cluster,
            managed_ledger=found.managed_ledger,
            has_data=pair.data is not None,
            has_index=pair.index is not None,
            is_sound=found.is_sound,
            has_gaps=found.has_gaps,
            modified_at=max(
                each.modified_at.timestamp() for each in (pair.index, pair.data) if each is not None
            ),
            last_ledger_id=max((each.ledger_id for each in found.extents), default=None),
            stands_in=found.stands_in,
            stat=found.stat,
            data_length=None if index is None else index.data_length,
        )
        self._keep([(number, _row(stored))])
        if stored.stands_in:
            self._file.execute("INSERT INTO standing_in VALUES (?, ?)", (stored.managed_ledger, number))
        self._keep_ledgers(
            (number, extent.ledger_id, extent.first_entry_id, packed((extent, ledger)))
            for extent, ledger in zip(found.extents, () if index is None else index.ledgers, strict=True)
        )
        return number

    def add_lone_checksums(self, pairs: Iterable[Pair]) -> None:
        """Take checksums that lie beside nothing."""
        rows = [(pair.key.data_key, each.key) for pair in pairs for each in pair.checksums]
        self._file.executemany("INSERT INTO lone_checksums VALUES (?, ?)", rows)

    def set_stop(self, number: int, ledger_id: int, stop_entry_id: int) -> None:
        """The end of a ledger's entries in an object, now that they have been counted."""
        found = self._ledger(number, ledger_id)
        if found is not None:
            extent, ledger = found
            changed = packed((replace(extent, stop_entry_id=stop_entry_id), ledger))
            self._file.execute(
                "UPDATE ledgers SET packed = ? WHERE object = ? AND ledger = ?", (changed, number, ledger_id)
            )

    def set_recorded(self, numbers: Sequence[int]) -> None:
        """A record names these."""
        self._file.executemany(
            "UPDATE objects SET is_recorded = 1 WHERE id = ?", [(number,) for number in numbers]
        )

    def spare(self, managed_ledger: str, ledger_ids: AbstractSet[int]) -> None:
        """A topic's record has these ledgers: copies that were made to stand in for theirs are needed."""
        query = "SELECT object, ledger FROM standing_in JOIN ledgers USING (object) WHERE managed_ledger = ?"
        found = self._file.execute(query, (managed_ledger,)).fetchall()
        spared = {number for number, ledger_id in found if ledger_id in ledger_ids}
        self._keep((number, _row(replace(self._value(number), is_spared=True))) for number in spared)

    # --- asking --------------------------------------------------------------------------------

    def of_uuid(self, uuid: UUID) -> list[StoredPair]:
        """The pairs of an attempt, wherever they are."""
        return list(self._values("WHERE uuid = ?", uuid.bytes))

    def copy(self, stored: StoredPair, ledger_id: int) -> tuple[CopyStat | None, ObjectIndex | None]:
        """Return a pair's data object and a ledger's index there, for `check_copy`; no index if it is not sound."""
        if stored.data_length is None:
            return stored.stat, None
        found = self._ledger(stored.number, ledger_id)
        ledgers = () if found is None else (with_end(found[1], found[0].stop_entry_id),)
        return stored.stat, ObjectIndex(
            object_format=stored.key.object_format, data_length=stored.data_length, ledgers=ledgers
        )

    def _ledger(self, number: int, ledger_id: int) -> tuple[LedgerExtent, LedgerIndex] | None:
        query = "SELECT packed FROM ledgers WHERE object = ? AND ledger = ?"
        row = self._file.execute(query, (number, ledger_id)).fetchone()
        return None if row is None else unpacked(row[0])

    def clusters_of_recorded(self) -> set[str]:
        """The clusters that objects name which records name."""
        query = "SELECT DISTINCT cluster FROM objects WHERE is_recorded AND cluster IS NOT NULL"
        return {cluster for (cluster,) in self._file.execute(query)}

    def has_broken(self, cluster: str | None, managed_ledger: str | None) -> bool:
        """Return whether a topic has objects with unknown contents."""
        query = "SELECT 1 FROM objects WHERE NOT is_whole AND managed_ledger IS ? AND cluster IS ? LIMIT 1"
        return self._file.execute(query, (managed_ledger, cluster)).fetchone() is not None

    def unrecorded(self) -> Iterator[StoredPair]:
        """The pairs that no record names, by key."""
        return self._values("WHERE NOT is_recorded ORDER BY key")

    def lone_checksums(self) -> Iterator[tuple[ObjectKey, str]]:
        """The keys of data objects that are not there, and of checksums of these; in the order of the listing."""
        rows = self._file.execute("SELECT key, checksums FROM lone_checksums ORDER BY rowid")
        return ((_key(key), checksums) for key, checksums in rows)

    def unrecorded_ledgers(self) -> Iterator[tuple[StoredPair, LedgerExtent]]:
        """The ledgers of sound pairs that no record names; those of one cluster, topic and ledger together."""
        query = (
            "SELECT object, ledger FROM objects JOIN ledgers ON object = id "
            "WHERE NOT is_recorded ORDER BY cluster, managed_ledger, ledger, first, at, key"
        )
        for number, ledger_id in self._file.execute(query):
            found = self._ledger(number, ledger_id)
            assert found is not None
            yield self._value(number), found[0]


def _key(data_key: str) -> ObjectKey:
    parsed = parse_key(data_key)
    assert parsed is not None
    return parsed


def _row(stored: StoredPair) -> SurveyRow:
    return SurveyRow(
        key=stored.key,
        packed=packed(stored),
        managed_ledger=stored.managed_ledger,
        cluster=stored.cluster,
        at=stored.modified_at,
        is_whole=stored.is_sound,
    )
