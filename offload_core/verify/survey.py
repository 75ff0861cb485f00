"""What is known of all objects of a tier while it is verified, in a temporary file, so that memory is bounded.

A row for each pair of objects, and one for each ledger in it. Only the thread that made it uses it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from offload_core.catalogue.copy_check import CopyStat, with_end
from offload_core.catalogue.listing import Pair
from offload_core.catalogue.temporary_tables import TemporaryTables
from offload_core.codec.index import LedgerIndex, ObjectIndex
from offload_core.codec.object_format import ObjectKey, parse_key
from offload_core.verify.objects import Examined, LedgerExtent

_TABLES = """
    CREATE TABLE objects (
        id INTEGER PRIMARY KEY, key TEXT, uuid BLOB, cluster TEXT, managed_ledger TEXT,
        has_data INTEGER, has_index INTEGER, is_sound INTEGER, has_gaps INTEGER, modified_at REAL, last_ledger INTEGER,
        stands_in INTEGER, stat BLOB, data_length INTEGER, is_spared INTEGER DEFAULT 0, is_recorded INTEGER DEFAULT 0);
    CREATE TABLE extents (
        object INTEGER, ledger INTEGER, first INTEGER, last_block INTEGER, stop INTEGER, entries INTEGER, size INTEGER,
        packed BLOB, PRIMARY KEY (object, ledger)) WITHOUT ROWID;
    CREATE TABLE lone_checksums (key TEXT, checksums TEXT);
    CREATE INDEX by_uuid ON objects (uuid);
    CREATE INDEX broken ON objects (managed_ledger, cluster) WHERE NOT is_sound;
    CREATE INDEX standing_in ON objects (managed_ledger) WHERE stands_in;
"""
_OBJECT = (
    "id, objects.key, objects.cluster, managed_ledger, has_data, has_index, is_sound, has_gaps, modified_at, "
    "last_ledger, stands_in, is_spared"
)
_EXTENT = "extents.ledger, first, last_block, stop, entries, size"


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """A pair of objects.

    Attributes:
        number: in the survey.
        key: of the data object, whether that is there or not.
        is_sound: both objects are there and go together.
        last_ledger_id: the last of the ledgers in it; None if it is not sound.
        stands_in: it was made to stand in for a copy that records may still name.
        is_spared: that may be so, for a ledger of it is recorded.
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
    is_spared: bool


class Survey(TemporaryTables):
    """The objects of a tier; a context manager."""

    def __init__(self) -> None:
        super().__init__(_TABLES)

    # --- filling -------------------------------------------------------------------------------

    def add(self, found: Examined) -> int:
        """Take a pair; its number."""
        pair = found.pair
        times = [each.modified_at.timestamp() for each in (pair.index, pair.data) if each is not None]
        cursor = self._file.execute(
            "INSERT INTO objects (key, uuid, cluster, managed_ledger, has_data, has_index, is_sound, has_gaps, "
            "modified_at, last_ledger, stands_in, stat, data_length) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                found.key.data_key,
                found.key.uuid.bytes,
                found.cluster,
                found.managed_ledger,
                pair.data is not None,
                pair.index is not None,
                found.is_sound,
                found.has_gaps,
                max(times),
                max((each.ledger_id for each in found.extents), default=None),
                found.stands_in,
                pickle.dumps(found.stat, pickle.HIGHEST_PROTOCOL),
                None if found.abridged is None else found.abridged.data_length,
            ),
        )
        number = int(cursor.lastrowid or 0)
        ledgers = () if found.abridged is None else found.abridged.ledgers
        self._file.executemany(
            "INSERT INTO extents VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    number,
                    e.ledger_id,
                    e.first_entry_id,
                    e.last_block,
                    e.stop_entry_id,
                    e.entries,
                    e.size,
                    pickle.dumps(ledger, pickle.HIGHEST_PROTOCOL),
                )
                for e, ledger in zip(found.extents, ledgers, strict=True)
            ],
        )
        return number

    def add_lone_checksums(self, pairs: Iterable[Pair]) -> None:
        """Take checksums that lie beside nothing."""
        rows = [(pair.key.data_key, each.key) for pair in pairs for each in pair.checksums]
        self._file.executemany("INSERT INTO lone_checksums VALUES (?, ?)", rows)

    def set_stop(self, number: int, ledger_id: int, stop_entry_id: int) -> None:
        """The end of a ledger's entries in an object, now that they have been counted."""
        self._file.execute(
            "UPDATE extents SET stop = ? WHERE object = ? AND ledger = ?", (stop_entry_id, number, ledger_id)
        )

    def set_recorded(self, numbers: Sequence[int]) -> None:
        """A record names these."""
        self._file.executemany(
            "UPDATE objects SET is_recorded = 1 WHERE id = ?", [(number,) for number in numbers]
        )

    def spare(self, managed_ledger: str, ledger_ids: AbstractSet[int]) -> None:
        """A topic's record has these ledgers: copies that were made to stand in for theirs are needed."""
        query = (
            "SELECT id, extents.ledger FROM objects JOIN extents ON object = id "
            "WHERE stands_in AND managed_ledger = ?"
        )
        found = self._file.execute(query, (managed_ledger,)).fetchall()
        self._file.executemany(
            "UPDATE objects SET is_spared = 1 WHERE id = ?",
            [(number,) for number, ledger_id in found if ledger_id in ledger_ids],
        )

    # --- asking --------------------------------------------------------------------------------

    def of_uuid(self, uuid: UUID) -> list[Surveyed]:
        """The pairs of an attempt: one, if all is right."""
        return [
            _object(row)
            for row in self._file.execute(f"SELECT {_OBJECT} FROM objects WHERE uuid = ?", (uuid.bytes,))  # noqa: S608
        ]

    def copy(self, stored: Surveyed, ledger_id: int) -> tuple[CopyStat | None, ObjectIndex | None]:
        """What a pair has of a ledger, for `check_copy`: its data object, and its index, None if it is not sound."""
        query = (
            "SELECT stat, data_length, stop, packed FROM objects "
            "LEFT JOIN extents ON object = id AND ledger = ? WHERE id = ?"
        )
        stat, data_length, stop, packed = self._file.execute(query, (ledger_id, stored.number)).fetchone()
        told: CopyStat | None = pickle.loads(stat)  # noqa: S301 (written by ourselves, to a file that has no name)
        if data_length is None:
            return told, None
        ledgers: tuple[LedgerIndex, ...] = ()
        if packed is not None:
            ledger: LedgerIndex = pickle.loads(packed)  # noqa: S301
            ledgers = (with_end(ledger, stop),)
        return told, ObjectIndex(
            object_format=stored.key.object_format, data_length=data_length, ledgers=ledgers
        )

    def clusters_of_recorded(self) -> set[str]:
        """The clusters that objects name which records name."""
        query = "SELECT DISTINCT cluster FROM objects WHERE is_recorded AND cluster IS NOT NULL"
        return {cluster for (cluster,) in self._file.execute(query)}

    def has_broken(self, cluster: str | None, managed_ledger: str | None) -> bool:
        """Whether a topic has objects of which nobody knows what they hold."""
        query = "SELECT 1 FROM objects WHERE NOT is_sound AND managed_ledger IS ? AND cluster IS ? LIMIT 1"
        return self._file.execute(query, (managed_ledger, cluster)).fetchone() is not None

    def unrecorded(self) -> Iterator[Surveyed]:
        """The pairs that no record names, by key."""
        query = f"SELECT {_OBJECT} FROM objects WHERE NOT is_recorded ORDER BY key"  # noqa: S608
        return map(_object, self._file.execute(query))

    def lone_checksums(self) -> Iterator[tuple[ObjectKey, str]]:
        """The keys of data objects that are not there, and of checksums of these; in the order of the listing."""
        rows = self._file.execute("SELECT key, checksums FROM lone_checksums ORDER BY rowid")
        return ((_key(key), checksums) for key, checksums in rows)

    def unrecorded_ledgers(self) -> Iterator[tuple[Surveyed, LedgerExtent]]:
        """The ledgers of sound pairs that no record names; those of one cluster, topic and ledger together."""
        query = (
            f"SELECT {_OBJECT}, {_EXTENT} FROM objects JOIN extents ON object = id "  # noqa: S608
            "WHERE NOT is_recorded ORDER BY cluster, managed_ledger, ledger, first, modified_at, key"
        )
        for row in self._file.execute(query):
            yield _object(row[:12]), _extent(row[12:])


def _key(data_key: str) -> ObjectKey:
    parsed = parse_key(data_key)
    assert parsed is not None
    return parsed


def _object(row: Sequence[Any]) -> Surveyed:
    (
        number,
        key,
        cluster,
        managed_ledger,
        has_data,
        has_index,
        is_sound,
        has_gaps,
        modified_at,
        last,
        *stands,
    ) = row
    return Surveyed(
        number=number,
        key=_key(key),
        cluster=cluster,
        managed_ledger=managed_ledger,
        has_data=bool(has_data),
        has_index=bool(has_index),
        is_sound=bool(is_sound),
        has_gaps=bool(has_gaps),
        modified_at=modified_at,
        last_ledger_id=last,
        stands_in=bool(stands[0]),
        is_spared=bool(stands[1]),
    )


def _extent(row: Sequence[Any]) -> LedgerExtent:
    ledger_id, first, last_block, stop, entries, size = row
    return LedgerExtent(
        ledger_id=ledger_id,
        first_entry_id=first,
        last_block=last_block,
        stop_entry_id=stop,
        entries=entries,
        size=size,
    )
