"""Uploads of the driver `gcs`, whose store composes objects but has no parts of unfinished ones in its JSON API.

What an upload `<id>` has in the tier's folder `.offload-uploads`, all of them objects of the bucket:

    <id>.json          its record, written first and removed last
    <id>/00001         a part, by its number, written in one request
    <id>/00001-00032   parts that were composed, as a request takes 32 objects only
    <id>/whole         all of them, made to compare with what is in place after a lost answer

What a crash leaves: before the final composition the upload, which may be committed or aborted; after it the new
object, whole and with its metadata, and a rest of the upload, which `list_uploads` shows and an abort removes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offload_drivers.gcs.bucket import MAX_SOURCES, Bucket
from offload_drivers.gcs.errors import RefusalError
from offload_drivers.gcs.objects import Composition, GcsObject
from offload_drivers.object_keys import KeySpace
from offload_drivers.object_metadata import ObjectMetadata
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
from offload_hooks import BlockReceipt, StaleUpload, Upload
from offload_hooks.errors import StoreUnavailableError, UploadError

_RECORD = ObjectMetadata(content_type="application/json")
_PART = ObjectMetadata()
_WHOLE = "whole"


class GcsUploads:
    """The uploads of one tier."""

    def __init__(self, bucket: Bucket, keys: KeySpace) -> None:
        self._bucket = bucket
        self._keys = keys

    def begin(self, key: str, metadata: ObjectMetadata) -> Upload:
        """Begin an upload by its record."""
        upload = new_upload(key)
        record = memoryview(encode_record(key, metadata))
        self._bucket.insert(self._record(upload), record, _RECORD, create_only=True)
        return upload

    def write(self, upload: Upload, part_number: int, offset: int, data: memoryview) -> BlockReceipt:
        """Store a part; the receipt's tag is its CRC32C. `UploadError` if the upload is gone."""
        check_upload_id(upload)
        name = self._folder(upload) + _number(part_number)
        part = self._bucket.insert(name, data, _PART)
        # Asked afterwards: an abort that did not see this part has removed the record by now.
        if not self._bucket.exists(self._record(upload)):
            self._bucket.delete([name])
            raise gone(upload)
        return BlockReceipt(part_number=part_number, offset=offset, length=data.nbytes, tag=part.crc32c)

    def metadata(self, upload: Upload) -> ObjectMetadata:
        """The metadata that the upload was begun with; `UploadError` if it is gone or of another key."""
        check_upload_id(upload)
        return metadata_of(upload, self._bucket.read([self._record(upload)])[0])

    def parts(self, upload: Upload, receipts: Sequence[BlockReceipt]) -> list[GcsObject]:
        """The parts of these receipts, joined until one request takes them all; `UploadError` if one is not there."""
        found = {part.name: part for page in self._bucket.pages(self._folder(upload)) for part in page}
        parts = []
        for receipt in receipts:
            part = found.get(self._folder(upload) + _number(receipt.part_number))
            there = part and (part.size_bytes, part.crc32c)
            if part is None or there != (receipt.length, receipt.tag):
                raise UploadError(
                    "a block is not in the upload, or not that of its receipt",
                    key=upload.key,
                    block=receipt.part_number,
                    expected=f"{receipt.length} bytes of CRC32C {receipt.tag}",
                    found=f"{part.size_bytes} bytes of CRC32C {part.crc32c}" if part else "none",
                )
            parts.append(part)
        return self._joined(upload, parts)

    def compose(self, upload: Upload, compositions: Sequence[Composition]) -> list[GcsObject]:
        """Compose objects of parts and check their sizes; what is refused by a precondition is a `RefusalError`."""
        try:
            composed = self._bucket.compose(compositions)
        except RefusalError as refusal:
            if not refusal.is_of_object:
                raise
            raise UploadError(
                "a block vanished or was replaced during the commit", key=upload.key, found=str(refusal)
            ) from refusal
        for composition, made in zip(compositions, composed, strict=True):
            size_bytes = sum(source.size_bytes for source in composition.sources)
            if made.size_bytes != size_bytes:
                raise StoreUnavailableError(
                    "the store composed an object of another size than its parts have",
                    key=upload.key,
                    expected=size_bytes,
                    found=made.size_bytes,
                )
        return composed

    def whole(self, upload: Upload, parts: Sequence[GcsObject]) -> GcsObject:
        """What the upload's object must be, made beside it."""
        return self.compose(upload, [Composition(name=self._folder(upload) + _WHOLE, sources=parts)])[0]

    def drop(self, upload: Upload) -> bool:
        """Remove all of an upload; whether there was anything."""
        if not is_upload_id(upload.upload_id):
            return False
        swept = self._sweep(upload)
        was_there = self._bucket.delete([self._record(upload)]) > 0
        # A part that was on its way during the first sweep.
        return self._sweep(upload) or was_there or swept

    def find(self, prefix: str) -> Iterator[StaleUpload]:
        """All uploads of keys that begin with `prefix`, in order of their ids."""
        folder = self._keys.staging_name()
        for page in self._bucket.folder(folder):
            records = [(record, record.name[len(folder) :].removesuffix(RECORD_SUFFIX)) for record in page]
            records = [
                (record, upload_id)
                for record, upload_id in records
                if is_upload_id(upload_id) and record.name.endswith(RECORD_SUFFIX)
            ]
            texts = self._bucket.read([record.name for record, _ in records])
            for (record, upload_id), text in zip(records, texts, strict=True):
                if text is None:  # ended meanwhile
                    continue
                key = listed_key(text, upload_id)
                if key.startswith(prefix):
                    upload = Upload(key=key, upload_id=upload_id)
                    yield StaleUpload(upload=upload, started_at=record.modified_at)

    def _joined(self, upload: Upload, parts: list[GcsObject]) -> list[GcsObject]:
        spans = [(number, number) for number in range(1, len(parts) + 1)]
        while len(parts) > MAX_SOURCES:
            starts = range(0, len(parts), MAX_SOURCES)
            groups = [parts[start : start + MAX_SOURCES] for start in starts]
            spans = [(spans[start][0], spans[start : start + MAX_SOURCES][-1][1]) for start in starts]
            compositions = [
                Composition(
                    name=f"{self._folder(upload)}{_number(first)}-{_number(last)}",
                    sources=group,
                    metadata=_PART,
                )
                for group, (first, last) in zip(groups, spans, strict=True)
            ]
            parts = self.compose(upload, compositions)
        return parts

    def _sweep(self, upload: Upload) -> bool:
        names = [found.name for page in self._bucket.pages(self._folder(upload)) for found in page]
        return self._bucket.delete(names) > 0

    def _record(self, upload: Upload) -> str:
        return self._keys.staging_name(upload.upload_id + RECORD_SUFFIX)

    def _folder(self, upload: Upload) -> str:
        return self._keys.staging_name(upload.upload_id + "/")


def _number(part_number: int) -> str:
    return f"{part_number:05}"
