"""Local drivers that break one promise each, for `offload doctor` to find."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from offload_drivers.local import LocalDriver
from offload_hooks import (
    BlockReceipt,
    DriverDescription,
    ListedObject,
    ObjectStat,
    StaleUpload,
    Upload,
    hookimpl,
)
from offload_hooks.errors import AccessDeniedError, RangeError

SECRET = "AKIA-very-secret"


class Named(LocalDriver):
    """Declares another name, or other capabilities."""

    def __init__(self, root: Any, name: str = "local", **capabilities: Any) -> None:
        super().__init__(root)
        self._name, self._declared = name, capabilities

    @hookimpl
    def describe(self) -> DriverDescription:
        info = super().describe()
        can = dataclasses.replace(info.capabilities, **self._declared)
        return dataclasses.replace(info, name=self._name, capabilities=can)


class LosesMetadata(LocalDriver):
    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        return dataclasses.replace(super().stat(key), user_metadata={})


class DecodesMetadata(LocalDriver):
    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        found = super().stat(key)
        metadata = {name: text.replace("%2F", "/") for name, text in found.user_metadata.items()}
        return dataclasses.replace(found, user_metadata=metadata)


class OverwritesIndexes(LocalDriver):
    @hookimpl
    def write_index(
        self, key: str, data: bytes, content_type: str, user_metadata: Mapping[str, str]
    ) -> ObjectStat:
        return super().write_index(key, data, content_type, user_metadata, False)


class OverwritesData(LocalDriver):
    @hookimpl
    def commit_data(self, upload: Upload, receipts: Sequence[BlockReceipt]) -> ObjectStat:
        return super().commit_data(upload, receipts, False)


class ListsLate(LocalDriver):
    @hookimpl
    def list_objects(self) -> Iterator[ListedObject]:
        return iter(())


class ListsBackwards(LocalDriver):
    @hookimpl
    def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject]:
        return reversed(list(super().list_objects(prefix, start_after)))


class ListsFromTheBeginning(LocalDriver):
    @hookimpl
    def list_objects(self, prefix: str) -> Iterator[ListedObject]:
        return super().list_objects(prefix, "")


class ShowsUploads(LocalDriver):
    @hookimpl
    def begin_data(self, key: str, content_type: str, user_metadata: Mapping[str, str]) -> Upload:
        if key.endswith("-data"):
            super().write_index(key, b"half", content_type, user_metadata, False)
        return super().begin_data(key, content_type, user_metadata)

    @hookimpl
    def commit_data(self, upload: Upload, receipts: Sequence[BlockReceipt]) -> ObjectStat:
        return super().commit_data(upload, receipts, False)


class CutsRanges(LocalDriver):
    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> memoryview:
        size_bytes = super().stat(key).size_bytes
        if offset >= size_bytes:
            return memoryview(b"")
        return super().read_range(key, offset, min(length, size_bytes - offset))


class PadsRanges(LocalDriver):
    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> memoryview:
        try:
            return super().read_range(key, offset, length)
        except RangeError:
            return memoryview(bytes(length))


class ReadsOneOff(LocalDriver):
    @hookimpl
    def read_range(self, key: str, offset: int, length: int) -> memoryview:
        return super().read_range(key, max(offset - 1, 0), length)


class WritesInOrderOfArrival(LocalDriver):
    """Blocks lie in the order in which they came, wherever they belong."""

    def __init__(self, root: Any) -> None:
        super().__init__(root)
        self._ends: dict[Upload, int] = {}

    @hookimpl
    def write_block(self, upload: Upload, part_number: int, offset: int, data: bytes) -> BlockReceipt:
        end = self._ends.get(upload, 0)
        self._ends[upload] = end + len(data)
        return dataclasses.replace(super().write_block(upload, part_number, end, data), offset=offset)


class DeniesDelete(Named):
    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        raise AccessDeniedError("the store refused to delete", key=keys[0])


class DeletesNothing(LocalDriver):
    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        return len(keys)


class DeletesOnce(LocalDriver):
    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        for key in keys:
            super().stat(key)
        return super().delete(keys)


class DeniesAbort(Named):
    @hookimpl
    def abort_data(self, upload: Upload) -> bool:
        raise AccessDeniedError("the store refused to abort", key=upload.key)


class DeniesList(Named):
    @hookimpl
    def list_objects(self) -> Iterator[ListedObject]:
        raise AccessDeniedError("the store refused to list")


class HidesUploads(LocalDriver):
    @hookimpl
    def list_uploads(self) -> Iterator[StaleUpload]:
        return iter(())


class HasOldUploads(Named):
    """Three uploads that were begun in 2020."""

    @hookimpl
    def list_uploads(self, prefix: str) -> Iterator[StaleUpload]:
        yield from super().list_uploads(prefix)
        for i in range(3):
            upload = Upload(key=f"topic-{i}", upload_id=f"{i}")
            if upload.key.startswith(prefix):
                yield StaleUpload(upload=upload, started_at=datetime(2020, 2, 1 + i, tzinfo=UTC))


class HasAnotherClock(LocalDriver):
    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        found = super().stat(key)
        return dataclasses.replace(found, modified_at=found.modified_at + timedelta(minutes=2))


class RaisesAnything(LocalDriver):
    """Raises an error of its own, which shows a secret."""

    @hookimpl
    def stat(self, key: str) -> ObjectStat:
        found = super().stat(key)
        if key.endswith("-data"):
            raise ValueError(f"wrong password {SECRET}")
        return found


class Interrupts(LocalDriver):
    """The user types Ctrl-C when data is committed, and as often as he likes while it is cleaned up."""

    def __init__(self, root: Any, again: bool = False) -> None:
        super().__init__(root)
        self._again = again

    @hookimpl
    def commit_data(self) -> ObjectStat:
        raise KeyboardInterrupt

    @hookimpl
    def delete(self, keys: Sequence[str]) -> int:
        if self._again:
            raise KeyboardInterrupt
        return super().delete(keys)
