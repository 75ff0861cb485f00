"""A Delta table as a target: workers write its data files, a commit adds them and the export's state at once.

The state is in Delta's application transactions, which the protocol has for just this: ids with a number each, kept as
long as the table. The id `pulsar-offload` counts the commits; three ids a topic hold its position. The table has our
columns and the partition columns `topic` and `date`. Source: docs/export.md.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow.fs import PyFileSystem

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.export.export_files import ExportedFile
from offload_core.reading.scan import Position
from offload_hooks.errors import OffloadError, OptionError, StoreError
from offload_hooks.shown_urls import shown_url

APPLICATION = "pulsar-offload"
PARTITIONS = {"topic": pa.string(), "date": pa.date32()}


class DeltaTarget:
    """A table at a URL."""

    commit_bytes = 4 << 30

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self._url = url
        self._options = dict(options)
        self._table: DeltaTable | None = None

    def load(self) -> Mapping[TopicName, Position]:
        """See `Target`."""
        with _translated():
            return self._load()

    def _load(self) -> Mapping[TopicName, Position]:
        if self._table is None:
            if not DeltaTable.is_deltatable(self._url, self._options):
                return {}
            self._table = DeltaTable(self._url, storage_options=self._options)
        else:
            self._table.update_incremental()
        return _Positions(self._table)

    def check_columns(self, schema: pa.Schema, fixed: Sequence[str]) -> None:  # noqa: ARG002
        """See `Target`."""
        if self._table is not None:
            _check_columns(self._table, schema)

    def place(self, schema: pa.Schema) -> DeltaPlace:
        """See `Target`; makes the table if there is none."""
        if self._table is None:
            with_partitions = _with_partitions(schema)
            with _translated():
                self._table = DeltaTable.create(
                    self._url,
                    with_partitions,
                    mode="ignore",
                    partition_by=list(PARTITIONS),
                    storage_options=self._options,
                )
            _check_columns(self._table, schema)
        return DeltaPlace(url=self._url, options=self._options, attempt=f"-{uuid.uuid4().hex}")

    def commit(self, files: tuple[ExportedFile, ...], reached: Mapping[TopicName, Position]) -> None:
        """See `Target`."""
        if self._table is None:
            raise AssertionError("a place is asked for before a commit")
        with _translated():
            self._commit(self._table, files, reached)

    def _commit(
        self, table: DeltaTable, files: tuple[ExportedFile, ...], reached: Mapping[TopicName, Position]
    ) -> None:
        number = (table.transaction_version(APPLICATION) or 0) + 1
        transactions = [Transaction(APPLICATION, number)]
        for topic, position in reached.items():
            for name, version in zip(_names(topic), astuple(position), strict=True):
                transactions.append(Transaction(name, version))
        try:
            table.create_write_transaction(
                [_action(file) for file in files],
                mode="append",
                schema=table.schema(),
                partition_by=list(PARTITIONS),
                commit_properties=CommitProperties(
                    custom_metadata={f"{APPLICATION}.commit": number}, app_transactions=transactions
                ),
            )
        except CommitFailedError as error:
            raise StoreError(
                f"the Delta table at {shown_url(self._url)} was changed meanwhile: {error}",
                hint="Nothing of this commit is in it. Let one export at a time write to a table.",
            ) from error
        table.update_incremental()

    def settle(self) -> None:
        """See `Target`."""

    def close(self) -> None:
        """See `Target`."""


class _Positions(Mapping[TopicName, Position]):
    """Positions by topic, from three transaction ids each; a table lists none, so these are the topics asked for."""

    def __init__(self, table: DeltaTable) -> None:
        self._table = table
        self._found: dict[TopicName, Position] = {}

    def __getitem__(self, topic: TopicName) -> Position:
        if topic not in self._found:
            ledger_id, entry_id, batch_index = map(self._table.transaction_version, _names(topic))
            if ledger_id is None or entry_id is None or batch_index is None:
                raise KeyError(topic)
            self._found[topic] = Position(ledger_id, entry_id, batch_index)
        return self._found[topic]

    def __iter__(self) -> Iterator[TopicName]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class _DeltaSink:
    def __init__(self, place: DeltaPlace, key: str) -> None:
        self._files = PyFileSystem(DeltaStorageHandler(place.url, dict(place.options)))
        self._key = key
        self.file = self._files.open_output_stream(key, compression=None)

    def finish(self) -> None:
        """Close the file, which is not in the table yet."""
        self.file.close()

    def discard(self) -> None:
        """Delete the written files."""
        self.file.close()
        self._files.delete_file(self._key)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaPlace:
    """The folder of a table, written by Delta's own file system."""

    url: str = field(repr=False)
    options: Mapping[str, str] = field(repr=False)
    attempt: str

    def open(self, key: str) -> _DeltaSink:
        """A new data file."""
        return _DeltaSink(self, key)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Translate a store's errors; their text may quote a credential, so only the type is shown."""
    try:
        yield
    except (DeltaError, OSError) as error:
        if isinstance(error, OffloadError):
            raise
        raise StoreError(
            "the Delta table failed", found=type(error).__name__, hint="--debug shows the whole trace."
        ) from error


def _names(topic: TopicName) -> tuple[str, str, str]:
    return (f"{APPLICATION}/ledger/{topic}", f"{APPLICATION}/entry/{topic}", f"{APPLICATION}/batch/{topic}")


def _with_partitions(schema: pa.Schema) -> pa.Schema:
    for name, kind in PARTITIONS.items():
        if name in schema.names:
            raise OptionError(
                f"the Delta table has a partition column {name!r}, and the messages have a column of this name",
                hint="Export other columns, or to another kind of target.",
            )
        schema = schema.append(pa.field(name, kind))
    return schema


def _check_columns(table: DeltaTable, schema: pa.Schema) -> None:
    known = {field.name: field.type for field in table.schema().fields}
    others = [field.name for field in Schema.from_arrow(schema).fields if known.get(field.name) != field.type]
    if others or table.metadata().partition_columns != list(PARTITIONS):
        raise OptionError(
            "the Delta table has other columns than the export",
            found=", ".join(others) or f"partitions {table.metadata().partition_columns}",
            hint="Name its columns, change its schema, or export to another table.",
        )


def _action(file: ExportedFile) -> AddAction:
    return AddAction(
        path=file.key,
        size=file.size_bytes,
        partition_values={"topic": file.topic, "date": file.date},
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps({"numRecords": file.rows}),
    )
