"""An Iceberg table as a target: workers write its data files, a commit adds them and the export's state at once.

The state is a property of the table, in the same commit as the files, so that it outlives snapshots; each snapshot's
own summary has it, too. The table is partitioned by topic and by day of publishing. Source: docs/export.md.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import load_file_io
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.export.export_files import ExportedFile
from offload_core.reading.export.manifest import positions_in
from offload_core.reading.scan import Position
from offload_hooks.errors import MetadataError, OffloadError, OptionError, StoreError
from offload_hooks.json_text import JsonObject

STATE = "pulsar-offload.export"
VERSION = 1
_ATTEMPTS = 5


class IcebergTarget:
    """A table of a catalog."""

    commit_bytes = 4 << 30

    def __init__(self, catalog: Catalog, identifier: str) -> None:
        self._catalog = catalog
        self._identifier = identifier
        self._state = ExportState()

    def load(self) -> Mapping[TopicName, Position]:
        """See `Target`."""
        with _translated(self._identifier):
            table = self._table()
            self._state = ExportState() if table is None else parse_state(table)
            return self._state.positions

    def check_columns(self, schema: pa.Schema, fixed: Sequence[str]) -> None:  # noqa: ARG002
        """See `Target`."""
        with _translated(self._identifier):
            table = self._table()
        if table is not None:
            self._check_columns(table, schema)

    def place(self, schema: pa.Schema) -> IcebergPlace:
        """See `Target`; makes the table if there is none."""
        with _translated(self._identifier):
            table = self._table() or self._create(schema)
        self._check_columns(table, schema)
        return IcebergPlace(
            location=table.location(), properties=dict(table.io.properties), attempt=f"-{uuid.uuid4().hex}"
        )

    def commit(self, files: tuple[ExportedFile, ...], reached: Mapping[TopicName, Position]) -> None:
        """See `Target`."""
        with _translated(self._identifier):
            self._commit(files, reached)

    def _commit(self, files: tuple[ExportedFile, ...], reached: Mapping[TopicName, Position]) -> None:
        state = ExportState(number=self._state.number + 1, positions={**self._state.positions, **reached})
        text = state.to_json()
        for attempt in range(1, _ATTEMPTS + 1):
            table = self._catalog.load_table(self._identifier)
            if parse_state(table) != self._state:
                raise StoreError(
                    f"another export has written to the table {self._identifier} meanwhile",
                    hint="Nothing of this commit is in it. Let one export at a time write to a table.",
                )
            try:
                with table.transaction() as transaction:
                    transaction.set_properties({STATE: text})
                    if files:
                        transaction.add_files(
                            [f"{table.location()}/data/{file.key}" for file in files],
                            snapshot_properties={STATE: text},
                            check_duplicate_files=False,
                        )
                break
            except ValueError as error:
                raise _unlike(self._identifier, str(error)) from error
            except CommitFailedException as error:
                # Another process has changed the table: try again on its new version.
                if attempt == _ATTEMPTS:
                    what = f"the table {self._identifier} is changed all the time"
                    raise StoreError(what, found=str(error)) from error
        self._state = state

    def settle(self) -> None:
        """See `Target`."""

    def close(self) -> None:
        """See `Target`."""
        self._catalog.close()

    def _table(self) -> Table | None:
        try:
            return self._catalog.load_table(self._identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _check_columns(self, table: Table, schema: pa.Schema) -> None:
        others = sorted(set(schema.names) - {field.name for field in table.schema().fields})
        if others:
            raise _unlike(self._identifier, ", ".join(others))

    def _create(self, schema: pa.Schema) -> Table:
        # No statistics of payloads and keys are written (written_files), so none are looked for.
        metrics = {
            f"write.metadata.metrics.column.{field.name}": "none"
            for field in schema
            if pa.types.is_binary(field.type)
        }
        self._catalog.create_namespace_if_not_exists(self._identifier.rpartition(".")[0])
        try:
            with (
                self._catalog.create_table_transaction(
                    self._identifier, schema, properties=metrics
                ) as transaction,
                transaction.update_spec() as spec,
            ):
                if "__topic" in schema.names:
                    spec.add_field("__topic", IdentityTransform(), "topic")
                if "__publishTime" in schema.names:
                    spec.add_field("__publishTime", DayTransform(), "date")
        except TableAlreadyExistsError:  # another process made it
            pass
        return self._catalog.load_table(self._identifier)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportState:
    """A table's count of export commits, and the next position of each topic."""

    number: int = 0
    positions: Mapping[TopicName, Position] = field(default_factory=dict)

    def to_json(self) -> str:
        """Its text in the table's properties."""
        positions = {str(topic): str(position) for topic, position in sorted(self.positions.items())}
        return json.dumps({"version": VERSION, "number": self.number, "positions": positions})


def parse_state(table: Table) -> ExportState:
    """The state that a table's properties hold; none is that of a table to which nothing was exported.

    Raises:
        UnsupportedVersionError, MetadataError.
    """
    text = table.properties.get(STATE)
    if text is None:
        return ExportState()
    fields = JsonObject.read(text, f"the table's property {STATE}", error=MetadataError)
    fields.check_version(VERSION)
    return ExportState(number=fields.integer("number"), positions=positions_in(fields))


class _IcebergSink:
    def __init__(self, place: IcebergPlace, key: str) -> None:
        path = f"{place.location}/data/{key}"
        self._io = load_file_io(dict(place.properties), path)
        self._path = path
        self.file = self._io.new_output(path).create(overwrite=True)

    def finish(self) -> None:
        """Close the file, which is not in the table yet."""
        self.file.close()

    def discard(self) -> None:
        """Delete the written files."""
        self.file.close()
        self._io.delete(self._path)


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergPlace:
    """The data folder of a table, written by the catalog's own file system."""

    location: str
    properties: Mapping[str, Any]
    attempt: str

    def __repr__(self) -> str:
        return f"<IcebergPlace {self.location}>"  # the properties may hold secrets

    def open(self, key: str) -> _IcebergSink:
        """A new data file."""
        return _IcebergSink(self, key)


@contextlib.contextmanager
def _translated(identifier: str) -> Iterator[None]:
    """Translate a catalog's errors; their text may quote a credential, so only the type is shown."""
    try:
        yield
    except OffloadError:
        raise
    except Exception as error:
        what = f"the Iceberg catalog of {identifier} failed"
        raise StoreError(what, found=type(error).__name__, hint="--debug shows the whole trace.") from error


def _unlike(identifier: str, found: str) -> OptionError:
    return OptionError(
        f"the table {identifier} has other columns than the export",
        found=found,
        hint="Name its columns, change its schema, or export to another table.",
    )


def open_iceberg(text: str, properties: Mapping[str, str]) -> IcebergTarget:
    """The target `CATALOG/NAMESPACE.TABLE`; the catalog by pyiceberg's configuration and these properties."""
    name, separator, identifier = text.partition("/")
    if not separator or not name or "." not in identifier.strip("."):
        raise OptionError("this names no Iceberg table", expected="iceberg:CATALOG/NAMESPACE.TABLE")
    try:
        catalog = load_catalog(name, **properties)
    except Exception as error:
        raise OptionError(
            f"the Iceberg catalog {name!r} cannot be opened",
            found=f"{type(error).__name__}: {error}",
            hint=f"Configure it in .pyiceberg.yaml, or by PYICEBERG_CATALOG__{name.upper()}__URI.",
        ) from error
    return IcebergTarget(catalog, identifier)
