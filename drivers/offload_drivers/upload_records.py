"""What a store that has no multipart uploads of its own keeps of one: a small JSON record, so that any process can
go on with it, and `list_uploads` can tell of it.

`{"version": 1, "key": "…", "content_type": "…", "user_metadata": {…}}`, named by the upload's id, which is 32
hexadecimal digits. No other text ever becomes part of a name in the store.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace

from offload_drivers.object_metadata import ObjectMetadata
from offload_drivers.sidecar import MAX_BYTES, VERSION, metadata_from_json
from offload_hooks import Upload
from offload_hooks.errors import MetadataError, UnsupportedVersionError, UploadError
from offload_hooks.json_text import JsonObject

RECORD_SUFFIX = ".json"
_UPLOAD_ID = re.compile(r"[0-9a-f]{32}\Z")


def new_upload(key: str) -> Upload:
    """An upload with an id of its own."""
    return Upload(key=key, upload_id=uuid.uuid4().hex)


def is_upload_id(text: str) -> bool:
    """True if a text has the form of an upload's id."""
    return _UPLOAD_ID.match(text) is not None


def check_upload_id(upload: Upload) -> None:
    """Refuse an id that none of these drivers made (`UploadError`)."""
    if not is_upload_id(upload.upload_id):
        raise UploadError("this is no upload of this tier", key=upload.key, found=upload.upload_id)


def encode_record(key: str, metadata: ObjectMetadata) -> bytes:
    """The record of an upload of this key."""
    record = {
        "version": VERSION,
        "key": key,
        "content_type": metadata.content_type,
        "user_metadata": dict(metadata.user_metadata),
    }
    return json.dumps(record).encode()


def decode_record(record: bytes, upload_id: str) -> tuple[str, ObjectMetadata]:
    """The key and metadata of an upload; `MetadataError` for what is no record."""
    fields = _fields(record, upload_id)
    key = _key(fields)
    return key, metadata_from_json(replace(fields, key=key))


def listed_key(record: bytes, upload_id: str) -> str:
    """The key of an upload, for a listing; empty if its record is damaged, so that nothing can go on with it."""
    try:
        return decode_record(record, upload_id)[0]
    except UnsupportedVersionError:
        return _key(_fields(record, upload_id))  # a newer program goes on with it
    except MetadataError:
        return ""


def _fields(record: bytes, upload_id: str) -> JsonObject:
    document = f"the record of the upload {upload_id}"
    return JsonObject.read(record, document, error=MetadataError, max_bytes=MAX_BYTES)


def _key(fields: JsonObject) -> str:
    key = fields.text("key")
    if not key:
        raise fields.wrong("key", "a key")
    return key


def metadata_of(upload: Upload, record: bytes | None) -> ObjectMetadata:
    """The metadata that an upload was begun with; `UploadError` if its record is gone or of another key."""
    if record is None:
        raise gone(upload)
    key, metadata = decode_record(record, upload.upload_id)
    if key != upload.key:
        raise UploadError("the upload belongs to another key", key=upload.key, found=key)
    return metadata


def gone(upload: Upload) -> UploadError:
    """The error for an upload that was committed or aborted, or never begun."""
    return UploadError(
        "there is no such upload: it was committed or aborted", key=upload.key, found=upload.upload_id
    )
