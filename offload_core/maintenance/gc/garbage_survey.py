"""The survey of a garbage collection: what a tier has, and what records name of it.

A row for each pair of objects and each upload as they were listed, and one for each attempt that records name. What
no record names is inspected, and what that told is added. One thread at a time uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from offload_core.format.codec.object_format import parse_key
from offload_core.maintenance.gc.garbage import objects_of
from offload_core.maintenance.gc.naming import NamedAttempt, Naming
from offload_core.metadata.catalogue.listing import Pair
from offload_core.metadata.catalogue.survey import Survey, SurveyRow, packed, unpacked
from offload_hooks.values import ListedObject, StaleUpload, Upload

_TABLES = """
    CREATE INDEX by_topic ON objects (managed_ledger, key) WHERE managed_ledger IS NOT NULL;
    CREATE TABLE uploads (key TEXT, uuid BLOB, upload_id TEXT, started_at REAL);
    CREATE TABLE named (uuid BLOB PRIMARY KEY, naming INTEGER, topic TEXT, ledger INTEGER) WITHOUT ROWID;
"""
_NEEDED = Naming.NEEDED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPair:
    """A pair of objects, or checksums that lie beside nothing, and what is found of it.

    Attributes:
        topic: the managed ledger's name, by the objects themselves or by the record that names them.
        ledger_ids: in it, by its index or key; none if neither tells.
        stands_in: it was made to stand in for a copy that records may still name.
    """

    number: int
    pair: Pair
    topic: str | None = None
    cluster: str | None = None
    is_sound: bool = False
    ledger_ids: tuple[int, ...] = ()
    stands_in: bool = False

    @property
    def youngest(self) -> datetime:
        """Return when the younger of the two was written."""
        return max(each.modified_at for each in objects_of(self.pair))


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The naming of an attempt by records."""

    naming: Naming
    topic: str
    ledger_id: int


class GarbageSurvey(Survey[ListedPair]):
    """The objects and uploads of a tier; a context manager."""

    def __init__(self) -> None:
        super().__init__(_TABLES)

    def _unpack(self, value: bytes) -> ListedPair:
        return _pair_of(unpacked(value))

    # --- filling -------------------------------------------------------------------------------

    def add(self, pairs: Iterable[Pair]) -> None:
        """Take pairs as they were listed."""
        self.describe(ListedPair(number=self._new_number(), pair=pair) for pair in pairs)

    def add_upload(self, stale: StaleUpload) -> None:
        """Take an upload as it was listed."""
        key = parse_key(stale.upload.key)
        uuid = None if key is None else key.uuid.bytes
        self._file.execute(
            "INSERT INTO uploads VALUES (?, ?, ?, ?)",
            (stale.upload.key, uuid, stale.upload.upload_id, stale.started_at.timestamp()),
        )

    def name(self, topic: str, named: Iterable[NamedAttempt]) -> None:
        """A topic's record names these attempts. Of two that name one, it counts as needed."""
        self._file.executemany(
            "INSERT INTO named VALUES (?, ?, ?, ?) ON CONFLICT (uuid) DO UPDATE SET naming = "  # noqa: S608
            f"CASE WHEN topic = excluded.topic THEN max(naming, excluded.naming) ELSE {_NEEDED} END",
            ((each.uuid.bytes, each.naming.value, topic, each.ledger_id) for each in named),
        )

    def describe(self, found: Iterable[ListedPair]) -> None:
        """Take what was found of these."""
        self._keep((each.number, _row(each)) for each in found)

    # --- asking --------------------------------------------------------------------------------

    def count_younger(self, than: datetime) -> int:
        """Return how many that no record needs are younger."""
        return self._count(
            "SELECT count(*) FROM objects LEFT JOIN named USING (uuid) "  # noqa: S608
            f"WHERE at > ? AND coalesce(naming, 0) != {_NEEDED}",
            than.timestamp(),
        )

    def latest(self) -> datetime | None:
        """Return when the youngest object was written."""
        (found,) = self._file.execute("SELECT max(at) FROM objects").fetchone()
        return None if found is None else _time(found)

    def unnamed(self, than: datetime, at_once: int) -> Iterator[list[ListedPair]]:
        """The pairs that no record names and none of whose objects is younger, some at a time, by key."""
        last, condition = (
            0,
            (
                "LEFT JOIN named USING (uuid) WHERE naming IS NULL AND at <= ? AND objects.id > ? "
                "ORDER BY objects.id LIMIT ?"
            ),
        )
        while some := list(self._values(condition, than.timestamp(), last, at_once)):
            last = some[-1].number
            yield some

    def described(self, at_once: int) -> Iterator[list[ListedPair]]:
        """The pairs that were described and have a topic, those of one topic together, some at a time."""
        condition = (
            "WHERE managed_ledger IS NOT NULL AND (managed_ledger, key) > (?, ?) "
            "ORDER BY managed_ledger, key LIMIT ?"
        )
        last = ("", "")
        while some := list(self._values(condition, *last, at_once)):
            last = (some[-1].topic or "", some[-1].pair.key.data_key)
            yield some

    def not_needed(self, than: datetime, at_once: int) -> Iterator[list[tuple[ListedPair, Named]]]:
        """The pairs that records name as anything but needed, and none of whose objects is younger."""
        condition = f"naming != {_NEEDED} AND at <= ? AND objects.id > ? ORDER BY objects.id LIMIT ?"
        last = 0
        while some := self._named(condition, than.timestamp(), last, at_once):
            last = some[-1][0].number
            yield some

    def uploads(self, than: datetime) -> Iterator[tuple[StaleUpload, Named | None]]:
        """The uploads that were begun before, with how records name their attempts."""
        query = (
            "SELECT uploads.rowid, key, upload_id, started_at, naming, topic, ledger "
            "FROM uploads LEFT JOIN named USING (uuid) "
            "WHERE started_at <= ? AND uploads.rowid > ? ORDER BY uploads.rowid LIMIT 1000"
        )
        last = 0
        while rows := self._rows(query, than.timestamp(), last):
            last = rows[-1][0]
            for _, key, upload_id, started_at, *naming in rows:
                stale = StaleUpload(upload=Upload(key=key, upload_id=upload_id), started_at=_time(started_at))
                yield stale, None if naming[0] is None else _naming(naming)

    def needed(self, most: int) -> list[tuple[ListedPair, Named]]:
        """Some of the whole pairs that records need."""
        return self._named(f"naming = {_NEEDED} AND is_whole GROUP BY named.topic LIMIT ?", most)

    def _named(self, condition: str, *given: object) -> list[tuple[ListedPair, Named]]:
        query = (
            "SELECT objects.id, naming, named.topic, ledger FROM objects JOIN named USING (uuid) "  # noqa: S608
            f"WHERE {condition}"
        )
        return [(self._value(number), _naming(naming)) for number, *naming in self._rows(query, *given)]

    def _rows(self, query: str, *given: object) -> list[Any]:
        return self._file.execute(query, given).fetchall()

    def _count(self, query: str, *given: object) -> int:
        return int(self._rows(query, *given)[0][0])


def _row(found: ListedPair) -> SurveyRow:
    """A pair as it is kept: as plain values, for there are as many as the tier has objects."""
    pair = found.pair
    beside = (pair.data_checksums, pair.index_checksums, pair.block_checksums) if pair.is_lone else ()
    listed = [
        each and (each.key, each.size_bytes, each.modified_at, each.storage_class)
        for each in (pair.data, pair.index, *beside)
    ]
    facts = (found.number, found.topic, found.cluster, found.is_sound, found.ledger_ids, found.stands_in)
    return SurveyRow(
        key=pair.key,
        packed=packed((pair.key.data_key, listed, facts)),
        managed_ledger=found.topic,
        at=found.youngest.timestamp(),
        is_whole=pair.data is not None and pair.index is not None,
    )


def _pair_of(row: tuple[str, list[Any], tuple[Any, ...]]) -> ListedPair:
    data_key, listed, facts = row
    key = parse_key(data_key)
    assert key is not None
    data, index, *beside = (None if each is None else _listed(*each) for each in listed)
    pair = Pair(key, data=data, index=index)
    if beside:
        pair.data_checksums, pair.index_checksums, pair.block_checksums = beside
    number, topic, cluster, is_sound, ledger_ids, stands_in = facts
    return ListedPair(
        number=number,
        pair=pair,
        topic=topic,
        cluster=cluster,
        is_sound=is_sound,
        ledger_ids=ledger_ids,
        stands_in=stands_in,
    )


def _listed(key: str, size_bytes: int, modified_at: datetime, storage_class: str | None) -> ListedObject:
    return ListedObject(key=key, size_bytes=size_bytes, modified_at=modified_at, storage_class=storage_class)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _naming(row: Sequence[Any]) -> Named:
    naming, topic, ledger_id = row
    return Named(naming=Naming(naming), topic=topic, ledger_id=ledger_id)
