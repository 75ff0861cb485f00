"""Uploads to a tier in HDFS: the folder that each one has from its begin to its end.

    <staging>/<id>/<id>/            the folder at home; while it is its turn, in `<staging>/<hash>.turn/`
        key/<the key's parts>/      the key, as directories: one request, and no file, which takes a DataNode
        metadata.json               the sidecar-to-be
        run-…                       blocks (see `runs`)
        sidecar.json                the sidecar, when it has to tell of a replaced object (see `commit`)

The folder has its id for a name wherever it is, so a path to it never means another upload's. An id is 32 hexadecimal
digits; no other text of an upload's is ever made part of a path here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from offload_drivers.hdfs.client import HdfsClient, Renamed
from offload_drivers.hdfs.paths import TURN_SUFFIX, HdfsPaths
from offload_drivers.object_metadata import ObjectMetadata
from offload_drivers.replaced_sidecar import Sidecar, encode
from offload_drivers.upload_records import check_upload_id, gone, is_upload_id, new_upload
from offload_hooks import StaleUpload, Upload
from offload_hooks.errors import ObjectNotFoundError, OffloadError, UploadError
from offload_hooks.values import utc_time

METADATA = "metadata.json"
NO_FILES: Mapping[str, memoryview] = MappingProxyType({})

_KEY = "key"


@dataclass(frozen=True, slots=True)
class HdfsTier:
    """One tier as the calling process reaches it."""

    client: HdfsClient
    paths: HdfsPaths


def begin(
    tier: HdfsTier, key: str, metadata: ObjectMetadata, files: Mapping[str, memoryview] = NO_FILES
) -> Upload:
    """Make an upload's folder, which is listed from now on, with its metadata and more files by name."""
    tier.paths.object(key)
    upload = new_upload(key)
    folder = _at_home(tier, upload)
    tier.client.make_directory(f"{folder}/{_KEY}/{key}")
    sidecar = Sidecar(metadata=metadata, upload_id=upload.upload_id)
    try:
        tier.client.write_files(
            {f"{folder}/{METADATA}": encode(sidecar)} | {f"{folder}/{name}": files[name] for name in files}
        )
    except OffloadError:
        with suppress(OffloadError):
            drop(tier, upload)
        raise
    return upload


def folder_of(tier: HdfsTier, upload: Upload) -> str | None:
    """The path of an upload's folder; None if it is gone. `UploadError` if the upload is of another key."""
    check_upload_id(upload)
    for folder in (_at_home(tier, upload), f"{tier.paths.turn(upload.key)}/{upload.upload_id}"):
        key, _ = _key_in(tier, folder)
        if key is not None:
            if key != upload.key:
                raise UploadError("the upload belongs to another key", key=upload.key, found=key)
            return folder
    return None


def folder_at_home(tier: HdfsTier, upload: Upload) -> str:
    """An upload's folder, sent home if it is not; `UploadError` if it is gone."""
    folder = folder_of(tier, upload)
    if folder is None:
        raise gone(upload)
    home = _at_home(tier, upload)
    if folder != home:
        send_home(tier, tier.paths.turn(upload.key), upload.upload_id)
    return home


def send_home(tier: HdfsTier, turn: str, holder: str) -> None:
    """End another process's turn: its next rename from its folder there finds nothing."""
    client, home = tier.client, tier.paths.home(holder)
    client.make_directory(home)
    if client.rename(f"{turn}/{holder}", f"{home}/{holder}") is not Renamed.DONE:
        client.remove(home)  # it has ended by itself
    elif client.status(f"{home}/{holder}/{_KEY}") is None:
        client.remove_all(home)  # it was no upload, but a deletion
    client.remove(turn)


def drop(tier: HdfsTier, upload: Upload) -> bool:
    """Remove an upload's folder wherever it is; whether there was one."""
    if not is_upload_id(upload.upload_id):
        return False
    turn = tier.paths.turn(upload.key)
    was_there = tier.client.remove_all(tier.paths.home(upload.upload_id))
    if tier.client.remove_all(f"{turn}/{upload.upload_id}"):
        was_there = True
        tier.client.remove(turn)
    return was_there


def uploads(tier: HdfsTier, prefix: str) -> Iterator[StaleUpload]:
    """All uploads of keys that begin with `prefix`."""
    for upload_id, folder in _folders(tier):
        key, begun_ms = _key_in(tier, folder)
        if key is not None and key.startswith(prefix):
            started_at = utc_time(begun_ms / 1000)
            yield StaleUpload(upload=Upload(key=key, upload_id=upload_id), started_at=started_at)


def _at_home(tier: HdfsTier, upload: Upload) -> str:
    return f"{tier.paths.home(upload.upload_id)}/{upload.upload_id}"


def _folders(tier: HdfsTier) -> Iterator[tuple[str, str]]:
    """The id and path of every folder."""
    for name in _names(tier, tier.paths.staging):
        inside = f"{tier.paths.staging}/{name}"
        if is_upload_id(name):
            yield name, f"{inside}/{name}"
        elif name.endswith(TURN_SUFFIX):
            for holder in _names(tier, inside):
                yield holder, f"{inside}/{holder}"


def _key_in(tier: HdfsTier, folder: str) -> tuple[str | None, int]:
    """The key that a folder is of, None if there is no folder or it is none of an upload; and when it was begun."""
    path = f"{folder}/{_KEY}"
    status = tier.client.status(path)
    if status is None:
        return None, 0
    parts = []
    while names := _names(tier, path):
        parts.append(names[0])
        path = f"{path}/{names[0]}"
    return "/".join(parts) or None, status.modification_time


def _names(tier: HdfsTier, path: str) -> list[str]:
    """The names in a directory; none if it is not there."""
    try:
        return [str(status.path).rpartition("/")[2] for status in tier.client.listing(path)]
    except ObjectNotFoundError:
        return []
