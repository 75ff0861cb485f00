"""Values that are sorted before they are used, in a temporary file, so that there may be any number of them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Generic, TypeVar

from offload_core.catalogue.temporary_tables import TemporaryTables

_T = TypeVar("_T")


class Spool(TemporaryTables, Generic[_T]):
    """Keeps values with what they are sorted by; a context manager. Only the thread that made it uses it."""

    def __init__(self) -> None:
        super().__init__("CREATE TABLE kept (id INTEGER PRIMARY KEY, place, packed BLOB)")

    def add(self, value: _T, place: str | float | None = None) -> None:
        """Keep a value at its place; those of one place stay in the order in which they came."""
        packed = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        self._file.execute("INSERT INTO kept (place, packed) VALUES (?, ?)", (place, packed))

    def sorted(self, *, descending: bool = False, limit: int | None = None) -> Iterator[_T]:
        """The values by their places, the first `limit` of them; what has no place comes last."""
        order = "DESC" if descending else "ASC"
        query = f"SELECT id FROM kept ORDER BY place IS NULL, place {order}, id LIMIT ?"  # noqa: S608
        for (number,) in self._file.execute(query, (-1 if limit is None else limit,)):
            (packed,) = self._file.execute("SELECT packed FROM kept WHERE id = ?", (number,)).fetchone()
            yield pickle.loads(packed)  # noqa: S301 (written by this process, to a file that has no name)
