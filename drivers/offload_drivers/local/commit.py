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

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence

from offload_drivers.local.files import Directory, opened_directory
from offload_drivers.local.paths import split_key
from offload_drivers.local.uploads import LOCK, Staging
from offload_drivers.object_metadata import ObjectMetadata
from offload_drivers.sidecar import SUFFIX, decode_sidecar, encode_sidecar
from offload_drivers.upload_records import gone
from offload_hooks import Upload
from offload_hooks.errors import ObjectExistsError, UploadError


def put_in_place(staging: Staging, upload: Upload, size_bytes: int, create_only: bool) -> os.stat_result:
    """Commit an upload whose first `size_bytes` are the object; answer what the object's file is."""
    metadata = staging.metadata(upload)
    folder, name = split_key(upload.key)
    with (
        opened_directory(staging.root, folder, staging.file_mode) as there,
        staging.opened(create=True) as staged,
    ):
        _sync_data(
            staged, staging, upload, size_bytes
        )  # may take long: before the lock, so that others go on
        with staged.locked(LOCK):
            before = there.stat(name)
            if before is not None and stat.S_ISDIR(before.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), upload.key)
            if create_only and before is not None:
                raise ObjectExistsError("there is an object of this key already", key=upload.key)
            _sync_data(staged, staging, upload, size_bytes)
            note = staging.replaced(upload.key)
            if metadata != ObjectMetadata() or there.stat(name + SUFFIX) is not None:
                staged.write_durably(staging.sidecar(upload), encode_sidecar(metadata))
                _write_note(staged, note, there, name)
                staged.move(staging.sidecar(upload), there, name + SUFFIX)
            staged.move(staging.data(upload), there, name)
            info = there.stat_object(name)
            staged.remove(note)
    staging.drop(upload)
    return info


def object_and_metadata(staging: Staging, key: str) -> tuple[os.stat_result, ObjectMetadata]:
    """An object's file and the metadata that belongs to just this file."""
    folder, name = split_key(key)
    with opened_directory(staging.root, folder) as there, _if_there(staging) as staged:
        info = there.stat_object(name)
        while True:
            sidecar = _sidecar_of(there, name, info, staged, staging.replaced(key))
            again = there.stat_object(name)
            if _identity(info) == _identity(again):
                return info, ObjectMetadata() if sidecar is None else decode_sidecar(sidecar, key)
            info = again


def delete_objects(staging: Staging, keys: Sequence[str]) -> None:
    """Remove objects with their sidecars; those that are not there count as removed.

    Raises:
        OSError: a symbolic link is on the way to one (`ELOOP`), or the file system refuses; others may be removed.
    """
    by_folder: dict[str, list[str]] = {}
    for folder, name in map(split_key, keys):
        by_folder.setdefault(folder, []).append(name)
    if not os.path.isdir(staging.root):
        return
    with staging.opened(create=True) as staged, staged.locked(LOCK):
        for folder, names in by_folder.items():
            with contextlib.suppress(FileNotFoundError), opened_directory(staging.root, folder) as there:
                _remove_all(there, [name for name in names if not there.is_directory(name)])
                _remove_all(there, [name + SUFFIX for name in names])
        for key in keys:
            staged.remove(staging.replaced(key))
            staged.remove(staging.replaced(key) + ".tmp")


@contextlib.contextmanager
def _if_there(staging: Staging) -> Iterator[Directory | None]:
    with contextlib.ExitStack() as held:
        try:
            staged = held.enter_context(staging.opened())
        except FileNotFoundError:
            staged = None
        yield staged


def _sync_data(staged: Directory, staging: Staging, upload: Upload, size_bytes: int) -> None:
    try:
        with staged.opened(staging.data(upload), os.O_RDWR) as descriptor:
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


def _write_note(staged: Directory, note: str, there: Directory, name: str) -> None:
    """Note which object is about to be replaced and what its sidecar is; none, no note."""
    info = there.stat(name)
    if info is None or not stat.S_ISREG(info.st_mode):
        staged.remove(note)
        return
    sidecar = _sidecar_of(there, name, info, staged, note)
    staged.write_durably(note, _identity(info) if sidecar is None else _identity(info) + b"\n" + sidecar)


def _sidecar_of(
    there: Directory, name: str, info: os.stat_result, staged: Directory | None, note: str
) -> bytes | None:
    """The sidecar's bytes that belong to the object `info` of this name, None if it has none."""
    sidecar = there.read_whole(name + SUFFIX)
    noted = None if staged is None else staged.read_whole(note)
    if noted is not None:
        identity, has_sidecar, old_sidecar = noted.partition(b"\n")
        if identity == _identity(info):
            return old_sidecar if has_sidecar else None
    return sidecar


def _remove_all(there: Directory, names: Sequence[str]) -> None:
    removed = [there.remove(name) for name in names]
    if any(removed):
        there.sync()


def _identity(info: os.stat_result) -> bytes:
    return f"1 {info.st_ino} {info.st_size} {info.st_mtime_ns}".encode()
