"""What lies on the shelf: objects made of bytes, and those of a zip archive or a directory.

User metadata lies beside an object as `<key>.metadata.json`: `{"content_type": "…", "user_metadata": {…}}`.
"""

import json
import zipfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from offload_hooks import ListedObject, ObjectStat, ReadableBuffer
from offload_hooks.errors import (
    InvalidKeyError,
    ObjectExistsError,
    ObjectNotFoundError,
    RangeError,
    StoreError,
)

SIDECAR = ".metadata.json"


class Stored(NamedTuple):
    """An object: what `stat` shows, and its bytes."""

    stat: ObjectStat
    data: bytes


def checked_key(key: str) -> str:
    """The key, if it is one: relative, and no way round."""
    if {"", ".", ".."} & set(key.split("/")) or "\0" in key or key.endswith(SIDECAR):
        raise InvalidKeyError("not a key of a shelf", key=key)
    return key


def make_object(
    key: str, data: ReadableBuffer, content_type: str, user_metadata: Mapping[str, str]
) -> Stored:
    """An object as of now."""
    stat = ObjectStat(
        key=checked_key(key),
        size_bytes=len(data),
        modified_at=datetime.now(UTC),
        content_type=content_type,
        user_metadata={name.lower(): value for name, value in user_metadata.items()},
    )
    return Stored(stat, bytes(data))


class Shelf:
    """Objects by key."""

    def __init__(self, path: str) -> None:
        self._objects = _load(path) if path else {}

    def put(self, new: Stored, create_only: bool) -> ObjectStat:
        """Add or replace an object."""
        key = new.stat.key
        if not create_only:
            self._objects[key] = new
        elif self._objects.setdefault(key, new) is not new:  # one step, so of two threads only one wins
            raise ObjectExistsError("there is such an object already", key=key)
        return new.stat

    def get(self, key: str) -> Stored:
        """The object of this key."""
        if checked_key(key) not in self._objects:
            raise ObjectNotFoundError("there is no such object", key=key)
        return self._objects[key]

    def read(self, key: str, offset: int, length: int) -> memoryview:
        """Part of an object's bytes."""
        data = self.get(key).data
        if not 0 <= offset < offset + length <= len(data):
            raise RangeError("the object has no such range", key=key, offset=offset, found=len(data))
        return memoryview(data)[offset : offset + length]

    def list(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        """Objects in order of their keys."""
        stats = [stored.stat for _, stored in sorted(self._objects.copy().items())]
        wanted = [s for s in stats if s.key.startswith(prefix) and s.key > start_after]
        return (ListedObject(key=s.key, size_bytes=s.size_bytes, modified_at=s.modified_at) for s in wanted)

    def remove(self, key: str) -> None:
        """Remove an object if it is there."""
        self._objects.pop(checked_key(key), None)


def _load(path: str) -> dict[str, Stored]:
    """All objects of a zip archive or a directory, in memory."""
    try:
        files = _directory(Path(path)) if Path(path).is_dir() else _archive(path)
        objects = {}
        for key in (key for key in files if not key.endswith(SIDECAR)):
            about = json.loads(files.get(key + SIDECAR, b"{}"))
            content_type = about.get("content_type", "application/octet-stream")
            objects[key] = make_object(key, files[key], content_type, about.get("user_metadata", {}))
    except FileNotFoundError as error:
        raise ObjectNotFoundError(f"there is no archive {path}") from error
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise StoreError(f"cannot read the archive {path}: {error}") from error
    return objects


def _directory(path: Path) -> dict[str, bytes]:
    files = (file for file in path.rglob("*") if file.is_file())
    named = {file.relative_to(path).as_posix(): file for file in files}
    return {key: file.read_bytes() for key, file in named.items() if not key.startswith(".")}


def _archive(path: str) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
