"""A tier in memory, filled from a zip archive; `<key>.metadata.json` in it holds an object's user metadata."""

import json
import zipfile
from datetime import UTC, datetime
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from offload_hooks import (
    BlockReceipt,
    Capabilities,
    DriverDescription,
    ListedObject,
    ObjectStat,
    Upload,
    hookimpl,
)
from offload_hooks.errors import ObjectExistsError, ObjectNotFoundError, RangeError, UploadError


class ShelfDriver:
    """`path`: the archive to begin with, or nothing. What each hook must do is in `offload_hooks.TierHooks`."""

    hook_spec_version = 1

    def __init__(self, path=""):
        self._path, self._objects, self._uploads = path, {}, {}
        archive = zipfile.ZipFile(path) if path else None
        files = {name: archive.read(name) for name in archive.namelist()} if archive else {}
        for key in (name for name in files if not name.endswith((".metadata.json", "/"))):
            about = json.loads(files.get(f"{key}.metadata.json", b"{}"))
            self.write_index(key, files[key], "", about.get("user_metadata", {}), False)

    @classmethod
    def options_from_url(cls, url):
        return {"path": unquote(urlsplit(url).path)}

    @hookimpl
    def describe(self):
        can = Capabilities(create_only=True)
        return DriverDescription(name="shelf", location=f"shelf://{self._path}", capabilities=can)

    @hookimpl
    def begin_data(self, key, content_type, user_metadata):
        upload = Upload(key=key, upload_id=uuid4().hex)
        self._uploads[upload] = ({}, content_type, user_metadata)
        return upload

    @hookimpl
    def write_block(self, upload, part_number, offset, data):
        receipt = BlockReceipt(part_number=part_number, offset=offset, length=len(data))
        self._uploads[upload][0][receipt] = bytes(data)
        return receipt

    @hookimpl
    def commit_data(self, upload, receipts, create_only):
        blocks, *about = self._uploads.get(upload, ({}, "", {}))
        ends = [0, *(receipt.offset + receipt.length for receipt in receipts)]
        if not blocks.keys() >= set(receipts) or [r.offset for r in receipts] != ends[:-1] or not receipts:
            raise UploadError("the receipts are not of the object's blocks, in order", key=upload.key)
        return self.write_index(upload.key, b"".join(map(blocks.get, receipts)), *about, create_only)

    @hookimpl
    def abort_data(self, upload):
        return self._uploads.pop(upload, None) is not None

    @hookimpl
    def write_index(self, key, data, content_type, user_metadata, create_only):
        about = {
            "content_type": content_type,
            "user_metadata": {k.lower(): v for k, v in user_metadata.items()},
        }
        new = (ObjectStat(key=key, size_bytes=len(data), modified_at=datetime.now(UTC), **about), bytes(data))
        if create_only and self._objects.setdefault(key, new) is not new:  # one step: of two threads one wins
            raise ObjectExistsError("there is such an object already", key=key)
        self._objects[key] = new
        return new[0]

    @hookimpl
    def read_range(self, key, offset, length):
        if not 0 <= offset < offset + length <= self.stat(key).size_bytes:
            raise RangeError(
                "the object has no such range", key=key, offset=offset, found=self.stat(key).size_bytes
            )
        return memoryview(self._objects[key][1])[offset : offset + length]

    @hookimpl
    def stat(self, key):
        if key not in self._objects:
            raise ObjectNotFoundError("there is no such object", key=key)
        return self._objects[key][0]

    @hookimpl
    def list_objects(self, prefix, start_after):
        stats = [
            self.stat(key) for key in sorted(self._objects) if key.startswith(prefix) and key > start_after
        ]
        return (ListedObject(key=s.key, size_bytes=s.size_bytes, modified_at=s.modified_at) for s in stats)

    @hookimpl
    def delete(self, keys):
        return len([self._objects.pop(key, None) for key in keys])
