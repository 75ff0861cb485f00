"""A folder of Parquet files as a target: a manifest is the commit, and files become visible after it.

Workers leave each file as an upload that is not visible. A commit writes a manifest that names them, then makes them
visible. An export killed in between leaves a manifest whose uploads the next export makes visible; one killed
before it leaves uploads that mean nothing. So the folder never holds a row twice, and readers need not know of
manifests.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pyarrow as pa

from offload_core.metadata.catalogue import TopicName
from offload_core.reading.export.export_files import ExportedFile
from offload_core.reading.export.manifest import (
    FOLDER,
    MAX_MANIFEST_BYTES,
    Manifest,
    decode_manifest,
    encode_manifest,
    number_of_key,
)
from offload_core.reading.export.parquet_files import TierPlace
from offload_core.reading.scan import Position
from offload_core.storage.tier import Tier
from offload_hooks.errors import (
    BadLengthError,
    DataLossError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
    UploadError,
)

STALE_AFTER = timedelta(days=1)
"""Uploads that are older and in no manifest are deleted."""

_log = logging.getLogger(__name__)


class ParquetTarget:
    """Parquet files and manifests in a Tier."""

    commit_bytes = 1

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self._newest: Manifest | None = None

    def load(self) -> Mapping[TopicName, Position]:
        """See `Target`."""
        self._newest = self._read_newest()
        if self._newest is not None:
            self._publish(self._newest)
        self._drop_stale()
        return {} if self._newest is None else self._newest.positions

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
        self._publish(manifest)

    def close(self) -> None:
        """See `Target`."""
        self._tier.close()

    def _read_newest(self) -> Manifest | None:
        newest = None
        try:
            for listed in self._tier.list_objects(FOLDER):
                if number_of_key(listed.key) is not None:
                    newest = listed.key
        except ObjectNotFoundError:  # a local folder that is not there yet
            return None
        return None if newest is None else decode_manifest(self._read(newest), newest)

    def _read(self, key: str) -> bytes:
        size = self._tier.stat(key).size_bytes
        if not 0 < size <= MAX_MANIFEST_BYTES:
            raise BadLengthError(
                "an export's manifest has a strange size",
                key=key,
                expected=f"1 to {MAX_MANIFEST_BYTES} bytes",
                found=size,
            )
        return bytes(self._tier.read_range(key, 0, size))

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
        published = replace(manifest, files=tuple(replace(file, staged=None) for file in manifest.files))
        self._tier.write_index(published.key, encode_manifest(published))

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
