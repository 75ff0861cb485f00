"""A placeholder for your store's client: an object store in a directory, with one file for each object.

    <key>.object              an object: a line of JSON (content type and user metadata), then its bytes
    <key>@<upload id>.upload  an object that is being written; its upload id begins with the time

Keys are percent-encoded, so no key is a path. Like most clients it has errors of its own, with a code. With
your store's client in its place this file goes.
"""

import errno
import json
import os
import time
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote
from uuid import uuid4

from offload_hooks.private_files import make_directories, open_file


class DirectoryError(Exception):
    """The kind of error: NoSuchKey, NoSuchUpload, InvalidPart, InvalidRange, InvalidKey, KeyExists, ..."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code


class Directory:
    """The objects of one tier; the directory is made by the first write."""

    def __init__(self, root):
        self._root = Path(root)

    def begin(self, key, content_type, user_metadata):
        upload_id = f"{time.time_ns()}-{uuid4().hex}"
        lowered = {name.lower(): text for name, text in user_metadata.items()}
        head = json.dumps({"content_type": content_type, "user_metadata": lowered})
        with coded("NoSuchKey"):
            make_directories(self._root)
            descriptor = open_file(self._upload(key, upload_id), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            with os.fdopen(descriptor, "wb") as file:
                file.write(head.encode() + b"\n")
        return upload_id

    def write(self, key, upload_id, offset, data):
        """Write from byte `offset` on; what is answered names what was written, for `commit`."""
        with coded("NoSuchUpload"), self._upload(key, upload_id).open("r+b") as file:
            file.seek(len(file.readline()) + offset)
            file.write(data)
        return upload_id

    def commit(self, key, upload_id, parts, create_only):
        """Make the object of parts, each (number, offset, length, what `write` answered); its facts."""
        last, size = 0, 0
        for number, offset, length, name in parts:
            if number != last + 1 or offset != size or name != upload_id:
                raise DirectoryError("InvalidPart")
            last, size = number, size + length
        if not parts:
            raise DirectoryError("InvalidPart")
        path, target = self._upload(key, upload_id), self._object(key)
        with coded("NoSuchUpload"):
            with path.open("r+b") as file:
                file.truncate(len(file.readline()) + size)
                os.fsync(file.fileno())
                facts = facts_of(file)
            if create_only:
                os.link(path, target)  # of many at once, one succeeds
                path.unlink()
            else:
                path.replace(target)
            self._sync()
        return facts

    def drop(self, key, upload_id):
        """Drop an upload; return True if it existed."""
        with coded("NoSuchUpload"):
            try:
                self._upload(key, upload_id).unlink()
            except FileNotFoundError:
                return False
        return True

    def put(self, key, data, content_type, user_metadata, create_only):
        upload_id = self.begin(key, content_type, user_metadata)
        try:
            part = (1, 0, memoryview(data).nbytes, self.write(key, upload_id, 0, data))
            return self.commit(key, upload_id, [part], create_only)
        except BaseException:
            self.drop(key, upload_id)
            raise

    def read(self, key, offset, length):
        with coded("NoSuchKey"), self._object(key).open("rb") as file:
            if offset < 0 or length < 1 or offset + length > facts_of(file)["size_bytes"]:
                raise DirectoryError("InvalidRange")
            file.seek(0)
            file.seek(len(file.readline()) + offset)
            return file.read(length)

    def facts(self, key):
        """Its size, time of change, content type and user metadata."""
        with coded("NoSuchKey"), self._object(key).open("rb") as file:
            return facts_of(file)

    def list(self, prefix, start_after):
        """Keys, sizes and times of change of objects, in order."""
        for key, _ in sorted(self._names(".object")):
            if key.startswith(prefix) and key > start_after:
                with suppress(FileNotFoundError), self._object(key).open("rb") as file:  # deleted meanwhile
                    facts = facts_of(file)
                    yield key, facts["size_bytes"], facts["modified_at"]

    def uploads(self, prefix):
        """Keys, ids and times of uploads that are neither committed nor dropped."""
        for key, upload_id in self._names(".upload"):
            if key.startswith(prefix):
                yield key, upload_id, datetime.fromtimestamp(int(upload_id.partition("-")[0]) / 1e9, UTC)

    def delete(self, keys):
        with coded("NoSuchKey"):
            for path in [self._object(key) for key in keys]:
                path.unlink(missing_ok=True)
            if self._root.exists():
                self._sync()

    def _object(self, key):
        return self._root / f"{encoded(key)}.object"

    def _upload(self, key, upload_id):
        return self._root / f"{encoded(key)}@{quote(upload_id, safe='')}.upload"

    def _names(self, suffix):
        with coded("NoSuchDirectory"):
            names = os.listdir(self._root)
        for name in names:
            if name.endswith(suffix):
                key, _, upload_id = name.removesuffix(suffix).partition("@")
                yield unquote(key), upload_id

    def _sync(self):
        """Make durable which names there are."""
        directory = os.open(self._root, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def encoded(key):
    """A key as a name, unless it leads out of the tier or is no text."""
    is_text = key.encode(errors="ignore").decode() == key
    if not is_text or "\0" in key or {"", ".", ".."} & set(key.split("/")):
        raise DirectoryError("InvalidKey")
    return quote(key, safe="")


def facts_of(file):
    file.seek(0)
    head = file.readline()
    info = os.fstat(file.fileno())
    modified_at = datetime.fromtimestamp(info.st_mtime, UTC)
    return {"size_bytes": info.st_size - len(head), "modified_at": modified_at, **json.loads(head)}


CODES = {
    errno.EEXIST: "KeyExists",
    errno.EACCES: "AccessDenied",
    errno.EPERM: "AccessDenied",
    errno.ENOSPC: "NoSpace",
    errno.ENAMETOOLONG: "InvalidKey",
}


@contextmanager
def coded(missing):
    """Errors of the file system get a code, `missing` where there is no such file."""
    try:
        yield
    except OSError as error:
        code = missing if error.errno == errno.ENOENT else CODES.get(error.errno, "Failed")
        raise DirectoryError(code) from error
