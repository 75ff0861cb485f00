"""Putting objects of a tier in HDFS in place, and their metadata with them, so that a crash never leaves half.

An object is two files, `<key>` and the sidecar `<key>.metadata.json`, and HDFS renames one at a time. Who puts an
object in place, or deletes it, has the key's turn (see `turns`) and goes through these steps, each of which is one
request that the NameNode does whole or not at all. After a crash a commit can be made again, with the same upload
(while nobody else has committed the key) or a new one. What a crash leaves after each step:

    1. the blocks are one file       The old object or none. `list_uploads` shows the upload, until step 7.
    2. the turn begins: the folder   The same; who comes next ends the turn.
       is renamed to `….turn`
    3. an old object: its identity   The same.
       and metadata are written
       into the new sidecar
    4. the sidecar is renamed        The old object: the sidecar has its metadata, too. Without an old one: none,
       into place                    and a sidecar without an object, which nobody sees and the next commit replaces.
    5. the data is renamed into      The new object with its metadata. Without `overwrite` if create-only: the
       place                         NameNode decides, so this holds against programs that take no turns.
    6. the folder is removed         The same. An upload that is aborted before it leaves the object alone.
    7. the turn is removed           The same.

Deleting removes the object, then the sidecar; a crash between them leaves a sidecar without an object. Readers take no
turns: they look at the object, the sidecar and again at the object, and begin again if that is another one.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

from offload_drivers.hdfs.client import Renamed
from offload_drivers.hdfs.uploads import METADATA, HdfsTier, send_home
from offload_drivers.object_metadata import ObjectMetadata
from offload_drivers.replaced_sidecar import FileIdentity, Sidecar, decode, encode
from offload_drivers.upload_records import gone, new_upload
from offload_hooks import Upload
from offload_hooks.errors import (
    FormatError,
    InvalidKeyError,
    ObjectExistsError,
    ObjectNotFoundError,
    OffloadError,
    StoreTimeoutError,
    StoreUnavailableError,
)

# Turns: processes that put an object of one key in place, or delete it, do so one after another.
#
# A turn begins when the directory of a folder is renamed to `<hash of the key>.turn`, which fails while another one has
# that name, and ends when the folder is removed or renamed away. A process that finds the same holder for some seconds
# sends its folder home, and may begin.
#
# That the holder was only slow does no harm. All that a holder does is to rename files out of its folder, or into it,
# by the folder's path in the turn, which has the holder's id in it. Once the folder is home again, none of those paths
# exists or ever means another's folder: the holder finds nothing there, and asks for another turn. So safety never
# depends on a clock.


PATIENCE_S = 5.0
"""How long one holder may keep others waiting; a turn takes a few requests, a tenth of that if they are slow."""

_FIRST_WAIT_S = 0.01
_LONGEST_WAIT_S = 0.25


def take_turn(tier: HdfsTier, key: str, holder: str) -> str | None:
    """Wait for the turn and answer the path of the holder's folder in it; None if the folder is gone."""
    client, turn = tier.client, tier.paths.turn(key)
    folder = f"{turn}/{holder}"
    began = since = time.monotonic()
    seen, wait_s = "", _FIRST_WAIT_S
    while True:
        renamed = client.rename(tier.paths.home(holder), turn)
        if renamed is not Renamed.EXISTS:
            return folder if renamed is Renamed.DONE or client.status(folder) is not None else None
        current, now = _holder(tier, turn), time.monotonic()
        if current == holder:  # since an attempt whose answer was lost
            return folder
        if not current:
            client.remove(turn)
        elif current != seen:
            seen, since = current, now
        elif now - since > PATIENCE_S:
            send_home(tier, turn, current)
            seen = ""
        if now - began > client.deadline_s:
            raise StoreTimeoutError(
                f"cannot have the turn to write in {client.location}: others have it all the time", key=key
            )
        if current:
            time.sleep(wait_s * random.random())  # noqa: S311
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


def end_turn(tier: HdfsTier, upload: Upload) -> None:
    """Remove the holder's folder with all in it, and the turn, when all is done."""
    turn = tier.paths.turn(upload.key)
    if not tier.client.remove_all(f"{turn}/{upload.upload_id}"):
        tier.client.remove_all(tier.paths.home(upload.upload_id))  # another process ended the turn before
    tier.client.remove(turn)


def _holder(tier: HdfsTier, turn: str) -> str:
    """The id of the one whose turn it is; empty if there is none."""
    try:
        return next((str(status.path).rpartition("/")[2] for status in tier.client.listing(turn)), "")
    except ObjectNotFoundError:
        return ""


_NEW_SIDECAR = "sidecar.json"
_OLD_SIDECAR = "old.json"
_ATTEMPTS = 10


def put_in_place(tier: HdfsTier, upload: Upload, run: str, create_only: bool) -> tuple[Any, ObjectMetadata]:
    """Commit the upload whose file `run` is the object; answer the object's status and metadata."""
    tier.client.make_directory(tier.paths.object(upload.key).rpartition("/")[0] or "/")
    metadata = None  # from an earlier attempt: after the turn was ended it may be gone
    for _ in range(_ATTEMPTS):
        folder = take_turn(tier, upload.key, upload.upload_id)
        if folder is None:
            raise gone(upload)
        metadata = _metadata_of_upload(tier, upload, folder) or metadata
        done = _put(tier, upload, folder, run, metadata, create_only)
        if done is not None:
            with suppress(OffloadError):  # the object is there; the rest is cleared by the next commit
                end_turn(tier, upload)
            return done
    raise _disturbed(tier, upload.key)


def object_and_metadata(tier: HdfsTier, key: str) -> tuple[Any, ObjectMetadata]:
    """An object's status, and the metadata that belongs to just this file."""
    path = tier.paths.object(key)
    status = _object(tier, path)
    while status is not None:
        metadata = _metadata_of(tier, key, status)
        again = _object(tier, path)
        if again is not None and _identity(again) == _identity(status):
            return status, metadata
        status = again
    raise no_object(tier, key)


def delete_object(tier: HdfsTier, key: str) -> None:
    """Remove an object with its sidecar; what is not there counts as removed."""
    client, path, sidecar = tier.client, tier.paths.object(key), tier.paths.sidecar(key)
    if _object(tier, path) is None and not any(map(client.status, (sidecar, tier.paths.turn(key)))):
        return
    for _ in range(_ATTEMPTS):
        holder = new_upload(key)
        client.make_directory(f"{tier.paths.home(holder.upload_id)}/{holder.upload_id}")
        folder = take_turn(tier, key, holder.upload_id)
        if folder is not None:
            if _object(tier, path) is not None:
                client.remove(path)
            # Into the folder, not removed: so that it is not the next one's if this turn has ended meanwhile.
            renamed = client.rename(sidecar, f"{folder}/{_OLD_SIDECAR}")
            if renamed is not Renamed.NO_PARENT:
                end_turn(tier, holder)
                return
    raise _disturbed(tier, key)


def no_object(tier: HdfsTier, key: str) -> ObjectNotFoundError:
    """The error for a key that has no object."""
    return ObjectNotFoundError(f"there is no such object in {tier.client.location}", key=key)


def _put(
    tier: HdfsTier, upload: Upload, folder: str, run: str, metadata: ObjectMetadata | None, create_only: bool
) -> tuple[Any, ObjectMetadata] | None:
    """Steps 3 to 5; None if another process ended the turn."""
    client, target = tier.client, tier.paths.object(upload.key)
    old, staged = client.status(target), client.status(f"{folder}/{run}")
    if old is not None and old.isdir:
        _give_back(tier, upload)
        raise InvalidKeyError("cannot put an object in place: the key is a directory already", key=upload.key)
    if staged is None:
        return _already_there(tier, upload, folder, old)
    if create_only and old is not None:
        _give_back(tier, upload)
        raise _exists(upload)
    if metadata is None:
        if client.status(folder) is None:
            return None
        raise gone(upload)
    if old is not None:
        staged = _told_apart(tier, f"{folder}/{run}", staged, old)
    if not _put_sidecar(tier, upload, folder, metadata, old):
        return None
    renamed = client.rename(f"{folder}/{run}", target, overwrite=not create_only)
    if renamed is Renamed.EXISTS:  # made by a program that takes no turns, in the last moment
        if _is_of(_readable_sidecar(tier, upload.key), upload):
            client.rename(tier.paths.sidecar(upload.key), f"{folder}/{METADATA}")
        _give_back(tier, upload)
        raise _exists(upload)
    if renamed is not Renamed.DONE:
        there = client.status(target)
        if there is None or _identity(there) != _identity(staged):
            return None
    return staged, metadata


def _put_sidecar(tier: HdfsTier, upload: Upload, folder: str, metadata: ObjectMetadata, old: Any) -> bool:
    """Steps 3 and 4; False if another process ended the turn."""
    client, path = tier.client, tier.paths.sidecar(upload.key)
    present = _readable_sidecar(tier, upload.key)
    sidecar = Sidecar(metadata=metadata, upload_id=upload.upload_id)
    if old is not None:
        replaced = _identity(old)
        of_old = ObjectMetadata() if present is None else present.of(replaced)
        sidecar = replace(sidecar, replaced=replaced, replaced_metadata=of_old)
    else:
        source = f"{folder}/{METADATA}"
        if _is_of(present, upload) or client.rename(source, path, overwrite=True) is Renamed.DONE:
            return True
    try:
        client.write_files({f"{folder}/{_NEW_SIDECAR}": encode(sidecar)})
    except ObjectNotFoundError:
        return False
    return client.rename(f"{folder}/{_NEW_SIDECAR}", path, overwrite=True) is Renamed.DONE


def _metadata_of_upload(tier: HdfsTier, upload: Upload, folder: str) -> ObjectMetadata | None:
    """The metadata of an upload: from its folder, or from the key's sidecar once that is this upload's."""
    written = tier.client.read_whole(f"{folder}/{METADATA}")
    if written is not None:
        return decode(written, upload.key).metadata
    sidecar = _readable_sidecar(tier, upload.key)
    return sidecar.metadata if sidecar is not None and _is_of(sidecar, upload) else None


def _already_there(
    tier: HdfsTier, upload: Upload, folder: str, old: Any
) -> tuple[Any, ObjectMetadata] | None:
    """The object, if an earlier attempt to commit this upload was cut off after step 5."""
    sidecar = _readable_sidecar(tier, upload.key)
    if (
        old is not None
        and sidecar is not None
        and _is_of(sidecar, upload)
        and _identity(old) != sidecar.replaced
    ):
        return old, sidecar.metadata
    if tier.client.status(folder) is None:
        return None
    _give_back(tier, upload)
    raise gone(upload)


def _told_apart(tier: HdfsTier, path: str, staged: Any, old: Any) -> Any:
    """Give the new file another identity than the old one's: two of one length in one millisecond have the same."""
    if _identity(staged) != _identity(old):
        return staged
    tier.client.set_modified(path, old.modification_time + 1)
    return tier.client.status(path) or staged


def _give_back(tier: HdfsTier, upload: Upload) -> None:
    """End the turn and keep the upload."""
    send_home(tier, tier.paths.turn(upload.key), upload.upload_id)


def _object(tier: HdfsTier, path: str) -> Any | None:
    status = tier.client.status(path)
    return None if status is None or status.isdir else status


def _identity(status: Any) -> FileIdentity:
    return FileIdentity(modified_ms=status.modification_time, length=status.length)


def _is_of(sidecar: Sidecar | None, upload: Upload) -> bool:
    return sidecar is not None and sidecar.upload_id == upload.upload_id


def _sidecar(tier: HdfsTier, key: str) -> Sidecar | None:
    data = tier.client.read_whole(tier.paths.sidecar(key))
    return None if data is None else decode(data, key)


def _readable_sidecar(tier: HdfsTier, key: str) -> Sidecar | None:
    """As `_sidecar`; None as well for one that cannot be read, which must not hinder its replacement."""
    try:
        return _sidecar(tier, key)
    except FormatError:
        return None


def _metadata_of(tier: HdfsTier, key: str, status: Any) -> ObjectMetadata:
    sidecar = _sidecar(tier, key)
    return ObjectMetadata() if sidecar is None else sidecar.of(_identity(status))


def _exists(upload: Upload) -> ObjectExistsError:
    return ObjectExistsError("there is an object of this key already", key=upload.key)


def _disturbed(tier: HdfsTier, key: str) -> StoreUnavailableError:
    return StoreUnavailableError(f"others ended the turn in {tier.client.location} again and again", key=key)
