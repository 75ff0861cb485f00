"""A tier in memory, filled from a zip archive; user metadata lies in it as `<key>.metadata.json`."""

import json
import zipfile
from datetime import UTC, datetime
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import offload_hooks as api
from offload_hooks import errors, hookimpl


def _checked(key):
    if not key.isprintable() or {"", ".", ".."} & {*key.split("/")}:
        raise errors.InvalidKeyError("a key is names with a slash between them", key=ascii(key))
    return key


class ShelfDriver:
    """`path`: the archive to begin with, or nothing. The hooks are explained in `offload_hooks.TierHooks`."""

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
        can = api.Capabilities(create_only=True)
        return api.DriverDescription(name="shelf", location=f"shelf://{self._path}", capabilities=can)

    @hookimpl
    def begin_data(self, key, content_type, user_metadata):
        upload = api.Upload(key=_checked(key), upload_id=uuid4().hex)
        self._uploads[upload] = ({}, content_type, user_metadata)
        return upload

    @hookimpl
    def write_block(self, upload, part_number, offset, data):
        self._uploads.get(upload, [{}])[0][offset] = bytes(data)  # if it is gone, so is the block
        return api.BlockReceipt(part_number=part_number, offset=offset, length=len(data))

    @hookimpl
    def commit_data(self, upload, receipts, create_only):
        blocks, *about = self._uploads.get(upload, ({}, "", {}))
        data = b"".join(blocks.get(receipt.offset, b"") for receipt in receipts)
        ends = [0, *(receipt.offset + receipt.length for receipt in receipts)]
        places = [*((each.part_number, each.offset) for each in receipts), (len(receipts) + 1, len(data))]
        if places != [*enumerate(ends, 1)] or not data:
            raise errors.UploadError("the receipts are not of the object's blocks", key=upload.key)
        stat = self.write_index(upload.key, data, *about, create_only)
        del self._uploads[upload]
        return stat

    @hookimpl
    def abort_data(self, upload):
        return self._uploads.pop(upload, None) is not None

    @hookimpl
    def write_index(self, key, data, content_type, user_metadata, create_only):
        lowered = {name.lower(): text for name, text in user_metadata.items()}
        about = {"content_type": content_type, "user_metadata": lowered}
        stat = api.ObjectStat(key=_checked(key), size_bytes=len(data), modified_at=datetime.now(UTC), **about)
        new = (stat, bytes(data))
        if create_only and self._objects.setdefault(key, new) is not new:  # one step: of two threads one wins
            raise errors.ObjectExistsError("there is such an object already", key=key)
        self._objects[key] = new
        return stat

    @hookimpl
    def read_range(self, key, offset, length):
        if not 0 <= offset < offset + length <= self.stat(key).size_bytes:
            raise errors.RangeError("the object has no such range", key=key, offset=offset)
        return memoryview(self._objects[key][1])[offset : offset + length]

    @hookimpl
    def stat(self, key):
        if _checked(key) not in self._objects:
            raise errors.ObjectNotFoundError("there is no such object", key=key)
        return self._objects[key][0]

    @hookimpl
    def list_objects(self, prefix, start_after):
        for key, (stat, _) in sorted(self._objects.items()):
            if key.startswith(prefix) and key > start_after:
                yield api.ListedObject(key=key, size_bytes=stat.size_bytes, modified_at=stat.modified_at)

    @hookimpl
    def delete(self, keys):
        return len([self._objects.pop(_checked(key), None) for key in keys])
