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

from offload_drivers.local.files import (
    locked,
    make_directories,
    opened,
    read_whole,
    remove,
    write_all,
    write_durably,
)
from offload_drivers.local.paths import STAGING
from offload_drivers.object_metadata import ObjectMetadata
from offload_drivers.sidecar import SUFFIX
from offload_drivers.upload_records import (
    RECORD_SUFFIX,
    check_upload_id,
    decode_record,
    encode_record,
    gone,
    is_upload_id,
    metadata_of,
    new_upload,
)
from offload_hooks import StaleUpload, Upload
from offload_hooks.values import utc_time

_HALF = RECORD_SUFFIX + ".tmp"
"""A record that has not got its name yet."""


class Staging:
    """The directory of uploads under one root; raises plain `OSError` for what the file system refuses."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.directory = f"{root}/{STAGING}"
        self.lock = f"{self.directory}/lock"

    def begin(self, key: str, metadata: ObjectMetadata) -> Upload:
        """Make an upload that another process may go on with, also after a crash of this one."""
        upload = new_upload(key)
        make_directories(self.directory)
        try:
            write_durably(self._file(upload, RECORD_SUFFIX), encode_record(key, metadata))
            with opened(self.data(upload), os.O_WRONLY | os.O_CREAT | os.O_EXCL):
                return upload
        except OSError:
            self.drop(upload)
            raise

    def write(self, upload: Upload, data: memoryview, offset: int) -> None:
        """Write bytes at an offset of the staged data; `UploadError` if the upload is gone."""
        try:
            with opened(self.data(upload), os.O_WRONLY) as descriptor:
                write_all(descriptor, data, offset)
        except FileNotFoundError as error:
            raise gone(upload) from error

    def metadata(self, upload: Upload) -> ObjectMetadata:
        """The metadata that the upload was begun with; `UploadError` if it is gone or of another key."""
        return metadata_of(upload, read_whole(self._file(upload, RECORD_SUFFIX)))

    def drop(self, upload: Upload) -> bool:
        """Remove all of an upload; whether there was anything."""
        if not is_upload_id(upload.upload_id) or not os.path.isdir(self.directory):
            return False
        with locked(self.lock):
            rests = (".data", SUFFIX, SUFFIX + ".tmp", RECORD_SUFFIX + ".tmp")
            was_there = [remove(self._file(upload, suffix)) for suffix in rests]
            return remove(self._file(upload, RECORD_SUFFIX)) or any(was_there)

    def uploads(self, prefix: str) -> Iterator[StaleUpload]:
        """All uploads of keys that begin with `prefix`, in order of their ids; without key what a crash left."""
        try:
            names = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return
        for name in names:
            is_begun = name.endswith(RECORD_SUFFIX)
            upload_id = name.removesuffix(".tmp").removesuffix(RECORD_SUFFIX)
            path = f"{self.directory}/{name}"
            if not is_upload_id(upload_id) or name not in (
                f"{upload_id}{RECORD_SUFFIX}",
                f"{upload_id}{_HALF}",
            ):
                continue
            record = read_whole(path)
            if record is None:
                continue
            key = decode_record(record, upload_id)[0] if is_begun else ""
            try:
                started_at = utc_time(os.stat(path).st_mtime)
            except FileNotFoundError:
                continue
            if key.startswith(prefix):
                yield StaleUpload(upload=Upload(key=key, upload_id=upload_id), started_at=started_at)

    def data(self, upload: Upload) -> str:
        """The path of the staged data."""
        return self._file(upload, ".data")

    def sidecar(self, upload: Upload) -> str:
        """The path of the staged sidecar."""
        return self._file(upload, SUFFIX)

    def replaced(self, key: str) -> str:
        """The path of the note on the object of this key that is being replaced."""
        return f"{self.directory}/{hashlib.sha256(key.encode()).hexdigest()[:32]}.replaced"

    def _file(self, upload: Upload, suffix: str) -> str:
        check_upload_id(upload)
        return f"{self.directory}/{upload.upload_id}{suffix}"
