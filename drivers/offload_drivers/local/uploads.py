"""Uploads to a local tier while they are written: what lies in `<root>/.offload-uploads/`.

    <upload id>.json            the record of an upload: its key, content type and user metadata
    <upload id>.data            the bytes so far, each block at its offset
    <upload id>.metadata.json   the sidecar, while the commit has not moved it beside the object
    <hash of a key>.replaced    the object that is being replaced, while it is (see `commit`)
    lock                        held while objects are put in place or deleted, and uploads dropped
    *.tmp                       a file that has not got its name yet; one that a crash left means nothing. Of a record,
                                it is listed as an upload without a key, so that it can be found and dropped

An upload's id is 32 hexadecimal digits; no other text is ever made part of a path here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager

from offload_drivers.local.files import Directory, opened_directory, write_all
from offload_drivers.local.paths import STAGING
from offload_drivers.object_metadata import ObjectMetadata
from offload_drivers.sidecar import SUFFIX
from offload_drivers.upload_records import (
    RECORD_SUFFIX,
    check_upload_id,
    encode_record,
    gone,
    is_upload_id,
    listed_key,
    metadata_of,
    new_upload,
)
from offload_hooks import StaleUpload, Upload
from offload_hooks.values import utc_time

LOCK = "lock"
_HALF = RECORD_SUFFIX + ".tmp"
"""A record that has not got its name yet."""


class Staging:
    """The directory of uploads under one root; raises plain `OSError` for what the file system refuses.

    Attributes:
        file_mode: of the tier's files; directories let search whom these let read.
    """

    def __init__(self, root: str, file_mode: int) -> None:
        self.root = root
        self.file_mode = file_mode

    def opened(self, *, create: bool = False) -> AbstractContextManager[Directory]:
        """The directory, open; `FileNotFoundError` if it is not there, unless it is to be made."""
        return opened_directory(self.root, STAGING, self.file_mode if create else None)

    def begin(self, key: str, metadata: ObjectMetadata) -> Upload:
        """Make an upload that another process may go on with, also after a crash of this one."""
        upload = new_upload(key)
        try:
            with self.opened(create=True) as here:
                here.write_durably(_name(upload, RECORD_SUFFIX), encode_record(key, metadata))
                with here.opened(self.data(upload), os.O_WRONLY | os.O_CREAT | os.O_EXCL):
                    return upload
        except OSError:
            self.drop(upload)
            raise

    def write(self, upload: Upload, data: memoryview, offset: int) -> None:
        """Write bytes at an offset of the staged data; `UploadError` if the upload is gone."""
        try:
            with self.opened() as here, here.opened(self.data(upload), os.O_WRONLY) as descriptor:
                write_all(descriptor, data, offset)
        except FileNotFoundError as error:
            raise gone(upload) from error

    def metadata(self, upload: Upload) -> ObjectMetadata:
        """The metadata that the upload was begun with; `UploadError` if it is gone or of another key."""
        name = _name(upload, RECORD_SUFFIX)
        try:
            with self.opened() as here:
                record = here.read_whole(name)
        except FileNotFoundError:
            record = None
        return metadata_of(upload, record)

    def drop(self, upload: Upload) -> bool:
        """Remove all of an upload; whether there was anything."""
        if not is_upload_id(upload.upload_id):
            return False
        try:
            with self.opened() as here, here.locked(LOCK):
                rests = (".data", SUFFIX, SUFFIX + ".tmp", RECORD_SUFFIX + ".tmp")
                was_there = [here.remove(_name(upload, suffix)) for suffix in rests]
                return here.remove(_name(upload, RECORD_SUFFIX)) or any(was_there)
        except FileNotFoundError:  # the directory is not there
            return False

    def uploads(self, prefix: str) -> Iterator[StaleUpload]:
        """All uploads of keys that begin with `prefix`, in order of their ids; without key what a crash left."""
        try:
            with self.opened() as here:
                yield from self._uploads(here, prefix)
        except FileNotFoundError:
            return

    def _uploads(self, here: Directory, prefix: str) -> Iterator[StaleUpload]:
        for name in sorted(os.listdir(here.descriptor)):
            is_begun = name.endswith(RECORD_SUFFIX)
            upload_id = name.removesuffix(".tmp").removesuffix(RECORD_SUFFIX)
            if not is_upload_id(upload_id) or name not in (
                f"{upload_id}{RECORD_SUFFIX}",
                f"{upload_id}{_HALF}",
            ):
                continue
            record, info = here.read_whole(name), here.stat(name)
            if record is None or info is None:
                continue
            key = listed_key(record, upload_id) if is_begun else ""
            started_at = utc_time(info.st_mtime)
            if key.startswith(prefix):
                yield StaleUpload(upload=Upload(key=key, upload_id=upload_id), started_at=started_at)

    def data(self, upload: Upload) -> str:
        """The name of the staged data."""
        return _name(upload, ".data")

    def sidecar(self, upload: Upload) -> str:
        """The name of the staged sidecar."""
        return _name(upload, SUFFIX)

    def replaced(self, key: str) -> str:
        """The name of the note on the object of this key that is being replaced."""
        return f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.replaced"


def _name(upload: Upload, suffix: str) -> str:
    check_upload_id(upload)
    return f"{upload.upload_id}{suffix}"
