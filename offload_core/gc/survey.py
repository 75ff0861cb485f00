"""What a tier has and what records name of it, in a temporary file, so that memory is bounded.

A row for each pair of objects and each upload as they were listed, and one for each attempt that records name. What
no record names is looked at, and what that told is added. One thread at a time uses it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from offload_core.catalogue.listing import Pair
from offload_core.catalogue.temporary_tables import TemporaryTables
from offload_core.codec.object_format import parse_key
from offload_core.gc.garbage import objects_of
from offload_core.gc.naming import NamedAttempt, Naming
from offload_hooks.json_text import read_json
from offload_hooks.values import ListedObject, StaleUpload, Upload

_TABLES = """
    CREATE TABLE objects (
        id INTEGER PRIMARY KEY, key TEXT, uuid BLOB, data_size INTEGER, data_at REAL, index_size INTEGER, index_at REAL,
        youngest REAL, topic TEXT, cluster TEXT, is_sound INTEGER, ledgers TEXT,
        stands_in INTEGER, checksums TEXT);
    CREATE INDEX by_uuid ON objects (uuid);
    CREATE INDEX by_topic ON objects (topic, key) WHERE topic IS NOT NULL;
    CREATE TABLE uploads (key TEXT, uuid BLOB, upload_id TEXT, started_at REAL);
    CREATE TABLE named (uuid BLOB PRIMARY KEY, naming INTEGER, topic TEXT, ledger INTEGER) WITHOUT ROWID;
"""
_OBJECT = (
    "objects.id, objects.key, data_size, data_at, index_size, index_at, objects.topic, cluster, is_sound, ledgers, "
    "stands_in, checksums"
)
_CHECKSUMS = ("data_checksums", "index_checksums", "block_checksums")
_NEEDED = Naming.NEEDED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """A pair of objects, or checksums that lie beside nothing, and what is known of it.

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
        """When the younger of the two was written."""
        return max(each.modified_at for each in objects_of(self.pair))


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """How records name an attempt."""

    naming: Naming
    topic: str
    ledger_id: int


class Survey(TemporaryTables):
    """The objects and uploads of a tier; a context manager."""

    def __init__(self) -> None:
        super().__init__(_TABLES)

    # --- filling -------------------------------------------------------------------------------

    def add(self, pairs: Iterable[Pair]) -> None:
        """Take pairs as they were listed."""
        self._file.executemany(
            "INSERT INTO objects (key, uuid, data_size, data_at, index_size, index_at, youngest, checksums) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    pair.key.data_key,
                    pair.key.uuid.bytes,
                    *_size_and_time(pair.data),
                    *_size_and_time(pair.index),
                    max(each.modified_at.timestamp() for each in objects_of(pair)),
                    _lone_checksums(pair),
                )
                for pair in pairs
            ),
        )

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

    def describe(self, found: Sequence[Surveyed]) -> None:
        """What a look at these told."""
        self._file.executemany(
            "UPDATE objects SET topic = ?, cluster = ?, is_sound = ?, ledgers = ?, stands_in = ? WHERE id = ?",
            [
                (e.topic, e.cluster, e.is_sound, json.dumps(e.ledger_ids), e.stands_in, e.number)
                for e in found
            ],
        )

    # --- asking --------------------------------------------------------------------------------

    def count_younger(self, than: datetime) -> int:
        """How many that no record needs are younger."""
        return self._count(
            "SELECT count(*) FROM objects LEFT JOIN named USING (uuid) "  # noqa: S608
            f"WHERE youngest > ? AND coalesce(naming, 0) != {_NEEDED}",
            than.timestamp(),
        )

    def latest(self) -> datetime | None:
        """When the youngest object was written."""
        (found,) = self._file.execute("SELECT max(youngest) FROM objects").fetchone()
        return None if found is None else _time(found)

    def unnamed(self, than: datetime, at_once: int) -> Iterator[list[Surveyed]]:
        """The pairs that no record names and none of whose objects is younger, some at a time, by key."""
        query = (
            f"SELECT {_OBJECT} FROM objects LEFT JOIN named USING (uuid) "  # noqa: S608
            "WHERE naming IS NULL AND youngest <= ? AND objects.id > ? ORDER BY objects.id LIMIT ?"
        )
        last = 0
        while rows := self._rows(query, than.timestamp(), last, at_once):
            last = rows[-1][0]
            yield [_surveyed(row) for row in rows]

    def described(self, at_once: int) -> Iterator[list[Surveyed]]:
        """The pairs that were described and have a topic, those of one topic together, some at a time."""
        query = (
            f"SELECT {_OBJECT} FROM objects WHERE topic IS NOT NULL AND (topic, key) > (?, ?) "  # noqa: S608
            "ORDER BY topic, key LIMIT ?"
        )
        last = ("", "")
        while rows := self._rows(query, *last, at_once):
            last = (rows[-1][6], rows[-1][1])
            yield [_surveyed(row) for row in rows]

    def not_needed(self, than: datetime, at_once: int) -> Iterator[list[tuple[Surveyed, Named]]]:
        """The pairs that records name as anything but needed, and none of whose objects is younger."""
        query = (
            f"SELECT {_OBJECT}, naming, named.topic, ledger FROM objects JOIN named USING (uuid) "  # noqa: S608
            f"WHERE naming != {_NEEDED} AND youngest <= ? AND objects.id > ? ORDER BY objects.id LIMIT ?"
        )
        last = 0
        while rows := self._rows(query, than.timestamp(), last, at_once):
            last = rows[-1][0]
            yield [(_surveyed(row), _named(row[12:])) for row in rows]

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
                yield stale, None if naming[0] is None else _named(naming)

    def needed(self, most: int) -> list[tuple[Surveyed, Named]]:
        """Some of the whole pairs that records need."""
        query = (
            f"SELECT {_OBJECT}, naming, named.topic, ledger FROM objects JOIN named USING (uuid) "  # noqa: S608
            f"WHERE naming = {_NEEDED} AND data_size IS NOT NULL AND index_size IS NOT NULL "
            "GROUP BY named.topic LIMIT ?"
        )
        return [(_surveyed(row), _named(row[12:])) for row in self._rows(query, most)]

    def _rows(self, query: str, *given: object) -> list[Any]:
        return self._file.execute(query, given).fetchall()

    def _count(self, query: str, *given: object) -> int:
        return int(self._rows(query, *given)[0][0])


def _size_and_time(listed: ListedObject | None) -> tuple[int | None, float | None]:
    return (None, None) if listed is None else (listed.size_bytes, listed.modified_at.timestamp())


def _lone_checksums(pair: Pair) -> str | None:
    """The checksums of a pair of which there is nothing else."""
    if not pair.is_lone:
        return None
    found = {name: getattr(pair, name) for name in _CHECKSUMS}
    return json.dumps({name: (each.key, *_size_and_time(each)) for name, each in found.items() if each})


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _surveyed(row: Sequence[Any]) -> Surveyed:
    (
        number,
        key,
        data_size,
        data_at,
        index_size,
        index_at,
        topic,
        cluster,
        is_sound,
        ledgers,
        stands,
        beside,
    ) = row[:12]
    parsed = parse_key(key)
    assert parsed is not None
    lone = {name: _listed(*listed) for name, listed in read_json(beside or "{}", "a row").items()}
    pair = Pair(
        key=parsed,
        data=_listed(parsed.data_key, data_size, data_at),
        index=_listed(parsed.index_key, index_size, index_at),
        data_checksums=lone.get("data_checksums"),
        index_checksums=lone.get("index_checksums"),
        block_checksums=lone.get("block_checksums"),
    )
    return Surveyed(
        number=number,
        pair=pair,
        topic=topic,
        cluster=cluster,
        is_sound=bool(is_sound),
        ledger_ids=tuple(read_json(ledgers or "[]", "a row")),
        stands_in=bool(stands),
    )


def _listed(key: str, size: int | None, at: float | None) -> ListedObject | None:
    if size is None or at is None:
        return None
    return ListedObject(key=key, size_bytes=size, modified_at=_time(at))


def _named(row: Sequence[Any]) -> Named:
    naming, topic, ledger_id = row
    return Named(naming=Naming(naming), topic=topic, ledger_id=ledger_id)
