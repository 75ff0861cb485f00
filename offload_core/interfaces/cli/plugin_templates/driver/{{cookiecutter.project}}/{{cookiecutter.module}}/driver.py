"""The driver `{{ cookiecutter.name }}` for pulsar-offload.

What each hook must do is in the docstrings of `offload_hooks.TierHooks`; they are the law. As it was made,
this driver keeps a tier in a directory. Put your store's client in the place of `Directory`, hook by hook:
the comments name the points to consider, and the conformance suite checks the result.
"""

import os
from contextlib import contextmanager
from urllib.parse import quote, unquote

import offload_hooks as api
from offload_hooks import errors, hookimpl

from {{ cookiecutter.module }}.directory import Directory, DirectoryError

NAME = "{{ cookiecutter.name }}"


class {{ cookiecutter.plugin }}:
    """A tier in the directory `root`, an absolute path."""

    hook_spec_version = 1

    # Spell the options out. Other processes make the driver anew of them: they are plain values, and may
    # all be text. No request to the store here. Connections are made when they are needed, and do not
    # survive a fork.
    def __init__(self, root):
        if not os.path.isabs(root):
            raise errors.OptionError("the option 'root' is no absolute path")
        self._root, self._store = root, Directory(root)

    @classmethod
    def options_from_url(cls, url):
        return {"root": unquote(url.partition("://")[2])}

    # What your store can do; the suite holds you to it. Does it take blocks in order only: ordered_parts.
    # Has it limits (S3: parts of 5 MiB, 10,000 of them): declare them. The location shows no credentials.
    @hookimpl
    def describe(self):
        can = api.Capabilities(create_only=True, stale_uploads=True)
        location = f"{NAME}://{quote(self._root)}"
        return api.DriverDescription(name=NAME, location=location, capabilities=can)

    # Your store's multipart upload. Key and id must be enough for another process to go on with it.
    @hookimpl
    def begin_data(self, key, content_type, user_metadata):
        with translated(key):
            return api.Upload(key=key, upload_id=self._store.begin(key, content_type, user_metadata))

    # Blocks come from many threads, in any order; one that failed comes again. The data is not kept: its
    # owner uses the memory again after the call.
    @hookimpl
    def write_block(self, upload, part_number, offset, data):
        block = {"part_number": part_number, "offset": offset, "length": memoryview(data).nbytes}
        with translated(upload.key):
            tag = self._store.write(upload.key, upload.upload_id, offset, data)
        return api.BlockReceipt(**block, tag=tag)

    # One step, after which the object exists: whole, durable, with its metadata. No reader ever sees half of
    # it. With create_only one of many writers wins: the store must decide (S3: If-None-Match); a check before
    # the write is no use. Receipts out of order, with a hole or of another upload are an UploadError.
    @hookimpl
    def commit_data(self, upload, receipts, create_only):
        parts = [(each.part_number, each.offset, each.length, each.tag) for each in receipts]
        with translated(upload.key):
            facts = self._store.commit(upload.key, upload.upload_id, parts, create_only)
        return api.ObjectStat(key=upload.key, **facts)

    # True if there was something to drop.
    @hookimpl
    def abort_data(self, upload):
        with translated(upload.key):
            return self._store.drop(upload.key, upload.upload_id)

    # One plain request, if your store has one that is atomic.
    @hookimpl
    def write_index(self, key, data, content_type, user_metadata, create_only):
        with translated(key):
            facts = self._store.put(key, data, content_type, user_metadata, create_only)
        return api.ObjectStat(key=key, **facts)

    # Exactly these bytes. Many stores cut a range at the object's end: that is a RangeError here.
    @hookimpl
    def read_range(self, key, offset, length):
        with translated(key):
            return self._store.read(key, offset, length)

    @hookimpl
    def stat(self, key):
        with translated(key):
            return api.ObjectStat(key=key, **self._store.facts(key))

    # Ask for one page after another, as they are needed; sizes and times come with the store's answer.
    # The order is that of the keys' UTF-8 bytes, which is Python's order of text. What was just written
    # is there.
    @hookimpl
    def list_objects(self, prefix, start_after):
        with translated():
            for key, size_bytes, modified_at in self._store.list(prefix, start_after):
                yield api.ListedObject(key=key, size_bytes=size_bytes, modified_at=modified_at)

    @hookimpl
    def list_uploads(self, prefix):
        with translated():
            for key, upload_id, begun in self._store.uploads(prefix):
                yield api.StaleUpload(upload=api.Upload(key=key, upload_id=upload_id), started_at=begun)

    # Many keys with one request, if your store can. A missing object counts as deleted. An answer that one
    # could not be deleted is an error.
    @hookimpl
    def delete(self, keys):
        with translated():
            self._store.delete(keys)
        return len(keys)


KINDS = {
    "NoSuchDirectory": errors.ObjectNotFoundError,
    "NoSuchKey": errors.ObjectNotFoundError,
    "NoSuchUpload": errors.UploadError,
    "InvalidPart": errors.UploadError,
    "InvalidRange": errors.RangeError,
    "InvalidKey": errors.InvalidKeyError,
    "KeyExists": errors.ObjectExistsError,
    "AccessDenied": errors.AccessDeniedError,
    "NoSpace": errors.StoreFullError,
}


# The one place where your client's errors become ours. StoreUnavailableError and StoreTimeoutError are
# tried again by others, nothing else is. No option's value may be in the text: it may be a secret.
@contextmanager
def translated(key=None):
    try:
        yield
    except DirectoryError as error:
        raise KINDS.get(error.code, errors.StoreError)(f"the store says {error.code}", key=key) from error
