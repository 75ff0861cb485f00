"""The survey of a tier: its objects and a value of each, in a temporary file, so that memory is bounded.

Values are packed, with the columns that queries need. Verification and garbage collection add tables of their own.
`LedgerSurvey` has all ledgers of a tier: as `list_catalogue`, from a bucket alone, by the same rules, but each ledger
is built when it is needed. So memory depends on the largest ledger's attempts only.
"""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from offload_core.format.codec.object_format import ObjectKey
from offload_core.metadata.catalogue.catalogue_cache import catalogue_cache
from offload_core.metadata.catalogue.concurrency import in_batches
from offload_core.metadata.catalogue.listing import (
    Pair,
    describe_pair,
    inspect_pairs,
    stream_unordered,
    with_index_of,
)
from offload_core.metadata.catalogue.model import Ledger, StoredObject, build_ledger
from offload_core.metadata.catalogue.topics import UNKNOWN_TOPIC, TopicName, topic_of_managed_ledger
from offload_core.storage.tier import Tier
from offload_hooks.errors import ObjectNotFoundError

if TYPE_CHECKING:
    from typing_extensions import Self

_UNPACKED_BYTES = 8 << 20
"""The packed bytes of objects that stay unpacked, for ledgers of one object that follow one another."""

_TABLES = """
    CREATE TABLE objects (
        id INTEGER PRIMARY KEY, key TEXT, uuid BLOB, label TEXT, managed_ledger TEXT, cluster TEXT, at REAL,
        is_whole INTEGER, is_recorded INTEGER DEFAULT 0, packed BLOB);
    CREATE TABLE ledgers (object INTEGER, ledger INTEGER, first INTEGER, packed BLOB);
    CREATE INDEX by_uuid ON objects (uuid);
    CREATE INDEX by_object ON ledgers (object, ledger);
"""
_KEEP = """
    INSERT INTO objects (id, key, uuid, label, managed_ledger, cluster, at, is_whole, packed)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET managed_ledger = excluded.managed_ledger, packed = excluded.packed;
"""
_SETTLED = """
    CREATE INDEX strays ON objects (managed_ledger) WHERE NOT is_whole;
    CREATE TABLE owners AS SELECT managed_ledger, min(cluster) AS cluster FROM objects
        WHERE managed_ledger IS NOT NULL AND cluster IS NOT NULL
        GROUP BY managed_ledger HAVING count(DISTINCT cluster) = 1;
    CREATE INDEX by_owner ON owners (managed_ledger);
    UPDATE objects SET cluster = (SELECT cluster FROM owners WHERE owners.managed_ledger = objects.managed_ledger)
        WHERE cluster IS NULL AND managed_ledger IS NOT NULL;
"""
_LEDGERS = """
    SELECT managed_ledger, cluster, ledger, object FROM ledgers JOIN objects ON object = id
    ORDER BY managed_ledger IS NULL, label, managed_ledger, coalesce(cluster, ''), cluster IS NOT NULL, ledger, object
"""

_V = TypeVar("_V")


class TemporaryTables:
    """An SQLite file without a name, deleted when it is closed; a context manager. One thread at a time uses it.

    Args:
        tables: statements that create the tables.
    """

    def __init__(self, tables: str) -> None:
        self._file = sqlite3.connect("")
        self._file.executescript(tables)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyRow:
    """A pair of objects in a survey.

    Attributes:
        at: when the younger of the two was written (s since 1970, UTC), where a survey needs it.
        is_whole: both objects exist and, as far as they were inspected, fit each other.
        packed: the value, see `packed`.
    """

    key: ObjectKey
    packed: bytes
    managed_ledger: str | None = None
    cluster: str | None = None
    label: str | None = None
    at: float | None = None
    is_whole: bool = False


class Survey(TemporaryTables, Generic[_V]):
    """Objects by their numbers, with a value of each; a context manager. One thread at a time uses it.

    Args:
        tables: statements that create more tables and indexes.
    """

    def __init__(self, tables: str = "") -> None:
        super().__init__(_TABLES + tables)
        self._last_number = 0
        self._unpacked: dict[int, tuple[_V, int]] = {}
        self._unpacked_bytes = 0

    def _new_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _keep(self, rows: Iterable[tuple[int, SurveyRow]]) -> None:
        """Store objects; for a number that is known, only another managed ledger and value."""
        self._file.executemany(_KEEP, (self._columns(number, row) for number, row in rows))

    def _columns(self, number: int, row: SurveyRow) -> tuple[Any, ...]:
        self._unpacked_bytes -= self._unpacked.pop(number, (None, 0))[1]
        key, facts = row.key, (row.label, row.managed_ledger, row.cluster, row.at, row.is_whole)
        return (number, key.data_key, key.uuid.bytes, *facts, row.packed)

    def _keep_ledgers(self, rows: Iterable[tuple[int, int, int | None, bytes | None]]) -> None:
        """Store ledgers: the object's number, the ledger's id, its first entry there, and a packed value."""
        self._file.executemany("INSERT INTO ledgers VALUES (?, ?, ?, ?)", rows)

    def _values(self, condition: str, *given: object) -> Iterator[_V]:
        """The values of objects that the rest of a query selects."""
        query = f"SELECT objects.id FROM objects {condition}"  # noqa: S608
        return (self._value(number) for (number,) in self._file.execute(query, given))

    def _value(self, number: int) -> _V:
        found = self._unpacked.pop(number, None)
        if found is None:
            query = "SELECT packed FROM objects WHERE id = ?"
            packed_value = self._file.execute(query, (number,)).fetchone()[0]
            found = self._unpack(packed_value), len(packed_value)
            self._unpacked_bytes += len(packed_value)
        self._unpacked[number] = found
        while self._unpacked_bytes > _UNPACKED_BYTES and len(self._unpacked) > 1:
            self._unpacked_bytes -= self._unpacked.pop(next(iter(self._unpacked)))[1]
        return found[0]

    def _unpack(self, value: bytes) -> _V:
        found: _V = unpacked(value)
        return found


def packed(value: object) -> bytes:
    """Pack a value for a survey."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def unpacked(value: bytes) -> Any:
    """Unpack a value that this process packed."""
    return pickle.loads(value)  # noqa: S301 (written by ourselves, to a file that has no name)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLedger:
    """A ledger, with its managed ledger and cluster; None where no object names them."""

    managed_ledger: str | None
    cluster: str | None
    ledger: Ledger

    @property
    def topic(self) -> TopicName | None:
        """The topic, if it is known."""
        return None if self.managed_ledger is None else topic_of_managed_ledger(self.managed_ledger)


class LedgerSurvey(Survey[StoredObject]):
    """All ledgers of a tier; a context manager.

    Args:
        keeps_blocks: indexes have all their blocks, to read these; else one block replaces all of a ledger's, so that
            an object with a million blocks takes no more memory than with one.
    """

    def __init__(self, *, keeps_blocks: bool = True) -> None:
        super().__init__()
        self._keeps_blocks = keeps_blocks

    def fill(
        self,
        tier: Tier,
        *,
        prefix: str = "",
        takes: Callable[[TopicName | None], bool] | None = None,
        listener: Callable[[int], None] = lambda _: None,
        cached: bool = False,
    ) -> None:
        """List a tier and inspect its objects, once.

        Args:
            tier: what is listed.
            prefix: only objects whose keys begin so.
            takes: selects topics, None for all; as few indexes as possible of others are read.
            listener: called with the number of pairs that were inspected.
            cached: what was read of objects before is kept on disk: see `catalogue_cache`.

        Raises:
            StoreError: the tier fails.
        """
        count = 0
        with catalogue_cache(tier, is_used=cached) as cache:
            for some in in_batches(stream_unordered(tier, prefix)):
                for row in inspect_pairs(some, partial(self._describe, tier, takes), cache):
                    if row is not None:
                        self._add(*row)
                count += len(some)
                listener(count)
        self._file.executescript(_SETTLED)

    def _describe(
        self, tier: Tier, takes: Callable[[TopicName | None], bool] | None, pair: Pair
    ) -> tuple[SurveyRow, tuple[int, ...]] | None:
        """Describe a pair; None if it vanished, or is of another topic."""
        stored = describe_pair(tier, pair, read_indexes=False)
        if stored is None:
            return None
        name = stored.managed_ledger
        if takes is not None and not takes(None if name is None else topic_of_managed_ledger(name)):
            return None
        try:
            read = with_index_of(tier, pair, stored) if stored.is_unread else stored
            if read.index is not None and not self._keeps_blocks:
                read = replace(read, index=read.index.condensed())
            return _row_of(read)
        except ObjectNotFoundError:
            return None

    def ledgers(self) -> Iterator[FoundLedger]:
        """All ledgers, by topic, cluster and id."""
        rows = self._file.execute(_LEDGERS)
        for (managed_ledger, cluster), of_topic in groupby(rows, key=itemgetter(0, 1)):
            is_first = managed_ledger is not None and not self._has_strays(managed_ledger)
            for ledger_id, parts in groupby(of_topic, key=itemgetter(2)):
                ledger = build_ledger(ledger_id, [self._value(number) for *_, number in parts])
                yield FoundLedger(
                    managed_ledger=managed_ledger, cluster=cluster, ledger=replace(ledger, is_first=is_first)
                )
                is_first = False

    def strays(self) -> Iterator[StoredObject]:
        """The objects that belong to no known ledger, by key."""
        return self._values("WHERE NOT is_whole ORDER BY key")

    def _add(self, row: SurveyRow, ledger_ids: tuple[int, ...]) -> None:
        number = self._new_number()
        self._keep([(number, row)])
        self._keep_ledgers((number, ledger_id, None, None) for ledger_id in ledger_ids)

    def _has_strays(self, managed_ledger: str) -> bool:
        query = "SELECT 1 FROM objects WHERE NOT is_whole AND managed_ledger = ? LIMIT 1"
        return self._file.execute(query, (managed_ledger,)).fetchone() is not None


def _row_of(stored: StoredObject) -> tuple[SurveyRow, tuple[int, ...]]:
    """An object, and the ids of its ledgers; one of which no ledger is known is not whole."""
    ledger_ids = [each.ledger_id for each in stored.index.ledgers] if stored.index else []
    if stored.index is None and stored.key.ledger_id is not None:
        ledger_ids = [stored.key.ledger_id]
    name = stored.managed_ledger
    row = SurveyRow(
        key=stored.key,
        packed=packed(stored),
        managed_ledger=name,
        cluster=stored.cluster,
        label=UNKNOWN_TOPIC if name is None else topic_of_managed_ledger(name).full,
        is_whole=bool(ledger_ids),
    )
    return row, tuple(ledger_ids)
