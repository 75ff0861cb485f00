"""What stands in for your store's client: a directory with one file for each object. It raises `OSError`.

    <key>.object              an object: a line of JSON (content type and user metadata), then its bytes
    <key>@<upload id>.upload  an object that is being written; its upload id begins with the time

Keys are percent-encoded, so no key is a path. With your store's client in its place this file goes.
"""

import json
import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote, unquote
from uuid import uuid4


class Directory:
    """The files of one tier; the directory is made by the first write."""

    def __init__(self, root):
        self._root = Path(root)

    def begin(self, key, content_type, user_metadata):
        self._root.mkdir(parents=True, exist_ok=True)
        upload_id = f"{time.time_ns()}-{uuid4().hex}"
        head = json.dumps({"content_type": content_type, "user_metadata": user_metadata})
        self._upload(key, upload_id).write_bytes(head.encode() + b"\n")
        return upload_id

    def write(self, key, upload_id, offset, data):
        with self._upload(key, upload_id).open("r+b") as file:
            file.seek(len(file.readline()) + offset)
            file.write(data)

    def commit(self, key, upload_id, size, create_only):
        path, target = self._upload(key, upload_id), self._object(key)
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
        try:
            self._upload(key, upload_id).unlink()
        except FileNotFoundError:
            return False
        return True

    def uploads(self, prefix):
        for key, upload_id in self._names(".upload"):
            if key.startswith(prefix):
                yield key, upload_id, datetime.fromtimestamp(int(upload_id.partition("-")[0]) / 1e9, UTC)

    def read(self, key, offset, length):
        """Fewer bytes where the object ends, as many stores do it."""
        with self._object(key).open("rb") as file:
            file.seek(len(file.readline()) + offset)
            return file.read(length)

    def facts(self, key):
        with self._object(key).open("rb") as file:
            return facts_of(file)

    def list(self, prefix, start_after):
        for key, _ in sorted(self._names(".object")):
            if key.startswith(prefix) and key > start_after:
                with suppress(FileNotFoundError):  # deleted meanwhile
                    yield key, self.facts(key)

    def delete(self, keys):
        for key in keys:
            self._object(key).unlink(missing_ok=True)
        if self._root.exists():
            self._sync()

    def _object(self, key):
        return self._root / f"{quote(key, safe='')}.object"

    def _upload(self, key, upload_id):
        return self._root / f"{quote(key, safe='')}@{quote(upload_id, safe='')}.upload"

    def _names(self, suffix):
        for name in os.listdir(self._root):
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


def facts_of(file):
    """An object's size, time of change, content type and user metadata."""
    file.seek(0)
    head = file.readline()
    info = os.fstat(file.fileno())
    modified_at = datetime.fromtimestamp(info.st_mtime, UTC)
    return {"size_bytes": info.st_size - len(head), "modified_at": modified_at, **json.loads(head)}
