"""A metadata store in memory: the reference implementation, also for tests of programs."""

from __future__ import annotations

import itertools
import threading

from offload_hooks.errors import VersionConflictError
from offload_hooks.metadata_stores import check_path


class MemoryMetadata:
    """State that stores in memory share: values with their versions, by path."""

    def __init__(self) -> None:
        self.records: dict[str, tuple[bytes, int]] = {}
        self.lock = threading.Lock()
        self.versions = itertools.count(1)


class MemoryMetadataStore:
    """A complete `WritableMetadataStore` of one process.

    Args:
        metadata: the place of its values; several stores may share it. None for one of its own.
    """

    def __init__(self, metadata: MemoryMetadata | None = None) -> None:
        self.metadata = metadata or MemoryMetadata()

    def get(self, path: str) -> tuple[bytes, int] | None:
        """See `WritableMetadataStore`."""
        with self.metadata.lock:
            return self.metadata.records.get(check_path(path))

    def children(self, path: str) -> list[str]:
        """See `WritableMetadataStore`."""
        begin = f"{check_path(path)}/"
        with self.metadata.lock:
            below = [known.removeprefix(begin) for known in self.metadata.records if known.startswith(begin)]
        return list(dict.fromkeys(name.partition("/")[0] for name in below))

    def put(self, path: str, value: bytes, expected_version: int | None) -> int:
        """See `WritableMetadataStore`."""
        with self.metadata.lock:
            self._expect(check_path(path), expected_version)
            version = next(self.metadata.versions)
            self.metadata.records[path] = (bytes(value), version)
            return version

    def delete(self, path: str, expected_version: int) -> None:
        """See `WritableMetadataStore`."""
        with self.metadata.lock:
            self._expect(check_path(path), expected_version)
            del self.metadata.records[path]

    def close(self) -> None:
        """See `WritableMetadataStore`."""

    def _expect(self, path: str, version: int | None) -> None:
        _, found = self.metadata.records.get(path, (b"", None))
        if found != version:
            raise VersionConflictError(
                "a record has another version than expected",
                key=f"memory:{path}",
                expected="none" if version is None else version,
                found="none" if found is None else found,
            )
