"""Objects of which every byte was found to be right: skip them the next time, and give checksums to those without.

The file of verified objects is SQLite: a process that is killed leaves what was committed before. A pair is skipped if
both objects, and the files beside them, have the sizes and times that they had; one with findings is verified again.

Before checksums are written, the pair is inspected once more: objects that were written anew since they were verified
get none, nor does a kill after the write leave any for bytes that are gone. Each is recorded before it is written. If
the process is killed, the next verification writes the rest. Described in docs/verify.md.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from offload_core.format.codec.block_checksums import BlockChecksums, pack_block_checksums
from offload_core.format.codec.object_format import CLUSTER_KEY, ROLE_KEY, TOPIC_KEY
from offload_core.maintenance.verify.deep import LedgerCount
from offload_core.maintenance.verify.findings import Code
from offload_core.maintenance.verify.pair_checks import Examined
from offload_core.metadata.catalogue import concurrently
from offload_core.metadata.catalogue.listing import Pair
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog, Change, ChangeAction
from offload_hooks.errors import (
    FormatError,
    ObjectExistsError,
    ObjectNotFoundError,
    OffloadError,
    StoreError,
    UnsupportedVersionError,
)
from offload_hooks.json_text import JsonObject, read_json
from offload_hooks.private_files import create_file
from offload_hooks.values import ListedObject, ObjectStat

if TYPE_CHECKING:
    from typing_extensions import Self

APPLICATION_ID = 0x504F5653
"""`POVS`, in the file's header, as SQLite has it."""

VERSION = 1
_COMMIT_S = 1.0


class VerifiedObjects:
    """The objects that were found to be sound; a context manager.

    Args:
        path: the file, made if it is not there, for this user alone.
        location: of the tier; a file of another tier is refused.

    Raises:
        FormatError: the file is none of these, or damaged, or of another tier.
        UnsupportedVersionError: a newer one.
        StoreError: it cannot be opened or written.
    """

    def __init__(self, path: str | os.PathLike[str], location: str) -> None:
        self._path = Path(path)
        with self._named():
            create_file(self._path)
            self._file = sqlite3.connect(self._path, isolation_level=None)
            try:
                self._open(location)
            except BaseException:
                self._file.close()
                raise
        self._committed_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._named():
            if self._file.in_transaction:
                self._file.execute("COMMIT")
            self._file.close()

    def find(self, pair: Pair) -> tuple[LedgerCount, ...] | None:
        """Return the counts of a pair of objects, if it is as it was then; None if it is to be verified."""
        with self._named():
            row = self._file.execute(
                "SELECT looks, counts FROM verified WHERE key = ?", (pair.key.data_key,)
            ).fetchone()
            if row is None or row[0] != _looks(pair):
                return None
            try:
                return tuple(map(_count, read_json(str(row[1]), "a row")))
            except (FormatError, TypeError) as error:
                raise sqlite3.DatabaseError("a row cannot be read") from error

    def add(self, pair: Pair, counts: Sequence[LedgerCount]) -> None:
        """Add a pair that is sound."""
        fields = LedgerCount.__slots__
        packed = json.dumps([{name: getattr(each, name) for name in fields} for each in counts])
        with self._named():
            if not self._file.in_transaction:
                self._file.execute("BEGIN")
            self._file.execute(
                "INSERT OR REPLACE INTO verified VALUES (?, ?, ?)", (pair.key.data_key, _looks(pair), packed)
            )
            if time.monotonic() - self._committed_at > _COMMIT_S:
                self._file.execute("COMMIT")
                self._committed_at = time.monotonic()

    def _open(self, location: str) -> None:
        ask = self._file.execute
        (application,), (version,) = (
            ask("PRAGMA application_id").fetchone(),
            ask("PRAGMA user_version").fetchone(),
        )
        (tables,) = ask("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables and not application:
            ask("BEGIN IMMEDIATE")
            ask("CREATE TABLE verified (key TEXT PRIMARY KEY, looks TEXT NOT NULL, counts TEXT NOT NULL)")
            ask("CREATE TABLE tier (location TEXT NOT NULL)")
            ask("INSERT INTO tier VALUES (?)", (location,))
            ask(f"PRAGMA application_id = {APPLICATION_ID}")
            ask(f"PRAGMA user_version = {VERSION}")
            ask("COMMIT")
            return
        if application != APPLICATION_ID:
            raise sqlite3.DatabaseError("it was made by another program")
        if version != VERSION:
            raise UnsupportedVersionError(
                "a file of verified objects has a version that is not known",
                key=str(self._path),
                expected=VERSION,
                found=version,
            )
        if ask("PRAGMA quick_check").fetchone() != ("ok",):
            raise sqlite3.DatabaseError("it is damaged")
        (known,) = ask("SELECT location FROM tier").fetchone() or (None,)
        if known != location:
            raise FormatError(
                "a file of verified objects is of another tier",
                key=str(self._path),
                expected=location,
                found=known,
                hint="Give each tier a file of its own.",
            )

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, OffloadError):
                raise
            raise StoreError(
                f"a file of verified objects cannot be used: {error.strerror}", key=str(self._path)
            ) from error
        except sqlite3.OperationalError as error:
            raise StoreError(
                f"a file of verified objects cannot be used: {error}", key=str(self._path)
            ) from error
        except sqlite3.DatabaseError as error:
            raise FormatError(
                f"this is no file of verified objects, or it is damaged: {error}",
                key=str(self._path),
                hint="Remove it, or name another: all is verified anew then.",
            ) from error


def _count(value: object) -> LedgerCount:
    fields = JsonObject.of(value, "a row")
    return LedgerCount(
        ledger_id=fields.integer("ledger_id"),
        stop_entry_id=fields.optional_integer("stop_entry_id"),
        entries=fields.integer("entries"),
        payload_bytes=fields.integer("payload_bytes"),
        unchecked=fields.integer("unchecked"),
    )


def _looks(pair: Pair) -> str:
    looks: list[object] = [_look(pair.data), _look(pair.index)]
    beside = {
        name: _look(listed)
        for name, listed in (
            (".data.crc", pair.data_checksums),
            (".index.crc", pair.index_checksums),
            ("checksums", pair.block_checksums),
        )
        if listed is not None
    }
    return json.dumps([*looks, beside] if beside else looks)


def _look(listed: ListedObject | None) -> list[object] | None:
    return None if listed is None else [listed.size_bytes, listed.modified_at.isoformat()]


_TOGETHER = 256


@dataclass(frozen=True, slots=True)
class Sealable:
    """A sound pair of objects, its checksums, and its counts."""

    examined: Examined
    checksums: BlockChecksums
    counts: tuple[LedgerCount, ...]


@dataclass(frozen=True, slots=True)
class Sealed:
    """A pair with its checksums; None if it is gone, or changed. In a dry run it has none yet."""

    pair: Pair | None
    counts: tuple[LedgerCount, ...]


class Sealing:
    """Writes checksums beside objects.

    Args:
        audit: where each is recorded before it is written; None for a dry run, which writes nothing.
    """

    def __init__(self, tier: Tier, audit: AuditLog | None) -> None:
        self._tier = tier
        self._audit = audit
        self._waiting: list[Sealable] = []

    def add(self, sealable: Sealable) -> None:
        """Add a pair that is to have checksums; `settle` writes them."""
        self._waiting.append(sealable)

    @property
    def is_full(self) -> bool:
        """True if as many wait as are written at once."""
        return len(self._waiting) >= _TOGETHER

    def settle(self) -> Sequence[Sealed | OffloadError]:
        """Write the checksums of the pairs that were added since the last time; return the result of each."""
        waiting, self._waiting = self._waiting, []
        return concurrently(self._seal, waiting)

    def _seal(self, sealable: Sealable) -> Sealed | OffloadError:
        pair = sealable.examined.pair
        if self._audit is None:
            return Sealed(pair, sealable.counts)
        key = pair.key
        self._audit.record(
            Change(
                action=ChangeAction.WRITE,
                why="every byte of the object is right, and it has no checksums that can be read",
                managed_ledger=sealable.examined.managed_ledger,
                ledger_id=key.ledger_id,
                uuid=key.uuid,
                key=key.block_checksums_key,
                before=None if pair.block_checksums is None else "damaged checksums",
                after=f"CRC-32C of the index and {len(sealable.checksums.lengths)} blocks",
            )
        )
        try:
            return Sealed(self._written(sealable), sealable.counts)
        except StoreError as error:
            return error.at(key=key.block_checksums_key)

    def _written(self, sealable: Sealable) -> Pair | None:
        """Write checksums; return the pair as it is now, None if it is gone or changed: then nothing is written."""
        pair = sealable.examined.pair
        key = pair.key.block_checksums_key
        if not self._is_as_verified(pair):
            return None
        is_ours = False
        with suppress(ObjectExistsError):  # its writer was slower than our listing
            self._tier.write_index(
                key,
                pack_block_checksums(sealable.checksums),
                user_metadata=_about(sealable.examined),
                create_only=pair.block_checksums is None,
            )
            is_ours = True
        if not self._is_as_verified(pair):
            if is_ours:
                self._tier.delete(
                    [key]
                )  # the process that wrote it anew knows its bytes, or the next verification does
            return None
        stat = self._tier.stat(key)
        listed = ListedObject(key=key, size_bytes=stat.size_bytes, modified_at=stat.modified_at)
        return replace(pair, block_checksums=listed)

    def _is_as_verified(self, pair: Pair) -> bool:
        try:
            now = [self._tier.stat(name) for name in (pair.key.data_key, pair.key.index_key)]
        except ObjectNotFoundError:
            return False
        return [_version(each) for each in now] == [_version(each) for each in (pair.data, pair.index)]


def _version(stored: ObjectStat | ListedObject | None) -> tuple[object, ...]:
    return () if stored is None else (stored.size_bytes, stored.modified_at)


def _about(examined: Examined) -> dict[str, str]:
    """Return user metadata: topic and cluster, where the key does not name them."""
    if examined.key.is_mapfile:
        return {}
    names = {TOPIC_KEY: examined.managed_ledger, CLUSTER_KEY: examined.cluster}
    return {ROLE_KEY: "checksums", **{name: value for name, value in names.items() if value is not None}}


def is_sealable(examined: Examined) -> bool:
    """Return whether a pair may have checksums made, if every byte of it is right: it has none that can be read."""
    if examined.has_checksums or any(
        finding.code is not Code.CHECKSUMS_DAMAGED for finding in examined.findings
    ):
        return False
    return examined.is_sound
