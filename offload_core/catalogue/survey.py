"""All ledgers of a tier, one after another, however many there are: the catalogue in a temporary file.

As `list_catalogue`, from a bucket alone, by the same rules; but what was found of each object is kept in a file without
a name, and ledgers are put together when they are asked for, in the order of topic, cluster and id. So memory depends
on the largest ledger's attempts only. Only the thread that made it uses it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter

from offload_core.catalogue.concurrency import in_batches, look_at
from offload_core.catalogue.listing import Pair, describe_pair, stream_pairs, with_index
from offload_core.catalogue.model import Ledger, StoredObject, as_first, build_ledger
from offload_core.catalogue.temporary_tables import TemporaryTables
from offload_core.catalogue.topics import UNKNOWN_TOPIC, TopicName, topic_of_managed_ledger
from offload_core.executors import Executor
from offload_core.tier import Tier
from offload_hooks.errors import ObjectNotFoundError

_UNPACKED_BYTES = 8 << 20
"""Objects with many ledgers are unpacked once for those that follow one another; so many bytes of them, packed."""

_TABLES = """
    CREATE TABLE objects (
        id INTEGER PRIMARY KEY, label TEXT, managed_ledger TEXT, cluster TEXT, is_stray INTEGER, key TEXT, packed BLOB);
    CREATE TABLE parts (object INTEGER, ledger INTEGER);
    CREATE INDEX strays ON objects (managed_ledger) WHERE is_stray;
"""
_SETTLED = """
    CREATE TABLE owners AS SELECT managed_ledger, min(cluster) AS cluster FROM objects
        WHERE managed_ledger IS NOT NULL AND cluster IS NOT NULL
        GROUP BY managed_ledger HAVING count(DISTINCT cluster) = 1;
    CREATE INDEX by_owner ON owners (managed_ledger);
    UPDATE objects SET cluster = (SELECT cluster FROM owners WHERE owners.managed_ledger = objects.managed_ledger)
        WHERE cluster IS NULL AND managed_ledger IS NOT NULL;
"""
_LEDGERS = """
    SELECT managed_ledger, cluster, ledger, object FROM parts JOIN objects ON object = id
    ORDER BY managed_ledger IS NULL, label, managed_ledger, coalesce(cluster, ''), cluster IS NOT NULL, ledger, object
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLedger:
    """A ledger, and whose it is: managed ledger and cluster are None where no object says them."""

    managed_ledger: str | None
    cluster: str | None
    ledger: Ledger

    @property
    def topic(self) -> TopicName | None:
        """The topic, if it is known."""
        return None if self.managed_ledger is None else topic_of_managed_ledger(self.managed_ledger)


class LedgerSurvey(TemporaryTables):
    """What is found in a tier; a context manager.

    Args:
        keeps_blocks: indexes are kept with all their blocks, to read these; else one stands for all of a ledger's, so
            that an object takes as little memory with a million blocks as with one.
    """

    def __init__(self, *, keeps_blocks: bool = True) -> None:
        super().__init__(_TABLES)
        self._keeps_blocks = keeps_blocks
        self._unpacked: dict[int, tuple[StoredObject, int]] = {}
        self._unpacked_bytes = 0

    def fill(
        self,
        tier: Tier,
        *,
        prefix: str = "",
        wanted: Callable[[TopicName | None], bool] | None = None,
        executor: Executor | None = None,
        listener: Callable[[int], None] = lambda _: None,
    ) -> None:
        """List a tier and look at its objects, once.

        Args:
            prefix: only objects whose keys begin so.
            wanted: whether the objects of a topic are looked for, None for all; of the others no index is read that
                need not be. Picklable, where the executor needs that.
            executor: who looks at objects; None for this process. It is listed, and the file is written, here.
            listener: told how many pairs of objects were looked at.

        Raises:
            StoreError: the tier fails.
        """
        count = 0
        pairs = in_batches(stream_pairs(tier, prefix), executor)
        for some, found in look_at(pairs, _Describe(tier, wanted, self._keeps_blocks), executor):
            for row in found:
                if row is not None:
                    self._add(row)
            count += len(some)
            listener(count)
        self._file.executescript(_SETTLED)

    def ledgers(self) -> Iterator[FoundLedger]:
        """All ledgers, by topic, cluster and id."""
        rows = self._file.execute(_LEDGERS)
        for (managed_ledger, cluster), of_topic in groupby(rows, key=itemgetter(0, 1)):
            is_first = managed_ledger is not None and not self._has_strays(managed_ledger)
            for ledger_id, parts in groupby(of_topic, key=itemgetter(2)):
                ledger = build_ledger(ledger_id, [self._unpack(number) for *_, number in parts])
                yield FoundLedger(
                    managed_ledger=managed_ledger,
                    cluster=cluster,
                    ledger=as_first(ledger) if is_first else ledger,
                )
                is_first = False

    def strays(self) -> Iterator[StoredObject]:
        """The objects that belong to no known ledger, by key."""
        query = "SELECT packed FROM objects WHERE is_stray ORDER BY key"
        return (_unpacked(packed) for (packed,) in self._file.execute(query))

    def _add(self, row: _Row) -> None:
        cursor = self._file.execute(
            "INSERT INTO objects (label, managed_ledger, cluster, is_stray, key, packed) VALUES (?, ?, ?, ?, ?, ?)",
            (row.label, row.managed_ledger, row.cluster, not row.ledger_ids, row.key, row.packed),
        )
        parts = [(cursor.lastrowid, ledger_id) for ledger_id in row.ledger_ids]
        self._file.executemany("INSERT INTO parts VALUES (?, ?)", parts)

    def _has_strays(self, managed_ledger: str) -> bool:
        query = "SELECT 1 FROM objects WHERE is_stray AND managed_ledger = ? LIMIT 1"
        return self._file.execute(query, (managed_ledger,)).fetchone() is not None

    def _unpack(self, number: int) -> StoredObject:
        found = self._unpacked.pop(number, None)
        if found is None:
            query = "SELECT packed FROM objects WHERE id = ?"
            packed = self._file.execute(query, (number,)).fetchone()[0]
            found = _unpacked(packed), len(packed)
            self._unpacked_bytes += len(packed)
        self._unpacked[number] = found
        while self._unpacked_bytes > _UNPACKED_BYTES and len(self._unpacked) > 1:
            self._unpacked_bytes -= self._unpacked.pop(next(iter(self._unpacked)))[1]
        return found[0]


def _unpacked(packed: bytes) -> StoredObject:
    stored: StoredObject = pickle.loads(packed)  # noqa: S301 (written by ourselves, to a file that has no name)
    return stored


@dataclass(frozen=True, slots=True)
class _Row:
    """An object as it is kept."""

    label: str
    managed_ledger: str | None
    cluster: str | None
    ledger_ids: tuple[int, ...]
    key: str
    packed: bytes


@dataclass(frozen=True, slots=True)
class _Describe:
    """Looks at pairs; picklable."""

    tier: Tier
    wanted: Callable[[TopicName | None], bool] | None
    keeps_blocks: bool

    def __call__(self, pair: Pair) -> _Row | None:
        """What is known of a pair; None if it vanished, or is not wanted."""
        stored = describe_pair(self.tier, pair, read_indexes=False)
        if stored is None:
            return None
        name = stored.managed_ledger
        if self.wanted is not None and not self.wanted(
            None if name is None else topic_of_managed_ledger(name)
        ):
            return None
        try:
            read = with_index(self.tier, stored) if stored.is_unread else stored
            if read.index is not None and not self.keeps_blocks:
                read = replace(read, index=read.index.condensed())
            return _row_of(read)
        except ObjectNotFoundError:
            return None


def _row_of(stored: StoredObject) -> _Row:
    ledger_ids = [each.ledger_id for each in stored.index.ledgers] if stored.index else []
    if stored.index is None and stored.key.ledger_id is not None:
        ledger_ids = [stored.key.ledger_id]
    name = stored.managed_ledger
    return _Row(
        label=UNKNOWN_TOPIC if name is None else topic_of_managed_ledger(name).full,
        managed_ledger=name,
        cluster=stored.cluster,
        ledger_ids=tuple(ledger_ids),
        key=stored.key.data_key,
        packed=pickle.dumps(stored, pickle.HIGHEST_PROTOCOL),
    )
