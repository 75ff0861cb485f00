"""Uploads of the driver `azure`, whose store has none of its own: a record for each, at `.offload-uploads/<id>.json`.

Staged blocks belong to a blob, not to an upload. Whose they are is told by their ids, and what will be known of the
object by the record: `begin` writes it, `commit` reads and deletes it, `drop` deletes it. Blocks of an upload that was
left stay with their blob, seen by nobody, until the next commit of the same key, or a week; Azure has no request that
drops them and shows nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.blob import BlobProperties

from offload_drivers.azure.container import Container
from offload_drivers.azure.errors import code_of, exists_already
from offload_drivers.azure.listing import list_blobs
from offload_drivers.object_keys import KeySpace
from offload_drivers.object_metadata import ObjectMetadata
from offload_drivers.upload_records import (
    RECORD_SUFFIX,
    check_upload_id,
    encode_record,
    is_upload_id,
    listed_key,
    metadata_of,
    new_upload,
)
from offload_hooks import StaleUpload, Upload
from offload_hooks.errors import StoreError

_RECORD = ObjectMetadata(content_type="application/json")
_RECORDS_AT_ONCE = 100
_log = logging.getLogger(__name__)


class Uploads:
    """The uploads of one tier, of all processes."""

    def __init__(self, container: Container, keys: KeySpace) -> None:
        self._container = container
        self._keys = keys

    def begin(self, key: str, metadata: ObjectMetadata) -> Upload:
        """Make an upload that another process may go on with."""
        upload = new_upload(key)
        record = memoryview(encode_record(key, metadata))
        call = (self._container.put, self._record(upload), record, _RECORD, False)
        self._container.call("begin an object", key, *call)
        return upload

    def commit(
        self, upload: Upload, blocks: Sequence[str], create_only: bool
    ) -> tuple[datetime, ObjectMetadata]:
        """Make an upload's object of these blocks; answers its time and metadata.

        `UploadError` if the upload is gone.
        """
        check_upload_id(upload)
        what, key = "commit an object", upload.key
        name = self._keys.name(key)
        record = self._container.call(what, key, self._read_record, self._record(upload))
        metadata = metadata_of(upload, record)
        modified_at = self._container.call(what, key, self._commit, name, blocks, metadata, create_only)
        try:
            self._container.call(what, key, self._container.delete, self._record(upload))
        except StoreError as error:
            # The object is there. What is left is an upload that `list_uploads` shows and `abort_data` drops.
            _log.warning("the record of the committed upload %s was not deleted: %s", upload.upload_id, error)
        return modified_at, metadata

    def drop(self, upload: Upload) -> bool:
        """Delete an upload's record, without which it cannot be committed; whether there was one."""
        if not is_upload_id(upload.upload_id):
            return False
        return self._container.call(
            "abort an upload", upload.key, self._container.delete, self._record(upload)
        )

    def listed(self, prefix: str) -> Iterator[StaleUpload]:
        """All uploads of keys that begin with `prefix`, in order of their ids."""
        what = "list uploads"
        folder = self._keys.staging_name()
        run = partial(self._container.call, what, None)
        found: list[BlobProperties] = []
        for blob in list_blobs(self._container.listed(), run, folder, ""):
            if is_upload_id(self._id(blob.name)):
                found.append(blob)
            if len(found) == _RECORDS_AT_ONCE:
                yield from self._read(what, found, prefix)
                found = []
        yield from self._read(what, found, prefix)

    def _read(self, what: str, records: Sequence[BlobProperties], prefix: str) -> Iterator[StaleUpload]:
        reads = [(None, partial(self._read_record, record.name)) for record in records]
        for blob, record in zip(records, self._container.call_all(what, reads), strict=True):
            if record is None:  # it ended meanwhile
                continue
            upload_id = self._id(blob.name)
            key = listed_key(record, upload_id)
            if key.startswith(prefix):
                upload = Upload(key=key, upload_id=upload_id)
                yield StaleUpload(upload=upload, started_at=blob.last_modified)

    async def _commit(
        self, name: str, blocks: Sequence[str], metadata: ObjectMetadata, create_only: bool
    ) -> datetime:
        try:
            return await self._container.commit(name, blocks, metadata, create_only)
        except HttpResponseError as error:
            # A commit whose answer was lost, and that is made again, finds what it made itself. The ids of the
            # blocks prove it: no other upload has them.
            if not exists_already(error) or await self._container.committed_blocks(name) != list(blocks):
                raise
        modified_at: datetime = (await self._container.properties(name)).last_modified
        return modified_at

    async def _read_record(self, name: str) -> bytes | None:
        try:
            data, _ = await self._container.whole(name)
            return data
        except ResourceNotFoundError as error:
            if code_of(error) != "BlobNotFound":
                raise
            return None

    def _record(self, upload: Upload) -> str:
        return self._keys.staging_name(upload.upload_id + RECORD_SUFFIX)

    def _id(self, name: str) -> str:
        return name.removeprefix(self._keys.staging_name()).removesuffix(RECORD_SUFFIX)
