"""A driver as the program calls it: through pluggy, by keyword, every answer checked for its type.

An implementation of a hook may leave out arguments, and only pluggy knows which. So the cases never call a driver's
methods; they call a `Store`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeVar

import pluggy
import pytest

from offload_hooks import (
    OPTIONAL_HOOKS,
    PROJECT,
    BlockReceipt,
    ByteRange,
    Capabilities,
    DriverDescription,
    ListedObject,
    ObjectStat,
    ReadableBuffer,
    StaleUpload,
    TierHooks,
    Upload,
    WholeObject,
)
from offload_hooks.errors import OffloadError
from offload_hooks.testing.refusals import Refusal, expect_refusal

BYTES = "application/octet-stream"
_MOST_SHOWN = 300
"""Characters of an answer in the failure that nothing was raised."""
NONE: Mapping[str, str] = {}

T = TypeVar("T")


class Store:
    """One driver, called through the hooks.

    Args:
        driver: an object that implements the hooks.
        secrets: texts that no error may show.
    """

    def __init__(self, driver: object, secrets: Sequence[str] = ()) -> None:
        self.driver = driver
        self._secrets = tuple(secrets)
        self._refusal: Refusal | None = None  # inside a block of `refuses`
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(TierHooks)
        self._names = tuple(vars(self._manager.hook))
        self._manager.register(driver)
        self._manager.check_pending()

    # --- the driver's facts ----------------------------------------------------------------------

    def describe(self) -> DriverDescription:
        """See `TierHooks`."""
        return self._call(DriverDescription, "describe")

    @cached_property
    def capabilities(self) -> Capabilities:
        """The driver's capabilities."""
        return self.describe().capabilities

    def implements(self, hook: str) -> bool:
        """True if the driver implements a hook."""
        return bool(getattr(self._manager.hook, hook).get_hookimpls())

    def missing_hooks(self) -> list[str]:
        """The required hooks that the driver does not implement."""
        return [name for name in self._names if name not in OPTIONAL_HOOKS and not self.implements(name)]

    def requires(self, capability: str) -> None:
        """Skip the case unless the driver declares the capability."""
        if not getattr(self.capabilities, capability):
            pytest.skip(f"the driver does not declare the capability {capability}")

    def requires_not(self, capability: str) -> None:
        """Skip the case if the driver declares the capability."""
        if getattr(self.capabilities, capability):
            pytest.skip(f"the driver declares the capability {capability}")

    def requires_hook(self, hook: str) -> None:
        """Skip the case unless the driver implements the optional hook."""
        if not self.implements(hook):
            pytest.skip(f"the driver does not implement the optional hook {hook}")

    def close(self) -> None:
        """Close the driver if it can be closed."""
        close = getattr(self.driver, "close", None)
        if callable(close):
            close()

    # --- the hooks -------------------------------------------------------------------------------

    def begin(self, key: str, user_metadata: Mapping[str, str] = NONE, content_type: str = BYTES) -> Upload:
        """See `TierHooks.begin_data`."""
        arguments = {"key": key, "content_type": content_type, "user_metadata": dict(user_metadata)}
        return self._call(Upload, "begin_data", **arguments)

    def write(self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer) -> BlockReceipt:
        """See `TierHooks.write_block`."""
        arguments = {"upload": upload, "part_number": part_number, "offset": offset, "data": data}
        return self._call(BlockReceipt, "write_block", **arguments)

    def commit(
        self, upload: Upload, receipts: Sequence[BlockReceipt], *, create_only: bool = False
    ) -> ObjectStat:
        """See `TierHooks.commit_data`."""
        arguments = {"upload": upload, "receipts": list(receipts), "create_only": create_only}
        return self._call(ObjectStat, "commit_data", **arguments)

    def abort(self, upload: Upload) -> bool:
        """See `TierHooks.abort_data`."""
        return self._call(bool, "abort_data", upload=upload)

    def write_index(
        self,
        key: str,
        data: ReadableBuffer,
        user_metadata: Mapping[str, str] = NONE,
        content_type: str = BYTES,
        *,
        create_only: bool = False,
    ) -> ObjectStat:
        """See `TierHooks`."""
        arguments = {"key": key, "data": data, "content_type": content_type, "create_only": create_only}
        return self._call(ObjectStat, "write_index", user_metadata=dict(user_metadata), **arguments)

    def read(self, key: str, offset: int, length: int) -> bytes:
        """See `TierHooks.read_range`."""
        return bytes(self.view(key, offset, length))

    def view(self, key: str, offset: int, length: int) -> memoryview:
        """As `read`, but the very bytes that the driver gave."""
        answer = self._call(object, "read_range", key=key, offset=offset, length=length)
        return _bytes(answer, "read_range")

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[bytes]:
        """See `TierHooks`."""
        read = self._call(list, "read_ranges", ranges=list(ranges))
        return [bytes(_bytes(each, "read_ranges")) for each in read]

    def read_object(self, key: str, most_bytes: int = 1 << 20) -> WholeObject:
        """See `TierHooks`."""
        whole = self._call(WholeObject, "read_object", key=key, most_bytes=most_bytes)
        return WholeObject(stat=whole.stat, data=bytes(_bytes(whole.data, "read_object")))

    def stat(self, key: str) -> ObjectStat:
        """See `TierHooks`."""
        return self._call(ObjectStat, "stat", key=key)

    def listing(self, prefix: str = "", start_after: str = "") -> Iterator[ListedObject]:
        """See `TierHooks.list_objects`."""
        answer = self._call(object, "list_objects", prefix=prefix, start_after=start_after)
        assert isinstance(answer, Iterator), f"list_objects answered {answer!r}, which is no iterator"
        for found in answer:
            assert isinstance(found, ListedObject), f"list_objects listed {found!r}"
            yield found

    def keys(self, prefix: str = "", start_after: str = "") -> list[str]:
        """The keys of `listing`."""
        return [found.key for found in self.listing(prefix, start_after)]

    def delete(self, *keys: str) -> int:
        """See `TierHooks`."""
        return self._call(int, "delete", keys=list(keys))

    def uploads(self, prefix: str = "") -> list[StaleUpload]:
        """See `TierHooks.list_uploads`."""
        answer = self._call(object, "list_uploads", prefix=prefix)
        assert isinstance(answer, Iterator), f"list_uploads answered {answer!r}, which is no iterator"
        found = list(answer)
        for each in found:
            assert isinstance(each, StaleUpload), f"list_uploads listed {each!r}"
        return found

    # --- several of them -------------------------------------------------------------------------

    @property
    def block_bytes(self) -> int:
        """A size that a block may have wherever it is in its object; as small as it goes, but not tiny."""
        return min(max(self.capabilities.min_block_bytes, 1000), self.capabilities.max_block_bytes)

    def write_all(self, upload: Upload, blocks: Sequence[bytes]) -> list[BlockReceipt]:
        """Write these blocks one after another."""
        offset, receipts = 0, []
        for part_number, block in enumerate(blocks, 1):
            receipts.append(self.write(upload, part_number, offset, block))
            offset += len(block)
        return receipts

    def put(
        self,
        key: str,
        *blocks: bytes,
        user_metadata: Mapping[str, str] = NONE,
        content_type: str = BYTES,
        create_only: bool = False,
    ) -> ObjectStat:
        """Write a data object of these blocks, of which all but the last must be large enough."""
        upload = self.begin(key, user_metadata, content_type)
        return self.commit(upload, self.write_all(upload, blocks), create_only=create_only)

    def whole(self, key: str) -> bytes:
        """All bytes of an object."""
        size_bytes = self.stat(key).size_bytes
        return self.read(key, 0, size_bytes) if size_bytes else b""

    def exists(self, key: str) -> bool:
        """True if `stat` finds the object."""
        try:
            self.stat(key)
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def refuses(self, *kinds: type[OffloadError], key: str | None = None) -> Iterator[Refusal]:
        """The block must raise one of these errors: one that can be pickled and shows no secret.

        With `key` it must name the object.
        """
        with expect_refusal(*kinds, secrets=self._secrets) as refusal:
            self._refusal = refusal
            try:
                yield refusal
            finally:
                self._refusal = None
        if key is not None:
            assert refusal.error.key == key, "the error must name the object's key"

    def _call(self, kind: type[T], hook: str, **arguments: Any) -> T:
        answer = getattr(self._manager.hook, hook)(**arguments)
        assert answer is not None, f"{hook} answered None: a hook must say what it did"
        assert isinstance(answer, kind), f"{hook} answered {answer!r}, which is no {kind.__name__}"
        if (refusal := self._refusal) is not None:
            refusal.answer = f"{hook} answered {answer!r}"[:_MOST_SHOWN]
        return answer


def _bytes(answer: object, hook: str) -> memoryview:
    assert isinstance(answer, bytes | bytearray | memoryview), f"{hook} gave {answer!r}, which is no bytes"
    return memoryview(answer).cast("B")
