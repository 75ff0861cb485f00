"""Tables in a temporary file, for what is known of more objects than fit into memory."""

from __future__ import annotations

import sqlite3
from types import TracebackType
from typing import Self


class TemporaryTables:
    """An SQLite file without a name, gone when it is closed; a context manager. One thread at a time uses it.

    Args:
        tables: statements that make them.
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
