"""A tier in memory: opened from a zip archive or a directory; what is written stays in this process."""
# ruff: noqa: D102

import uuid
from urllib.parse import unquote, urlsplit

import offload_hooks as api
from offload_hooks import errors, hookimpl
from offload_shelf.shelf import Shelf, checked_key, make_object


class ShelfDriver:
    """`path`: what to begin with, or nothing. What each hook must do is in `offload_hooks.TierHooks`."""

    hook_spec_version = 1

    def __init__(self, path=""):
        self._path, self._shelf, self._uploads = path, Shelf(path), {}

    @classmethod
    def options_from_url(cls, url):
        return {"path": unquote(urlsplit(url).path)}

    @hookimpl
    def describe(self):
        can = api.Capabilities(create_only=True)
        return api.DriverDescription(name="shelf", location=f"shelf://{self._path}", capabilities=can)

    @hookimpl
    def begin_data(self, key, content_type, user_metadata):
        upload = api.Upload(key=checked_key(key), upload_id=uuid.uuid4().hex)
        self._uploads[upload] = ({}, content_type, user_metadata)
        return upload

    @hookimpl
    def write_block(self, upload, part_number, offset, data):
        if upload not in self._uploads:
            raise errors.UploadError("there is no such upload", key=upload.key)
        receipt = api.BlockReceipt(part_number=part_number, offset=offset, length=len(data))
        self._uploads[upload][0][receipt] = bytes(data)
        return receipt

    @hookimpl
    def commit_data(self, upload, receipts, create_only):
        blocks, content_type, user_metadata = self._uploads.get(upload, ({}, "", {}))
        ends = [0, *(receipt.offset + receipt.length for receipt in receipts)]
        if not receipts or [r.offset for r in receipts] != ends[:-1] or not blocks.keys() >= set(receipts):
            raise errors.UploadError("the receipts are not of the object's blocks, in order", key=upload.key)
        data = b"".join(blocks[receipt] for receipt in receipts)
        stat = self.write_index(upload.key, data, content_type, user_metadata, create_only)
        self._uploads.pop(upload, None)
        return stat

    @hookimpl
    def abort_data(self, upload):
        return self._uploads.pop(upload, None) is not None

    @hookimpl
    def write_index(self, key, data, content_type, user_metadata, create_only):
        new = make_object(key, data, content_type, user_metadata)
        return self._shelf.put(new, create_only)

    @hookimpl
    def read_range(self, key, offset, length):
        return self._shelf.read(key, offset, length)

    @hookimpl
    def stat(self, key):
        return self._shelf.get(key).stat

    @hookimpl
    def list_objects(self, prefix, start_after):
        return self._shelf.list(prefix, start_after)

    @hookimpl
    def delete(self, keys):
        for key in keys:
            self._shelf.remove(key)
        return len(keys)
