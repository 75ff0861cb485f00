"""The driver `{{ cookiecutter.name }}` for pulsar-offload.

What each hook must do is in the docstrings of `offload_hooks.TierHooks`; they are the law. As it was made,
this driver keeps a tier in a directory. Put your store's client in the place of `Directory`, hook by hook:
the comments say what to think of, and the conformance suite says when it is right.
"""

import errno
import os
from contextlib import contextmanager
from urllib.parse import quote, unquote

import offload_hooks as api
from offload_hooks import errors, hookimpl

from {{ cookiecutter.module }}.directory import Directory

NAME = "{{ cookiecutter.name }}"


class {{ cookiecutter.driver }}:
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
        lowered = {name.lower(): text for name, text in user_metadata.items()}
        with translated("begin an upload", key):
            upload_id = self._store.begin(checked(key), content_type, lowered)
        return api.Upload(key=key, upload_id=upload_id)

    # Blocks come from many threads, in any order; one that failed comes again. The data is not kept: its
    # owner uses the memory again after the call.
    @hookimpl
    def write_block(self, upload, part_number, offset, data):
        with translated("write a block", upload.key, errors.UploadError):
            self._store.write(upload.key, upload.upload_id, offset, data)
        length = memoryview(data).nbytes
        return api.BlockReceipt(part_number=part_number, offset=offset, length=length, tag=upload.upload_id)

    # One step, after which the object is there: whole, durable, with its metadata. Nobody ever sees half
    # of it. With create_only one of many writers wins: the store must decide (S3: If-None-Match), looking
    # first is no use.
    @hookimpl
    def commit_data(self, upload, receipts, create_only):
        size = 0
        for receipt in receipts:
            if receipt.offset != size or receipt.tag != upload.upload_id:
                raise errors.UploadError("the blocks leave a hole or are not of this upload", key=upload.key)
            size += receipt.length
        if not receipts:
            raise errors.UploadError("an object needs at least one block", key=upload.key)
        with translated("commit", upload.key, errors.UploadError):
            facts = self._store.commit(upload.key, upload.upload_id, size, create_only)
        return api.ObjectStat(key=upload.key, **facts)

    @hookimpl
    def abort_data(self, upload):
        with translated("abort", upload.key):
            return self._store.drop(upload.key, upload.upload_id)

    # One plain request, if your store has one that is atomic.
    @hookimpl
    def write_index(self, key, data, content_type, user_metadata, create_only):
        upload = self.begin_data(key, content_type, user_metadata)
        try:
            return self.commit_data(upload, [self.write_block(upload, 1, 0, data)], create_only)
        except BaseException:
            self.abort_data(upload)
            raise

    # Exactly these bytes. Many stores cut a range at the object's end: that is a RangeError here.
    @hookimpl
    def read_range(self, key, offset, length):
        data = b""
        if offset >= 0 and length >= 1:
            with translated("read", key):
                data = self._store.read(checked(key), offset, length)
        if not data or len(data) != length:
            raise errors.RangeError("the object has no such range", key=key, offset=offset)
        return data

    @hookimpl
    def stat(self, key):
        with translated("stat", key):
            return api.ObjectStat(key=key, **self._store.facts(checked(key)))

    # Ask for one page after another, as they are needed; sizes and times come with the store's answer.
    # The order is that of the keys' UTF-8 bytes, which is Python's order of text. What was just written
    # is there.
    @hookimpl
    def list_objects(self, prefix, start_after):
        with translated("list"):
            for key, facts in self._store.list(prefix, start_after):
                yield api.ListedObject(
                    key=key, size_bytes=facts["size_bytes"], modified_at=facts["modified_at"]
                )

    @hookimpl
    def list_uploads(self, prefix):
        with translated("list uploads"):
            for key, upload_id, begun in self._store.uploads(prefix):
                yield api.StaleUpload(upload=api.Upload(key=key, upload_id=upload_id), started_at=begun)

    # Many keys with one request, if your store can. What is not there counts as gone. An answer that one
    # could not be deleted is an error.
    @hookimpl
    def delete(self, keys):
        with translated("delete"):
            self._store.delete([checked(key) for key in keys])
        return len(keys)


def checked(key):
    """A key, unless it leads out of the tier, cannot be a name in the store, or is no text."""
    is_text = key.encode(errors="ignore").decode() == key
    if not is_text or "\0" in key or {"", ".", ".."} & set(key.split("/")):
        raise errors.InvalidKeyError("this is no key", key=key)
    return key


KINDS = {
    errno.EEXIST: errors.ObjectExistsError,
    errno.EACCES: errors.AccessDeniedError,
    errno.EPERM: errors.AccessDeniedError,
    errno.ENOSPC: errors.StoreFullError,
    errno.ENAMETOOLONG: errors.InvalidKeyError,
}


# The one place where your client's errors become ours. StoreUnavailableError and StoreTimeoutError are
# tried again by others, nothing else is. No option's value may be in the text: it may be a secret.
@contextmanager
def translated(doing, key=None, missing=errors.ObjectNotFoundError):
    try:
        yield
    except OSError as error:
        if isinstance(error, errors.OffloadError):  # some of ours are OSErrors, too
            raise
        kind = missing if error.errno == errno.ENOENT else KINDS.get(error.errno, errors.StoreError)
        raise kind(f"cannot {doing}: {error.strerror}", key=key) from error
