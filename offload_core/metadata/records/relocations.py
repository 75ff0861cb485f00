"""The mapping of relocated copies, for records that are not ours to write: a file of JSON lines.

Each line is a step of one new copy: `begin` before its first byte is written, `done` when it is verified, `dropped`
when it failed and its objects are deleted. Readers apply what is done to records. Lines are only appended, so that a
process that is killed loses nothing; the last line may be torn. Source: docs/formats/relocations.md.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BufferedRandom
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, get_args
from uuid import UUID

from offload_core.metadata.records.managed_ledger_info import ManagedLedgerInfo
from offload_core.metadata.records.offload_context import DriverMetadata
from offload_core.metadata.records.replacements import (
    CopyForm,
    OtherCopy,
    begin_replacement,
    forget_replaced,
    read_copies,
    replaced_of,
    switch_replacement,
)
from offload_hooks.errors import AttemptError, OutcomeUnknownError, StoreError
from offload_hooks.json_text import JsonObject
from offload_hooks.private_files import open_file, sync_directory

if TYPE_CHECKING:
    from typing_extensions import Self

VERSION = 1
Step = Literal["begin", "done", "dropped"]
_LEDGER = re.compile("[0-9]{1,19}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Relocation:
    """A new copy, and the copies that it replaces.

    Attributes:
        replaces: the attempts that records name.
        done_ms: when the copy was verified (ms since 1970, UTC).
        filters: short filter records by ledger, where that of the new copy differs from the old one's.
    """

    managed_ledger: str
    copy: OtherCopy
    replaces: tuple[UUID, ...]
    done_ms: int = 0
    filters: Mapping[int, str] = field(default_factory=dict)


def relocated(info: ManagedLedgerInfo, relocations: Iterable[Relocation]) -> ManagedLedgerInfo:
    """A managed ledger's record as it would be with these recorded, as far as it still names the old copies."""
    for each in relocations:
        if not read_copies(info).issuperset(each.replaces):
            continue  # the record was changed meanwhile, perhaps alike
        try:
            info = begin_replacement(info, each.copy)
            info = switch_replacement(info, each.copy.uuid, each.done_ms, each.filters)
        except AttemptError:
            continue
        for ledger_id in each.copy.ledger_ids:
            ledger = info.ledger(ledger_id)
            for old in () if ledger is None else replaced_of(ledger):
                if old.uuid not in read_copies(info):
                    info = forget_replaced(info, old.uuid)
    return info


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """Contents of a mapping: relocations that are done, in order, and those that have not ended."""

    done: tuple[Relocation, ...]
    under_way: tuple[Relocation, ...]

    def of(self, managed_ledger: str) -> list[Relocation]:
        """Relocations of one managed ledger that are done."""
        return self._by_managed_ledger.get(managed_ledger, [])

    @cached_property
    def _by_managed_ledger(self) -> Mapping[str, list[Relocation]]:
        found: dict[str, list[Relocation]] = {}
        for each in self.done:
            found.setdefault(each.managed_ledger, []).append(each)
        return found


def read_mapping(path: str | os.PathLike[str]) -> Mapped:
    """Read a mapping file.

    Raises:
        FormatError: it is no mapping, with the line. UnsupportedVersionError: a newer one.
        StoreError: it cannot be read.
    """
    try:
        with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
            data = file.read()
    except OSError as error:
        raise StoreError(
            f"a mapping of relocations cannot be read: {error.strerror}", key=str(path)
        ) from error
    return _parse(data, str(path))


class MappingFile:
    """A mapping that is written, and locked against other processes. A context manager.

    Raises:
        FormatError: the file is no mapping. UnsupportedVersionError: a newer one.
        StoreError: it cannot be written, or another process writes it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self._file: BufferedRandom = os.fdopen(
                open_file(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+b"
            )
            sync_directory(self.path.absolute().parent)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._file.seek(0)
                data = self._file.read()
                self.mapped = _parse(data, str(path))
                if data and not data.endswith(b"\n"):
                    self._file.truncate(data.rfind(b"\n") + 1)
            except BaseException:
                self._file.close()
                raise
        except BlockingIOError as error:
            raise StoreError("another process relocates by this mapping", key=str(path)) from error
        except OSError as error:
            raise StoreError(f"a mapping cannot be written: {error.strerror}", key=str(path)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, step: Step, relocation: Relocation) -> None:
        """Add a step, durably.

        Raises:
            OutcomeUnknownError: it may have been added or not.
        """
        line = json.dumps({"version": VERSION, "step": step, **_fields(relocation)}, separators=(",", ":"))
        try:
            self._file.write(line.encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OutcomeUnknownError(
                f"a mapping cannot be written: {error.strerror}", key=str(self.path)
            ) from error
        self.mapped = _with_step(self.mapped, step, relocation)


def _with_step(mapped: Mapped, step: Step, relocation: Relocation) -> Mapped:
    others = tuple(each for each in mapped.under_way if each.copy.uuid != relocation.copy.uuid)
    if step == "begin":
        return replace(mapped, under_way=(*others, relocation))
    if step == "done":
        return replace(mapped, under_way=others, done=(*mapped.done, relocation))
    return replace(mapped, under_way=others)


def _parse(data: bytes, path: str) -> Mapped:
    done: list[Relocation] = []
    under_way: dict[UUID, Relocation] = {}
    *lines, _torn = data.split(b"\n")
    for number, line in enumerate(lines, start=1):
        step, relocation = _parse_line(line, path, number)
        under_way.pop(relocation.copy.uuid, None)
        if step == "begin":
            under_way[relocation.copy.uuid] = relocation
        elif step == "done":
            done.append(relocation)
    return Mapped(done=tuple(done), under_way=tuple(under_way.values()))


def _fields(relocation: Relocation) -> dict[str, Any]:
    copy = relocation.copy
    return {
        "managed_ledger": relocation.managed_ledger,
        "ledgers": list(copy.ledger_ids),
        "uuid": str(copy.uuid),
        "form": copy.form.value,
        "replaces": [str(each) for each in relocation.replaces],
        "driver": copy.driver.name,
        "properties": dict(copy.driver.properties),
        "segment": None if copy.segment is None else str(copy.segment),
        "since": copy.since_ms,
        "done": relocation.done_ms,
        "filters": {str(each): record for each, record in relocation.filters.items()},
    }


def _parse_line(line: bytes, path: str, number: int) -> tuple[Step, Relocation]:
    fields = JsonObject.read(line, f"line {number} of a mapping of relocations", key=path)
    fields.check_version(VERSION)
    step = next((each for each in get_args(Step) if each == fields.text("step")), None)
    if step is None:
        raise fields.wrong("step", "begin, done or dropped")
    filters = fields.texts("filters")
    if not all(_LEDGER.fullmatch(each) for each in filters):
        raise fields.wrong("filters", "records by the ids of ledgers")
    copy = OtherCopy(
        uuid=fields.uuid("uuid"),
        form=fields.choice("form", CopyForm),
        driver=DriverMetadata(
            name=fields.text("driver"), properties=tuple(fields.texts("properties").items())
        ),
        since_ms=fields.integer("since"),
        segment=fields.optional_uuid("segment"),
        ledger_ids=fields.integers("ledgers"),
    )
    return step, Relocation(
        managed_ledger=fields.text("managed_ledger"),
        copy=copy,
        replaces=fields.uuids("replaces"),
        done_ms=fields.integer("done"),
        filters={int(each): record for each, record in filters.items()},
    )
