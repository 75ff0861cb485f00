"""Open a metadata store by its URL, and write to it by compare-and-set.

A write whose outcome the store does not know is resolved by reading back. That is sound because a version never occurs
twice: while the version that was read is there, nothing was written, and the write may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar, cast

from offload_core.storage.tier import registry
from offload_hooks.errors import OptionError, OutcomeUnknownError, StoreUnavailableError, VersionConflictError
from offload_hooks.metadata_stores import WritableMetadataStore

T = TypeVar("T")

_RESOLUTIONS = 3
_UPDATES = 100


def put_resolved(store: WritableMetadataStore, path: str, data: bytes, version: int | None) -> int:
    """Store a value in place of the one of this version (None: there is none yet); return the new version.

    If the store loses an answer, two writers of the same bytes may both succeed.

    Raises:
        VersionConflictError: there is another value, or none. After a lost answer it may be one that was written over
            this one.
        OutcomeUnknownError: the value could not be read back either, or changed all the time.
    """
    for is_last in (*[False] * _RESOLUTIONS, True):
        try:
            return store.put(path, data, version)
        except OutcomeUnknownError as unknown:
            found = _read_back(store, path, unknown)
            if found is not None and found[0] == data and found[1] != version:
                return found[1]
            if is_last or (None if found is None else found[1]) != version:
                raise _unresolved(path, found, version, unknown) from unknown
    raise AssertionError("the last turn returns or raises")


def delete_resolved(store: WritableMetadataStore, path: str, version: int) -> None:
    """Delete the value of this version; errors as `put_resolved`."""
    for is_last in (*[False] * _RESOLUTIONS, True):
        try:
            return store.delete(path, version)
        except OutcomeUnknownError as unknown:
            found = _read_back(store, path, unknown)
            if found is None:
                return None
            if is_last or found[1] != version:
                raise _unresolved(path, found, version, unknown) from unknown
    raise AssertionError("the last turn returns or raises")


def until_first(turn: Callable[[], T]) -> T:
    """Return the result of a turn of reading and writing, which is repeated as often as another process was faster.

    Raises:
        VersionConflictError: another process was faster every time. Others: those of the turn.
    """
    # Not stamina, which logs each turn: that another process was faster need not be reported.
    import tenacity  # here: a process that only reads records, such as a Spark worker, does not need it

    turns = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(VersionConflictError),
        stop=tenacity.stop_after_attempt(_UPDATES),
        wait=tenacity.wait_random_exponential(multiplier=0.002, max=0.1),
        reraise=True,
    )
    return turns(turn)


def _read_back(
    store: WritableMetadataStore, path: str, unknown: OutcomeUnknownError
) -> tuple[bytes, int] | None:
    try:
        return store.get(path)
    except StoreUnavailableError as error:
        raise unknown from error


def _unresolved(
    path: str, found: tuple[bytes, int] | None, version: int | None, unknown: OutcomeUnknownError
) -> VersionConflictError | OutcomeUnknownError:
    """The error for a write that was not made, or not known to be, and may not be repeated."""
    there = None if found is None else found[1]
    if there == version:
        return unknown
    return VersionConflictError(
        "a record was changed while the answer to a write was lost",
        key=path,
        expected="none" if version is None else version,
        found="none" if there is None else there,
    )


def open_metadata_store(url: str, options: Mapping[str, object] | None = None) -> WritableMetadataStore:
    """Open the metadata store of a URL, to read and write; the caller closes it.

    Raises:
        OptionError: no URL, a wrong option, or a store that only reads. PluginError: see `registry.make_driver`.
        StoreError, FormatError: the store's own.
    """
    scheme, colon, _ = url.partition(":")
    if not colon or "/" in scheme:
        raise OptionError("a URL begins with the name of a metadata store", expected="sqlite:/folder/file.db")
    store = registry.make_metadata_store(scheme, url, options or {})
    if not callable(getattr(store, "put", None)):
        store.close()
        raise OptionError(f"the metadata store {scheme!r} only reads")
    return cast("WritableMetadataStore", store)
