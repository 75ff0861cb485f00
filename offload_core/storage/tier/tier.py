"""A Tier: one place for offloaded data, a driver under its layers, with a typed interface.

This is the only caller of the driver hooks. It checks what a plugin answers, so that the rest of the
program may rely on it: a driver that gives too few bytes, or nothing at all, is named in a
`BrokenPluginError`.

`PartOrder` keeps blocks in the order of their part numbers, for drivers that declare `ordered_parts`. A block that
comes early waits for those before it, so **all earlier parts must be written concurrently by other threads, or have
been written**: a thread that writes part 2 and then part 1 of the same upload waits for ever, and so does a pool of n
threads that is given n later parts before part 1. Hand parts to a pool in order. When a part fails, those that wait for
it fail as well (`UploadError`), rather than wait for a retry that may never come; the failed part and then the later
ones may be written again. Committing or aborting an upload ends all waiting for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from offload_core.format.codec.arrays import Bytes
from offload_core.storage.tier import registry
from offload_core.storage.tier.chain import Chain, FirstThatHas, HooksBelow, Layer
from offload_core.storage.tier.registry import HotSpec, RecordsPlace, TierSpec
from offload_hooks import (
    BlockReceipt,
    ByteRange,
    DriverDescription,
    ListedObject,
    ObjectStat,
    ReadableBuffer,
    StaleUpload,
    Upload,
    WholeObject,
)
from offload_hooks.counts import count_ranges
from offload_hooks.errors import BrokenPluginError, OptionError, UploadError
from offload_hooks.ledger_stores import LedgerReader, LedgerStore

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(slots=True, eq=False)
class _Progress:
    """The progress of one upload; guarded by its condition."""

    turn: threading.Condition = field(default_factory=threading.Condition)
    next_part: int = 1
    writing: bool = False
    failed_part: int | None = None
    ended: bool = False


class PartOrder:
    """Lets the blocks of each upload through one after another, in order of their part numbers.

    It knows the uploads that were begun here. One that was begun elsewhere goes straight to the driver:
    a process that continues another one's upload must keep the order.
    """

    def __init__(self) -> None:
        self._uploads: dict[Upload, _Progress] = {}

    def begin(self, upload: Upload) -> None:
        """Begin to order the parts of this upload, which is new."""
        self._uploads[upload] = _Progress()

    def write(self, upload: Upload, part_number: int, write: Callable[[], BlockReceipt]) -> BlockReceipt:
        """Call `write` when it is this part's turn; a part that was written before may be written again."""
        progress = self._uploads.get(upload)
        if progress is None:
            return write()
        self._take_turn(progress, upload, part_number)
        failed: int | None = part_number
        try:
            receipt = write()
            failed = None
        finally:
            with progress.turn:
                progress.writing = False
                progress.failed_part = failed
                if failed is None:
                    progress.next_part = max(progress.next_part, part_number + 1)
                progress.turn.notify_all()
        return receipt

    def end(self, upload: Upload) -> None:
        """Forget an upload; a thread that still waits to write to it gets an `UploadError`."""
        progress = self._uploads.pop(upload, None)
        if progress is not None:
            with progress.turn:
                progress.ended = True
                progress.turn.notify_all()

    def _take_turn(self, progress: _Progress, upload: Upload, part_number: int) -> None:
        with progress.turn:
            while progress.writing or part_number > progress.next_part:
                self._check(progress, upload, part_number)
                progress.turn.wait()
            self._check(progress, upload, part_number)
            progress.writing = True

    def _check(self, progress: _Progress, upload: Upload, part_number: int) -> None:
        if progress.ended:
            raise UploadError(
                "the upload was ended before this block's turn came", key=upload.key, block=part_number
            )
        if progress.failed_part is not None and part_number > progress.failed_part:
            raise UploadError(
                f"block {progress.failed_part} failed, and this store takes blocks in order only",
                key=upload.key,
                block=part_number,
                hint="Write the failed block again and then this one, or abort the upload.",
            )


@dataclass(slots=True, eq=False)
class _HotStore:
    """A ledger store that is opened when it is first needed; guarded by its lock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    opened: LedgerStore | None = None


class HotTier:
    """The store of ledgers that are not offloaded yet, and the place of the records that name its ledgers.

    Thread-safe. The store is opened when it is first needed, and again after it was closed.
    """

    def __init__(self, spec: HotSpec, store: _HotStore | None = None) -> None:
        self.spec = spec
        self._store = _HotStore() if store is None else store

    def with_records(self, records: RecordsPlace | None) -> HotTier:
        """The same store, with other copies looked for by these records."""
        return HotTier(replace(self.spec, records=records), self._store)

    def open(self, ledger_id: int) -> LedgerReader:
        """Open a ledger for reading.

        Raises:
            UnknownLedgerError: it is not there, or not any more.
            UnknownPluginError, MissingExtraError, BrokenPluginError, OptionError, StoreError: of the store.
        """
        with self._store.lock:
            if self._store.opened is None:
                self._store.opened = registry.make_ledger_store(self.spec.store.name, self.spec.store.options)
            store = self._store.opened
        return store.open(ledger_id)

    def close(self) -> None:
        """Close the store."""
        with self._store.lock:
            store, self._store.opened = self._store.opened, None
        if store is not None:
            store.close()


NO_METADATA: Mapping[str, str] = MappingProxyType({})
BYTES = "application/octet-stream"

_T = TypeVar("_T")


class Tier:
    """A cold storage location; thread-safe, and picklable when it was opened by name.

    Usually made by `open_store` or `Tier.open`. Given objects instead of names it works alike but cannot be
    pickled:

    Args:
        driver: an object that implements the hooks.
        layers: layers around it, outermost first.
        spec: the names and options that both were made of.
        new_block: makes memory for blocks that are written here; None for the heap's.

    Attributes:
        hot: what has the ledgers that are not offloaded yet; None if they are not read.

    Errors are those of `offload_hooks.errors`; each hook's docstring in `offload_hooks.specs` is the law.
    """

    def __init__(
        self,
        driver: object,
        layers: Sequence[Layer] = (),
        *,
        spec: TierSpec | None = None,
        new_block: Callable[[int], Bytes] | None = None,
    ) -> None:
        self._name = spec.driver if spec is not None else type(driver).__name__
        self._layers = tuple(layer.name for layer in layers)
        self._spec = spec
        self._new_block = new_block
        self.hot = None if spec is None or spec.hot is None else HotTier(spec.hot)
        self._chain = Chain(driver, self._name, layers)
        self._hooks = self._chain.hooks
        self._description = self._typed(DriverDescription, "describe", self._hooks.describe())
        self._order = PartOrder() if self._description.capabilities.ordered_parts else None

    @classmethod
    def open(cls, spec: TierSpec) -> Tier:
        """Open the Tier that these names and options describe. Nothing is asked of the store."""
        tier = cls(
            registry.make_driver(spec.driver, spec.options), layers_of(spec), spec=replace(spec, others=())
        )
        return tier.with_others([Tier.open(each) for each in spec.others]) if spec.others else tier

    def describe(self) -> DriverDescription:
        """Describe the driver: its name, where the tier is and what it can do."""
        return self._description

    @property
    def identity(self) -> object:
        """The object that it has in common with its views, and with no other Tier."""
        return self._chain

    def with_others(self, others: Sequence[Tier]) -> Tier:
        """This one, to be read together with others: see `several_tiers`. All are closed with it."""
        return _SeveralTiers(self, others)

    def with_hot(self, hot: HotTier) -> Tier:
        """This one, read together with a hot tier, which is closed with it."""
        view = object.__new__(type(self))
        vars(view).update(vars(self))
        view.hot = hot
        view._spec = None if self._spec is None else replace(self._spec, hot=hot.spec)
        return view

    @property
    def spec(self) -> TierSpec | None:
        """The names and options that it was made of; None if it was given objects."""
        return self._spec

    # --- writing -------------------------------------------------------------------------------

    def new_block(self, n_bytes: int) -> Bytes:
        """Memory (uint8) of undefined content for a block that is to be written here."""
        return np.empty(n_bytes, dtype=np.uint8) if self._new_block is None else self._new_block(n_bytes)

    def begin_data(
        self, key: str, *, content_type: str = BYTES, user_metadata: Mapping[str, str] = NO_METADATA
    ) -> Upload:
        """Begin a data object, which is not visible before `commit_data`."""
        answer = self._hooks.begin_data(key=key, content_type=content_type, user_metadata=dict(user_metadata))
        upload = self._typed(Upload, "begin_data", answer)
        if self._order is not None:
            self._order.begin(upload)
        return upload

    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        """Store part `part_number` (from 1) at byte `offset`; parts may be written in any order and
        concurrently.

        When the driver declares `ordered_parts`, a part that comes early waits until those before it are
        written: they must be written concurrently by other threads, else this never returns (see
        `part_order`).
        """
        if self._order is None:
            return self._write_block(upload, part_number, offset, data)
        return self._order.write(
            upload, part_number, lambda: self._write_block(upload, part_number, offset, data)
        )

    def commit_data(
        self, upload: Upload, receipts: Sequence[BlockReceipt], *, create_only: bool = False
    ) -> ObjectStat:
        """Make the object visible, whole and durable; `receipts` of all its blocks, in any order."""
        in_order = sorted(receipts, key=lambda receipt: receipt.part_number)
        answer = self._hooks.commit_data(upload=upload, receipts=in_order, create_only=create_only)
        if self._order is not None:
            self._order.end(upload)
        return self._typed(ObjectStat, "commit_data", answer)

    def abort_data(self, upload: Upload) -> bool:
        """Drop an upload, of this process or another; idempotent. True if there was something to drop."""
        if self._order is not None:
            self._order.end(upload)
        return self._typed(bool, "abort_data", self._hooks.abort_data(upload=upload))

    def write_index(
        self,
        key: str,
        data: ReadableBuffer,
        *,
        content_type: str = BYTES,
        user_metadata: Mapping[str, str] = NO_METADATA,
        create_only: bool = False,
    ) -> ObjectStat:
        """Store a small object whole and durably in one call."""
        answer = self._hooks.write_index(
            key=key,
            data=data,
            content_type=content_type,
            user_metadata=user_metadata,
            create_only=create_only,
        )
        return self._typed(ObjectStat, "write_index", answer)

    # --- reading -------------------------------------------------------------------------------

    def read_range(self, key: str, offset: int, length: int) -> memoryview:
        """Read exactly `length` bytes from byte `offset`, as a read-only view of bytes."""
        data = self._hooks.read_range(key=key, offset=offset, length=length)
        view = self._exactly(ByteRange(key=key, offset=offset, length=length), data, "read_range")
        count_ranges(1, length)
        return view

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[memoryview]:
        """Read many ranges at once, in their order: all, or the first error.

        A driver without its own way reads them concurrently, by a few threads of this process.
        """
        if not ranges:
            return []
        read = self._typed(list, "read_ranges", self._hooks.read_ranges(ranges=ranges))
        if len(read) != len(ranges):
            raise self._broken("read_ranges", f"{len(ranges)} ranges", len(read))
        views = [
            self._exactly(wanted, data, "read_ranges") for wanted, data in zip(ranges, read, strict=True)
        ]
        count_ranges(len(views), sum(map(len, views)))
        return views

    def stat(self, key: str) -> ObjectStat:
        """An object's size, time and user metadata."""
        return self._typed(ObjectStat, "stat", self._hooks.stat(key=key))

    def read_object(self, key: str, most_bytes: int) -> WholeObject:
        """Read an object of at most `most_bytes` whole, with its stat; its bytes as a read-only view.

        By one request if `reads_whole`, else by two: what another process replaces in between may then not fit.
        """
        whole = self._typed(
            WholeObject, "read_object", self._hooks.read_object(key=key, most_bytes=most_bytes)
        )
        size_bytes = whole.stat.size_bytes
        data = self._exactly(ByteRange(key=key, offset=0, length=size_bytes), whole.data, "read_object")
        count_ranges(1, size_bytes)
        return WholeObject(stat=whole.stat, data=data)

    @property
    def reads_whole(self) -> bool:
        """True if `read_object` is one request of the store."""
        return self._chain.reads_whole

    def list_objects(self, prefix: str = "", start_after: str = "") -> Iterator[ListedObject]:
        """The objects whose keys begin with `prefix` and come after `start_after`, lazily.

        In the order of their keys' UTF-8 bytes.
        """
        return iter(self._hooks.list_objects(prefix=prefix, start_after=start_after))

    # --- clearing up ---------------------------------------------------------------------------

    def delete(self, keys: Sequence[str]) -> int:
        """Delete objects with all that belongs to them; idempotent. The number of keys given."""
        if isinstance(keys, str):
            raise OptionError("delete takes a sequence of keys, not one key", key=keys)
        if not keys:
            return 0
        return self._typed(int, "delete", self._hooks.delete(keys=keys))

    def list_uploads(self, prefix: str = "") -> Iterator[StaleUpload]:
        """Uploads by anyone that were begun, and neither committed nor aborted.

        `StoreError` if the driver cannot list them: it lacks the capability `stale_uploads`.
        """
        return iter(self._hooks.list_uploads(prefix=prefix))

    # --- the Tier itself -----------------------------------------------------------------------

    def close(self) -> None:
        """Stop this process's threads and connections; idempotent, and the Tier can be used on."""
        if self.hot is not None:
            self.hot.close()
        self._chain.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        layers = f" under {', '.join(self._layers)}" if self._layers else ""
        return f"<Tier {self._name} at {self._description.location}{layers}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._spec is None:
            raise OptionError("a Tier that was made of a driver object cannot be pickled; open it by name")
        return (Tier.open, (self._spec,))

    def _write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt:
        answer = self._hooks.write_block(upload=upload, part_number=part_number, offset=offset, data=data)
        receipt = self._typed(BlockReceipt, "write_block", answer)
        sent = (part_number, offset, memoryview(data).nbytes)
        stored = (receipt.part_number, receipt.offset, receipt.length)
        if stored != sent:
            raise self._broken(
                "write_block", "a receipt of part, offset, length {}, {}, {}".format(*sent), stored
            )
        return receipt

    def _exactly(self, wanted: ByteRange, data: object, hook: str) -> memoryview:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise self._broken(hook, "bytes", type(data).__name__)
        view = memoryview(data)
        if view.nbytes != wanted.length:
            error = self._broken(hook, f"{wanted.length} bytes", view.nbytes)
            raise error.at(key=wanted.key, offset=wanted.offset)
        return view.cast("B").toreadonly()

    def _typed(self, kind: type[_T], hook: str, answer: object) -> _T:
        if not isinstance(answer, kind):
            raise self._broken(hook, kind.__name__, type(answer).__name__)
        return answer

    def _broken(self, hook: str, expected: str, found: object) -> BrokenPluginError:
        layers = f" or a layer over it ({', '.join(self._layers)})" if self._layers else ""
        what = f"the driver {self._name!r}{layers} broke the contract of {hook}"
        return BrokenPluginError(what, expected=expected, found=found)


class _SeveralTiers(Tier):
    """Reads `tier`, and what that lacks from `others`, in their order."""

    def __init__(self, tier: Tier, others: Sequence[Tier]) -> None:
        vars(self).update(vars(tier))
        self._several = (tier, *others)
        self._hooks = cast("HooksBelow", FirstThatHas([each._hooks for each in self._several]))
        specs = [each.spec for each in others]
        is_named = tier.spec is not None and None not in specs
        self._spec = replace(tier.spec, others=(*tier.spec.others, *specs)) if is_named else None  # type: ignore[union-attr,type-var]

    @property
    def reads_whole(self) -> bool:
        """See `Tier`."""
        return all(tier.reads_whole for tier in self._several)

    def close(self) -> None:
        """See `Tier`."""
        if self.hot is not None:
            self.hot.close()
        for tier in self._several:
            tier.close()


def layers_of(spec: TierSpec) -> list[Layer]:
    """The layers that are described, yet to be made."""
    return [
        Layer(name=layer.name, make=partial(registry.make_layer, layer.name, options=layer.options))
        for layer in spec.layers
    ]
