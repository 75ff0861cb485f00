"""Putting objects of a local tier in place, and their metadata with them, so that a crash never leaves half.

An object is two files, `<key>` and the sidecar `<key>.metadata.json`, and no file system renames two at
once. One process or thread at a time holds the lock and goes through these steps, each of them durable before
the next. After a crash a commit can be made again, with the same upload (until step 4) or a new one. What a
crash leaves after each step:

    1. data and sidecar synced        The old object or none. The upload stays: `list_uploads` shows it.
       where they are staged
    2. an old object noted:           The old object; the note tells its metadata.
       `<hash>.replaced` has its
       identity and its sidecar
    3. sidecar renamed into place     The old object: the note is of its identity, so its metadata is read
    from
                                      there. Without an old one: none, and a sidecar without an object, which
                                      nobody sees and the key's next commit or delete clears.
    4. data renamed into place        The new object with its metadata: the note is of another identity.
    5. the note removed               The same.
    6. the upload's record removed    The same. Before this step `list_uploads` still shows the upload, and
                                      aborting it does not touch the object.

An object without metadata of its own gets no sidecar, unless it takes the place of one that has: steps 2 and 3 are left
out then.

The identity is inode, size and time of change. Whoever reads metadata looks at the object, the sidecar, the
note and again at the object, and begins again if that is another one, so a replacement under way does not
deceive it either. Deleting removes the object, then sidecar and note; a crash between them leaves a sidecar
without an object.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from offload_drivers.local.files import (
    locked,
    make_directories,
    opened,
    read_whole,
    remove,
    stat_object,
    sync_directory,
    write_durably,
)
from offload_drivers.local.paths import path_of, target_of
from offload_drivers.local.uploads import Staging
from offload_drivers.object_metadata import ObjectMetadata
from offload_drivers.sidecar import SUFFIX, decode_sidecar, encode_sidecar
from offload_drivers.upload_records import gone
from offload_hooks import Upload
from offload_hooks.errors import ObjectExistsError, UploadError


def put_in_place(staging: Staging, upload: Upload, size_bytes: int, create_only: bool) -> os.stat_result:
    """Commit an upload whose first `size_bytes` are the object; answer what the object's file is."""
    metadata = staging.metadata(upload)
    target = target_of(staging.root, upload.key)
    directory = os.path.dirname(target)
    make_directories(directory)
    _sync_data(staging, upload, size_bytes)  # may take long: before the lock, so that others go on
    with locked(staging.lock):
        if os.path.isdir(target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        if create_only and os.path.lexists(target):
            raise ObjectExistsError("there is an object of this key already", key=upload.key)
        _sync_data(staging, upload, size_bytes)
        note = staging.replaced(upload.key)
        if metadata != ObjectMetadata() or os.path.lexists(target + SUFFIX):
            write_durably(staging.sidecar(upload), encode_sidecar(metadata))
            _write_note(note, target)
            os.replace(staging.sidecar(upload), target + SUFFIX)
            sync_directory(directory)
        os.replace(staging.data(upload), target)
        sync_directory(directory)
        info = os.stat(target)
        remove(note)
    staging.drop(upload)
    return info


def object_and_metadata(staging: Staging, key: str) -> tuple[os.stat_result, ObjectMetadata]:
    """An object's file and the metadata that belongs to just this file."""
    path = path_of(staging.root, key)
    info = stat_object(path)
    while True:
        sidecar = _sidecar_of(path, info, staging.replaced(key))
        again = stat_object(path)
        if _identity(info) == _identity(again):
            return info, ObjectMetadata() if sidecar is None else decode_sidecar(sidecar, key)
        info = again


def delete_objects(staging: Staging, keys: Sequence[str]) -> None:
    """Remove objects with their sidecars; those that are not there count as removed."""
    targets = [target_of(staging.root, key) for key in keys]
    if not os.path.isdir(staging.root):
        return
    make_directories(staging.directory)
    with locked(staging.lock):
        _remove_all([target for target in targets if not os.path.isdir(target)])
        _remove_all([target + SUFFIX for target in targets])
        for key in keys:
            remove(staging.replaced(key))
            remove(staging.replaced(key) + ".tmp")


def _sync_data(staging: Staging, upload: Upload, size_bytes: int) -> None:
    try:
        with opened(staging.data(upload), os.O_RDWR) as descriptor:
            found = os.fstat(descriptor).st_size
            if found < size_bytes:
                raise UploadError(
                    "fewer bytes were written than the receipts say",
                    key=upload.key,
                    expected=size_bytes,
                    found=found,
                )
            if found > size_bytes:  # blocks that were written but are not part of the object
                os.ftruncate(descriptor, size_bytes)
            os.fsync(descriptor)
    except FileNotFoundError as error:
        raise gone(upload) from error


def _write_note(note: str, target: str) -> None:
    """Note which object is about to be replaced and what its sidecar is; none, no note."""
    try:
        info = os.stat(target)
    except FileNotFoundError:
        remove(note)
        return
    sidecar = _sidecar_of(target, info, note)
    write_durably(note, _identity(info) if sidecar is None else _identity(info) + b"\n" + sidecar)


def _sidecar_of(path: str, info: os.stat_result, note: str) -> bytes | None:
    """The sidecar's bytes that belong to the object `info` at `path`, None if it has none."""
    sidecar = read_whole(path + SUFFIX)
    noted = read_whole(note)
    if noted is not None:
        identity, has_sidecar, old_sidecar = noted.partition(b"\n")
        if identity == _identity(info):
            return old_sidecar if has_sidecar else None
    return sidecar


def _identity(info: os.stat_result) -> bytes:
    return f"1 {info.st_ino} {info.st_size} {info.st_mtime_ns}".encode()


def _remove_all(paths: Sequence[str]) -> None:
    removed = [path for path in paths if remove(path)]
    for directory in {os.path.dirname(path) for path in removed}:
        sync_directory(directory)
