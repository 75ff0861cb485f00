"""Uploads to a tier of the driver `fsspec`, and putting what they hold in place.

    .offload-uploads/<id>.json              the record of an upload: its key, content type and user metadata
    .offload-uploads/<id>.<part>-<name>     a block
    .offload-uploads/<id>.data              the blocks joined, where there are several
    .offload-uploads/<id>.sidecar           the sidecar, until it is renamed

An object is a file at its key and a sidecar, and no two files change at once. What a crash leaves after each step:

    1. the blocks are one file      The old object or none. `list_uploads` shows the upload, until step 4.
    2. the sidecar is in place      The old object: the sidecar has its metadata, too. Without an old one: none, and a
                                    sidecar without an object, which is not listed, and the next commit replaces.
    3. the data is in place         The new object with its metadata.
    4. the upload is removed        The same.

No file system of fsspec promises more than a rename, so there are no locks: of two commits of one key at the same time
one wins, perhaps with the metadata of the other. Pulsar's keys have a uuid for each attempt, and are written once.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from offload_drivers.fsspec.files import (
    Found,
    entries,
    find,
    find_file,
    join,
    move,
    put,
    read_whole,
    remove,
    write,
)
from offload_drivers.object_keys import STAGING, KeySpace
from offload_drivers.object_metadata import ObjectMetadata
from offload_drivers.replaced_sidecar import Sidecar, decode, encode
from offload_drivers.sidecar import MAX_BYTES, SUFFIX
from offload_drivers.upload_records import (
    RECORD_SUFFIX,
    check_upload_id,
    encode_record,
    gone,
    is_upload_id,
    listed_key,
    metadata_of,
    new_upload,
)
from offload_hooks import BlockReceipt, ReadableBuffer, StaleUpload, Upload
from offload_hooks.errors import (
    FormatError,
    InvalidKeyError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreError,
    UploadError,
)

_TAG = re.compile(r"\d+-[0-9a-f]{32}\Z")


@dataclass(frozen=True, slots=True)
class FsspecTier:
    """One tier as one call reaches it; `lent` gives another file system of the same place."""

    filesystem: Any
    keys: KeySpace
    lent: Callable[[], AbstractContextManager[Any]]

    @property
    def staging(self) -> str:
        """The directory of uploads."""
        return self.keys.prefix + STAGING

    def staged(self, upload: Upload, suffix: str) -> str:
        """The path of a file of an upload; `UploadError` for an id that this driver does not make."""
        check_upload_id(upload)
        return self.keys.staging_name(upload.upload_id + suffix)


def begin(tier: FsspecTier, key: str, metadata: ObjectMetadata) -> Upload:
    """Make an upload that another process may go on with."""
    upload = new_upload(key)
    write(tier.filesystem, tier.staged(upload, RECORD_SUFFIX), encode_record(key, metadata))
    return upload


def write_block(tier: FsspecTier, upload: Upload, part_number: int, data: memoryview) -> str:
    """Store a block; answer the receipt's tag."""
    if find_file(tier.filesystem, tier.staged(upload, RECORD_SUFFIX)) is None:
        raise gone(upload)
    tag = f"{part_number}-{uuid.uuid4().hex}"
    write(tier.filesystem, tier.staged(upload, f".{tag}"), data)
    return tag


def commit(
    tier: FsspecTier, upload: Upload, receipts: Sequence[BlockReceipt], create_only: bool
) -> tuple[Found, ObjectMetadata]:
    """Make an upload's blocks the object; what is then there."""
    record = read_whole(tier.filesystem, tier.staged(upload, RECORD_SUFFIX), MAX_BYTES + 1)
    metadata = metadata_of(upload, record)
    blocks = [_block(tier, upload, receipt) for receipt in receipts]
    found = [find_file(tier.filesystem, block) for block in blocks]
    if None in found and (done := _already_there(tier, upload)) is not None:
        return done, metadata
    for receipt, each in zip(receipts, found, strict=True):
        if each is None or each.size_bytes != receipt.length:
            raise UploadError(
                "a receipt is not of this upload",
                key=upload.key,
                block=receipt.part_number,
                expected=f"a block of {receipt.length:,} bytes",
                found="none" if each is None else f"{each.size_bytes:,} bytes",
            )
    staged = blocks[0]
    if len(blocks) > 1:
        staged = tier.staged(upload, ".data")
        sizes = [receipt.length for receipt in receipts]
        with tier.lent() as source:
            join(tier.filesystem, source, list(zip(blocks, sizes, strict=True)), staged)
    there = _put_sidecar(tier, upload, metadata, create_only)
    move(tier.filesystem, staged, tier.keys.name(upload.key), replaces=there is not None)
    return _judged(tier, upload, metadata, there), metadata


def put_object(
    tier: FsspecTier, key: str, data: ReadableBuffer, metadata: ObjectMetadata, create_only: bool
) -> tuple[Found, ObjectMetadata]:
    """Store a small object whole; what is then there."""
    upload = new_upload(key)
    there = _put_sidecar(tier, upload, metadata, create_only)
    put(tier.filesystem, tier.keys.name(key), data, tier.staged(upload, ".data"))
    return _judged(tier, upload, metadata, there), metadata


def drop(tier: FsspecTier, upload: Upload) -> bool:
    """Remove all of an upload; whether there was anything."""
    if not is_upload_id(upload.upload_id):
        return False
    record = f"{upload.upload_id}{RECORD_SUFFIX}"
    names = {entry.name for entry in entries(tier.filesystem, tier.staging)} - {record}
    rest = sorted(name for name in names if name.startswith(f"{upload.upload_id}."))
    removed = [remove(tier.filesystem, tier.keys.staging_name(name)) for name in (record, *rest)]
    return any(removed)


def uploads(tier: FsspecTier, prefix: str) -> list[StaleUpload]:
    """All uploads of keys that begin with `prefix`; without key what a crash left."""
    began: dict[str, datetime] = {}
    for entry in entries(tier.filesystem, tier.staging):
        upload_id, _, rest = entry.name.partition(".")
        if is_upload_id(upload_id) and (upload_id not in began or f".{rest}" == RECORD_SUFFIX):
            began[upload_id] = entry.modified_at
    found = []
    for upload_id in sorted(began):
        path = tier.keys.staging_name(upload_id + RECORD_SUFFIX)
        record = read_whole(tier.filesystem, path, MAX_BYTES + 1)
        key = "" if record is None else listed_key(record, upload_id)
        if key.startswith(prefix):
            found.append(
                StaleUpload(upload=Upload(key=key, upload_id=upload_id), started_at=began[upload_id])
            )
    return found


def object_and_metadata(tier: FsspecTier, key: str) -> tuple[Found, ObjectMetadata]:
    """An object, and the metadata that belongs to just this file."""
    path = tier.keys.name(key)
    found = find_file(tier.filesystem, path)
    while found is not None:
        sidecar = _sidecar(tier, key)
        again = find_file(tier.filesystem, path)
        if again is not None and again.size_bytes == found.size_bytes and again.identity == found.identity:
            return found, ObjectMetadata() if sidecar is None else sidecar.of(found.identity)
        found = again
    raise no_object(key)


def delete_object(tier: FsspecTier, key: str) -> None:
    """Remove an object with its sidecar; an absent one counts as removed."""
    path = tier.keys.name(key)
    remove(tier.filesystem, path)
    remove(tier.filesystem, path + SUFFIX)


def no_object(key: str) -> ObjectNotFoundError:
    """The error for a key that has no object."""
    return ObjectNotFoundError("there is no such object", key=key)


def _block(tier: FsspecTier, upload: Upload, receipt: BlockReceipt) -> str:
    if not _TAG.match(receipt.tag):
        raise UploadError(
            "a receipt is not of this upload", key=upload.key, block=receipt.part_number, found=receipt.tag
        )
    return tier.staged(upload, f".{receipt.tag}")


def _put_sidecar(
    tier: FsspecTier, upload: Upload, metadata: ObjectMetadata, create_only: bool
) -> Found | None:
    """Step 2; the object that is to be replaced."""
    there = find(tier.filesystem, tier.keys.name(upload.key))
    if there is not None and not there.is_file:
        raise InvalidKeyError("the key is a directory already", key=upload.key)
    if there is not None and create_only:
        raise ObjectExistsError("there is an object of this key already", key=upload.key)
    sidecar = Sidecar(metadata=metadata, upload_id=upload.upload_id)
    if there is not None:
        present = _readable_sidecar(tier, upload.key)
        of_old = ObjectMetadata() if present is None else present.of(there.identity)
        sidecar = replace(sidecar, replaced=there.identity, replaced_metadata=of_old)
    _write_sidecar(tier, upload, sidecar)
    return there


def _judged(tier: FsspecTier, upload: Upload, metadata: ObjectMetadata, replaced: Found | None) -> Found:
    """What is in place now; it is told apart from what it replaced."""
    found = find_file(tier.filesystem, tier.keys.name(upload.key))
    if found is None:
        raise StoreError("an object is not there after it was put in place", key=upload.key)
    if replaced is not None and found.identity == replaced.identity:  # some times are in seconds
        _write_sidecar(tier, upload, Sidecar(metadata=metadata, upload_id=upload.upload_id))
    return found


def _already_there(tier: FsspecTier, upload: Upload) -> Found | None:
    """The object, if an earlier attempt to commit this upload was cut off after step 3."""
    found = find_file(tier.filesystem, tier.keys.name(upload.key))
    sidecar = _readable_sidecar(tier, upload.key)
    if found is None or sidecar is None or sidecar.upload_id != upload.upload_id:
        return None
    return None if found.identity == sidecar.replaced else found


def _write_sidecar(tier: FsspecTier, upload: Upload, sidecar: Sidecar) -> None:
    path = tier.keys.name(upload.key) + SUFFIX
    put(tier.filesystem, path, encode(sidecar), tier.staged(upload, ".sidecar"))


def _sidecar(tier: FsspecTier, key: str) -> Sidecar | None:
    data = read_whole(tier.filesystem, tier.keys.name(key) + SUFFIX, MAX_BYTES + 1)
    return None if data is None else decode(data, key)


def _readable_sidecar(tier: FsspecTier, key: str) -> Sidecar | None:
    """As `_sidecar`; None as well for one that cannot be read, which must not hinder its replacement."""
    with suppress(FormatError):
        return _sidecar(tier, key)
    return None
