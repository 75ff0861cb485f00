"""A folder of Parquet, CSV or JSON files as a target: a manifest is the commit, and files become visible after it.

Workers leave each file as an upload that is not visible. A commit writes a manifest that names them, then makes them
visible. An export killed in between leaves a manifest whose uploads the next export makes visible; one killed
before it leaves uploads that mean nothing. So the folder never holds a row twice, and readers need not know of
manifests. At the end of an export of Parquet the newest manifest moves into a Parquet file without rows, and the files
of all are emptied, so that readers of a folder find Parquet only. An empty manifest still takes its number, so that no
export that is late, or of an earlier version, commits as if it were not there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pyarrow as pa

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.export.export_files import ExportedFile, FileFormat
from offload_core.reading.export.manifest import (
    FOLDER,
    MAX_MANIFEST_BYTES,
    PARQUET,
    SETTLED_FOLDER,
    Manifest,
    decode_manifest,
    decode_settled,
    encode_manifest,
    encode_settled,
    number_of_key,
    settled_key_of,
)
from offload_core.reading.export.written_files import TierPlace
from offload_core.reading.scan import Position
from offload_core.storage.tier import Tier
from offload_hooks.errors import (
    BadLengthError,
    DataLossError,
    MetadataError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    StoreError,
    UploadError,
)

STALE_AFTER = timedelta(days=1)
"""Uploads that are older and in no manifest are deleted, and states that are: a reader may have listed younger ones."""

_log = logging.getLogger(__name__)


class FolderTarget:
    """Files and manifests in a Tier."""

    commit_bytes = 1

    def __init__(self, tier: Tier, kind: FileFormat) -> None:
        self._tier = tier
        self._kind = kind
        self._newest: Manifest | None = None
        self._schema: pa.Schema | None = None
        self._columns: Mapping[str, str] | None = None
        self._unsettled: list[str] = []
        """The keys of manifests that are not empty."""

    def load(self) -> Mapping[TopicName, Position]:
        """See `Target`."""
        self._newest = self._read_newest()
        if self._newest is not None:
            self._publish(self._newest)
        self._drop_stale()
        return {} if self._newest is None else self._newest.positions

    def check_columns(self, schema: pa.Schema, fixed: Sequence[str]) -> None:
        """See `Target`; what a folder of an earlier version has is not written down."""
        columns = {name: str(schema.field(name).type) for name in fixed}
        if self._newest is not None and self._newest.kind != self._kind:
            raise OptionError(
                "the earlier exports to this folder have files of another format",
                expected=self._newest.kind,
                found=self._kind,
                hint="Export in their format, or to another folder.",
            )
        before = None if self._newest is None else self._newest.columns
        if before is not None and list(before.items()) != list(columns.items()):
            shown = [list(before), list(columns)]
            if shown[0] == shown[1]:
                shown = [[f"{name} {kind}" for name, kind in each.items()] for each in (before, columns)]
            raise OptionError(
                "the earlier exports to this folder have other columns",
                expected=", ".join(shown[0]),
                found=", ".join(shown[1]),
                hint="Export the columns that they have, or to another folder.",
            )
        self._schema, self._columns = schema, columns

    def place(self, schema: pa.Schema) -> TierPlace:  # noqa: ARG002
        """See `Target`; each file has its own schema."""
        return TierPlace(self._tier)

    def commit(self, files: tuple[ExportedFile, ...], reached: Mapping[TopicName, Position]) -> None:
        """See `Target`."""
        before = self._newest
        manifest = Manifest(
            number=1 if before is None else before.number + 1,
            committed_at=datetime.now(timezone.utc),
            positions={**(before.positions if before else {}), **reached},
            files=files,
            columns=self._columns,
            kind=self._kind,
        )
        data = encode_manifest(manifest)
        create_only = self._tier.describe().capabilities.create_only
        try:
            self._tier.write_index(manifest.key, data, create_only=create_only)
        except ObjectExistsError as error:
            # A store that did not answer may have stored it, and a retry then finds it.
            if self._read(manifest.key) != data:
                raise StoreError(
                    "another export has written to the same place meanwhile",
                    key=manifest.key,
                    hint="Nothing of this commit is visible. Let one export at a time write to a place.",
                ) from error
        self._newest = manifest
        self._unsettled.append(manifest.key)
        self._publish(manifest)

    def settle(self) -> None:
        """See `Target`: move the newest manifest into a Parquet file, and empty the others.

        Killed on the way, it is done again: as long as the newest manifest is not empty, it is the one that counts.
        """
        newest = self._newest
        if (
            newest is None
            or newest.kind != PARQUET
            or newest.columns is None
            or self._schema is None
            or not self._unsettled
        ):
            return
        settled = settled_key_of(newest.key)
        self._tier.write_index(settled, encode_settled(_published(newest), self._schema))
        for key in self._unsettled:
            self._tier.write_index(key, b"")
        self._unsettled.clear()
        before = datetime.now(timezone.utc) - STALE_AFTER
        states = [each for each in self._tier.list_objects(SETTLED_FOLDER) if each.modified_at < before]
        self._tier.delete([each.key for each in states if each.key < settled])

    def close(self) -> None:
        """See `Target`."""
        self._tier.close()

    def _read_newest(self) -> Manifest | None:
        newest = None
        self._unsettled.clear()
        try:
            for listed in self._tier.list_objects(FOLDER):
                if number_of_key(listed.key) is not None:
                    newest = listed.key
                    if listed.size_bytes:
                        self._unsettled.append(newest)
        except ObjectNotFoundError:  # a local folder that is not there yet
            return None
        if newest is None:
            return None
        if data := self._read(newest):
            return decode_manifest(data, newest)
        settled = settled_key_of(newest)
        try:
            return decode_settled(self._read(settled), newest)
        except ObjectNotFoundError as error:
            raise MetadataError(
                "the state of the exports to this folder is missing",
                key=settled,
                hint="Restore this file, or export to another folder.",
            ) from error

    def _read(self, key: str) -> bytes:
        size = self._tier.stat(key).size_bytes
        if size > MAX_MANIFEST_BYTES:
            raise BadLengthError(
                "an export's manifest has a strange size",
                key=key,
                expected=f"at most {MAX_MANIFEST_BYTES} bytes",
                found=size,
            )
        return bytes(self._tier.read_range(key, 0, size)) if size else b""

    def _publish(self, manifest: Manifest) -> None:
        """Make a manifest's files visible that are not, and write down that it is done.

        May be done again, by anybody: the manifest of a file that is known to have been visible names no upload.
        """
        if all(file.staged is None for file in manifest.files):
            return
        for file in manifest.files:
            if file.staged is None or self._is_visible(file):
                continue
            try:
                self._tier.commit_data(file.staged.upload, file.staged.receipts)
            except UploadError as error:
                if not self._is_visible(file):  # unless another process was faster
                    raise DataLossError(
                        "a file that an export has committed is not there, nor is the upload that would become it",
                        key=file.key,
                        hint=f"Export {file.topic} from {file.first} to {file.last} to another place.",
                    ) from error
        self._tier.write_index(manifest.key, encode_manifest(_published(manifest)))

    def _is_visible(self, file: ExportedFile) -> bool:
        try:
            return self._tier.stat(file.key).size_bytes == file.size_bytes
        except ObjectNotFoundError:
            return False

    def _drop_stale(self) -> None:
        if not self._tier.describe().capabilities.stale_uploads:
            return
        before = datetime.now(timezone.utc) - STALE_AFTER
        try:
            stale = [each for each in self._tier.list_uploads("topic=") if each.started_at < before]
        except ObjectNotFoundError:
            return
        for each in stale:
            _log.info("an upload of an earlier export is aborted: %s", each.upload.key)
            self._tier.abort_data(each.upload)


def _published(manifest: Manifest) -> Manifest:
    return replace(manifest, files=tuple(replace(file, staged=None) for file in manifest.files))
