"""Uploads to a local tier while they are written: what lies in `<root>/.offload-uploads/`.

    <upload id>.json            the record of an upload: its key, content type and user metadata
    <upload id>.data            the bytes so far, each block at its offset
    <upload id>.metadata.json   the sidecar, while the commit has not moved it beside the object
    <hash of a key>.replaced    the object that is being replaced, while it is (see `local_commit`)
    lock                        held while objects are put in place or deleted, and uploads dropped
    *.tmp                       a file that has not got its name yet; one that a crash left means nothing

An upload's id is 32 hexadecimal digits; no other text is ever made part of a path here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

from offload_drivers.local_files import (
    locked,
    make_directories,
    opened,
    read_whole,
    remove,
    write_all,
    write_durably,
)
from offload_drivers.local_paths import STAGING, is_key
from offload_drivers.sidecar import SUFFIX, VERSION, ObjectMetadata, metadata_from_json
from offload_hooks import StaleUpload, Upload
from offload_hooks.errors import MetadataError, UploadError

_UPLOAD_ID = re.compile(r"[0-9a-f]{32}\Z")
_RECORD = ".json"


class Staging:
    """The directory of uploads under one root; raises plain `OSError` for what the file system refuses."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.directory = f"{root}/{STAGING}"
        self.lock = f"{self.directory}/lock"

    def begin(self, key: str, metadata: ObjectMetadata) -> Upload:
        """Make an upload that another process may go on with, also after a crash of this one."""
        upload = Upload(key=key, upload_id=uuid.uuid4().hex)
        record = {
            "version": VERSION,
            "key": key,
            "content_type": metadata.content_type,
            "user_metadata": dict(metadata.user_metadata),
        }
        make_directories(self.directory)
        try:
            write_durably(self._file(upload, _RECORD), json.dumps(record).encode())
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
        record = read_whole(self._file(upload, _RECORD))
        if record is None:
            raise gone(upload)
        key, metadata = _decode_record(record, upload.upload_id)
        if key != upload.key:
            raise UploadError("the upload belongs to another key", key=upload.key, found=key)
        return metadata

    def drop(self, upload: Upload) -> bool:
        """Remove all of an upload; whether there was anything."""
        if not _UPLOAD_ID.match(upload.upload_id) or not os.path.isdir(self.directory):
            return False
        with locked(self.lock):
            was_there = [
                remove(self._file(upload, s)) for s in (".data", SUFFIX, SUFFIX + ".tmp", _RECORD + ".tmp")
            ]
            return remove(self._file(upload, _RECORD)) or any(was_there)

    def uploads(self, prefix: str) -> Iterator[StaleUpload]:
        """All uploads of keys that begin with `prefix`, in order of their ids."""
        try:
            names = sorted(os.listdir(self.directory))
        except FileNotFoundError:
            return
        for name in names:
            upload_id = name.removesuffix(_RECORD)
            path = f"{self.directory}/{name}"
            if name == upload_id or not _UPLOAD_ID.match(upload_id):
                continue
            record = read_whole(path)
            if record is None:
                continue
            key, _ = _decode_record(record, upload_id)
            try:
                started_at = datetime.fromtimestamp(os.stat(path).st_mtime, UTC)
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
        if not _UPLOAD_ID.match(upload.upload_id):
            raise UploadError("this is no upload of a local tier", key=upload.key, found=upload.upload_id)
        return f"{self.directory}/{upload.upload_id}{suffix}"


def gone(upload: Upload) -> UploadError:
    """The error for an upload that was committed or aborted, or never begun."""
    return UploadError(
        "there is no such upload: it was committed or aborted", key=upload.key, found=upload.upload_id
    )


def _decode_record(record: bytes, upload_id: str) -> tuple[str, ObjectMetadata]:
    try:
        document = json.loads(record)
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"the record of the upload {upload_id} is not JSON") from error
    key = document.get("key") if isinstance(document, dict) else None
    if not isinstance(key, str) or not is_key(key):
        raise MetadataError(f"the record of the upload {upload_id} has no key", found=key)
    return key, metadata_from_json(document, key)
