"""Any sequence of calls against a dict: a Hypothesis state machine that calls in orders in which no program does.

Each example has a folder of the tier to itself, so one tier serves them all. Objects are small; where the store wants
large blocks, they have one block each. An upload whose commit was refused, which the hooks leave open, is ended at
once and not inspected again.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, rule

from offload_hooks import BlockReceipt, ByteRange, ObjectStat, Upload
from offload_hooks.errors import ObjectExistsError, ObjectNotFoundError, RangeError, UploadError
from offload_hooks.testing.back_door import BackDoor
from offload_hooks.testing.content import content
from offload_hooks.testing.store import BYTES, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedObject:
    """An object as it must be found."""

    data: bytes
    user_metadata: Mapping[str, str]
    content_type: str


@dataclass(slots=True, kw_only=True, eq=False)
class ExpectedUpload:
    """An upload, the sizes of its blocks, and what was written of them."""

    upload: Upload
    sizes: list[int]
    user_metadata: Mapping[str, str]
    content_type: str
    blocks: dict[int, tuple[BlockReceipt, bytes]] = field(default_factory=dict)
    state: Literal["open", "gone", "ended by another"] = "open"

    def written(self) -> list[tuple[BlockReceipt, bytes]]:
        """The blocks from the first to the first that is not written yet."""
        return [
            self.blocks[part] for part in itertools.takewhile(self.blocks.__contains__, itertools.count(1))
        ]


_KEYS = ["a-b", "a/1", "a/2", "a0", "b", "c/d/1", "c/d/2"]
_keys = st.sampled_from(_KEYS)
_missing_keys = st.sampled_from(["a", "c/d", "nothing"])
_prefixes = st.sampled_from(["", "a", "a/", "c/d/", "z"])
_places = st.sampled_from(["", "a", "a/1", "a/2", "a0", "c/d/1", "z"])
_metadata = st.dictionaries(st.sampled_from(["Role", "who", "managedLedgerName"]), st.sampled_from("abc"))
_types = st.sampled_from(["application/octet-stream", "text/plain"])
_sizes = st.lists(st.integers(1, 200), min_size=1, max_size=3)
_seeds = st.integers(0, 9)
_small = st.integers(0, 300)
_which = st.integers(0, len(_KEYS) - 1)
_writes = st.lists(st.tuples(st.integers(1, 3), _seeds), max_size=4)


class DriverMachine(RuleBasedStateMachine):
    """Calls of a driver, checked against a dict; made ready by `driver_state_machine`."""

    make_driver: ClassVar[Callable[[], object]]
    back_door: ClassVar[BackDoor | None]
    rooms: ClassVar[Iterator[str]]

    uploads = Bundle("uploads")
    ended = Bundle("ended")

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(type(self).make_driver())
        self.room = next(self.rooms)
        self.objects: dict[str, ExpectedObject] = {}
        self.begun: list[ExpectedUpload] = []
        self.write_index("b", 1, 0, {}, BYTES, False)  # so that there is a tier, whatever is called first

    # --- writing ---------------------------------------------------------------------------------

    @rule(
        target=uploads,
        key=st.sampled_from(_KEYS[:3]),
        sizes=_sizes,
        user_metadata=_metadata,
        content_type=_types,
    )
    def begin(
        self, key: str, sizes: list[int], user_metadata: dict[str, str], content_type: str
    ) -> ExpectedUpload:
        """Begin an upload that is to have a few blocks."""
        least = self.store.capabilities.min_block_bytes
        *more, last = sizes
        sizes = [least + size for size in more if least <= 1024] + [last]
        upload = self.store.begin(self.room + key, user_metadata, content_type)
        self.begun.append(
            ExpectedUpload(upload=upload, sizes=sizes, user_metadata=user_metadata, content_type=content_type)
        )
        return self.begun[-1]

    @rule(begun=uploads, writes=_writes)
    def write_blocks(self, begun: ExpectedUpload, writes: list[tuple[int, int]]) -> None:
        """Write blocks in any order, some of them again."""
        for part, seed in writes if begun.state == "open" else []:
            if self.store.capabilities.ordered_parts:
                part = len(begun.blocks) + (part > 1 or not begun.blocks)
            part = min(part, len(begun.sizes))
            data = content(begun.sizes[part - 1], seed)
            receipt = self.store.write(begun.upload, part, sum(begun.sizes[: part - 1]), data)
            begun.blocks[part] = (receipt, data)

    @rule(
        target=ended,
        begun=consumes(uploads),
        writes=_writes,
        complete=st.integers(0, 3).map(bool),
        create_only=st.booleans(),
    )
    def commit(
        self, begun: ExpectedUpload, writes: list[tuple[int, int]], complete: bool, create_only: bool
    ) -> ExpectedUpload:
        """Commit all blocks, or those from the first on that happen to be there."""
        self.write_blocks(begun, writes)
        if complete:
            missing = [part for part in range(1, len(begun.sizes) + 1) if part not in begun.blocks]
            self.write_blocks(begun, [(part, part) for part in missing])
        self._commit(begun, create_only)
        return begun

    @rule(
        key=st.sampled_from(_KEYS[:3]),
        sizes=_sizes,
        user_metadata=_metadata,
        writes=_writes,
        create_only=st.booleans(),
    )
    def put(
        self,
        key: str,
        sizes: list[int],
        user_metadata: dict[str, str],
        writes: list[tuple[int, int]],
        create_only: bool,
    ) -> None:
        """Begin an upload and go on to its end."""
        self.commit(self.begin(key, sizes, user_metadata, BYTES), writes, True, create_only)

    @rule(begun=ended, create_only=st.booleans())
    def commit_again(self, begun: ExpectedUpload, create_only: bool) -> None:
        """Commit an upload that is gone."""
        self._commit(begun, create_only)

    @rule(target=ended, begun=consumes(uploads))
    def abort(self, begun: ExpectedUpload) -> ExpectedUpload:
        """Abort an upload."""
        dropped = self.store.abort(begun.upload)
        if begun.state != "ended by another":
            assert dropped == (begun.state == "open")
        begun.state = "gone"
        return begun

    @rule(begun=ended)
    def abort_again(self, begun: ExpectedUpload) -> None:
        """Abort an upload that is gone."""
        assert self.store.abort(begun.upload) is False

    @rule(
        key=_keys,
        size=_small,
        seed=_seeds,
        user_metadata=_metadata,
        content_type=_types,
        create_only=st.booleans(),
    )
    def write_index(
        self,
        key: str,
        size: int,
        seed: int,
        user_metadata: dict[str, str],
        content_type: str,
        create_only: bool,
    ) -> None:
        """Store an object in one call."""
        key, data = self.room + key, content(size, seed)
        create_only = create_only and self.store.capabilities.create_only
        self._make_room_for(key)
        if create_only and key in self.objects:
            with self.store.refuses(ObjectExistsError, key=key):
                self.store.write_index(key, data, user_metadata, content_type, create_only=True)
            return
        stat = self.store.write_index(key, data, user_metadata, content_type, create_only=create_only)
        self._is_stored(key, data, user_metadata, content_type, stat)

    @rule(key=_keys, size=_small, seed=_seeds, content_type=_types)
    def put_by_the_back_door(self, key: str, size: int, seed: int, content_type: str) -> None:
        """Store an object without the driver."""
        if self.back_door is None:
            return
        key, data = self.room + key, content(size, seed)
        self._make_room_for(key)
        self.back_door.put(key, data, {"by": "another"}, content_type)
        self.objects[key] = ExpectedObject(
            data=data, user_metadata={"by": "another"}, content_type=content_type
        )

    @rule(keys=st.lists(st.one_of(_keys, _missing_keys), min_size=1, max_size=4))
    def delete(self, keys: list[str]) -> None:
        """Delete objects that may be there."""
        keys = [self.room + key for key in keys]
        for key in keys:
            self._make_room_for(key)
        assert self.store.delete(*keys) == len(keys)
        for key in keys:
            self.objects.pop(key, None)

    # --- looking ---------------------------------------------------------------------------------

    @rule(which=_which, offset=_small, length=st.integers(1, 300))
    def read_range(self, which: int, offset: int, length: int) -> None:
        """Read a range that is there."""
        for each in self._ranges([(which, offset, length)]):
            expected = self.objects[each.key].data[each.offset : each.end]
            assert self.store.read(each.key, each.offset, each.length) == expected

    @rule(choice=st.lists(st.tuples(_which, _small, st.integers(1, 300)), min_size=1, max_size=6))
    def read_ranges(self, choice: list[tuple[int, int, int]]) -> None:
        """Read some ranges that are there."""
        ranges = self._ranges(choice)
        if ranges and self.store.implements("read_ranges"):
            expected = [self.objects[each.key].data[each.offset : each.end] for each in ranges]
            assert self.store.read_ranges(ranges) == expected

    @rule(which=_which)
    def read_whole(self, which: int) -> None:
        """Read an object whole, if there is any."""
        for key in self._present(which) if self.store.implements("read_object") else ():
            whole, known = self.store.read_object(key), self.objects[key]
            assert (whole.data, whole.stat.user_metadata) == (known.data, known.user_metadata)

    @rule(which=_which, length=st.integers(0, 300), more=st.integers(1, 9))
    def read_past_the_end(self, which: int, length: int, more: int) -> None:
        """Read a range that is not wholly there."""
        for key in self._present(which):
            size = len(self.objects[key].data)
            start = max(0, size - length)
            with self.store.refuses(RangeError, key=key):
                self.store.read(key, start, size - start + more)

    @rule(which=_which)
    def stat(self, which: int) -> None:
        """Ask for an object that is there."""
        for key in self._present(which):
            self._is(key, self.store.stat(key))

    @rule(key=st.one_of(_keys, _missing_keys))
    def look_for_what_is_not_there(self, key: str) -> None:
        """Ask for an object that was never there, or was deleted."""
        key = self.room + key
        if key not in self.objects:
            with self.store.refuses(ObjectNotFoundError, key=key):
                self.store.stat(key)
            with self.store.refuses(ObjectNotFoundError, key=key):
                self.store.read(key, 0, 1)

    @rule()
    def list_all(self) -> None:
        """List all objects."""
        self._list(self.room, "")

    @rule(prefix=_prefixes, start_after=_places)
    def list_objects(self, prefix: str, start_after: str) -> None:
        """List from anywhere."""
        self._list(self.room + prefix, self.room + start_after)

    @rule(which=_which)
    def list_from_an_object_on(self, which: int) -> None:
        """List what comes after an object."""
        for key in self._present(which):
            self._list(self.room, key)

    @rule()
    def list_uploads(self) -> None:
        """List the uploads that are open."""
        if self.store.implements("list_uploads"):
            found = {each.upload for each in self.store.uploads(self.room)}
            states = {begun.upload: begun.state for begun in self.begun}
            assert found >= {upload for upload, state in states.items() if state == "open"}
            assert not {upload for upload in found if states[upload] == "gone"}

    def teardown(self) -> None:
        """Compare the store with the dict at the end."""
        try:
            self._list(self.room, "")
            for key, expected in self.objects.items():
                assert self.store.whole(key) == expected.data
                self._is(key, self.store.stat(key))
                if self.back_door is not None:
                    assert self.back_door.get(key) == expected.data
            for begun in self._open_uploads():
                self._end(begun)
        finally:
            self.store.close()

    # --- the expectations of the dict ------------------------------------------------------------

    def _commit(self, begun: ExpectedUpload, create_only: bool) -> None:
        create_only = create_only and self.store.capabilities.create_only
        key, written = begun.upload.key, begun.written()
        receipts = [receipt for receipt, _ in written]
        if begun.state != "open" or not written:
            with self.store.refuses(UploadError, key=key):
                self.store.commit(begun.upload, receipts, create_only=create_only)
        elif create_only and key in self.objects:
            with self.store.refuses(ObjectExistsError, key=key):
                self.store.commit(begun.upload, receipts, create_only=True)
        else:
            stat = self.store.commit(begun.upload, receipts, create_only=create_only)
            begun.state = "gone"
            data = b"".join(block for _, block in written)
            self._is_stored(key, data, begun.user_metadata, begun.content_type, stat)
            if self.store.capabilities.exclusive_uploads:
                for other in self._open_uploads(key):
                    other.state = "ended by another"
        if begun.state != "gone":
            self._end(begun)

    def _present(self, which: int) -> list[str]:
        """One of the objects that are there; none if none is."""
        keys = sorted(self.objects)
        return [keys[which % len(keys)]] if keys else []

    def _ranges(self, choice: list[tuple[int, int, int]]) -> list[ByteRange]:
        """Ranges of objects that are there and not empty."""
        ranges = []
        for which, offset, length in choice:
            for key in self._present(which):
                size = len(self.objects[key].data)
                if size:
                    start = offset % size
                    ranges.append(ByteRange(key=key, offset=start, length=min(length, size - start)))
        return ranges

    def _list(self, prefix: str, start_after: str) -> None:
        expected = [
            (key, len(self.objects[key].data))
            for key in sorted(self.objects, key=str.encode)
            if key.startswith(prefix) and key > start_after
        ]
        assert [
            (found.key, found.size_bytes) for found in self.store.listing(prefix, start_after)
        ] == expected

    def _is_stored(
        self, key: str, data: bytes, user_metadata: Mapping[str, str], content_type: str, stat: ObjectStat
    ) -> None:
        lowered = {name.lower(): value for name, value in user_metadata.items()}
        self.objects[key] = ExpectedObject(data=data, user_metadata=lowered, content_type=content_type)
        self._is(key, stat)

    def _is(self, key: str, stat: ObjectStat) -> None:
        expected = self.objects[key]
        assert (stat.key, stat.size_bytes) == (key, len(expected.data))
        assert (stat.user_metadata, stat.content_type) == (expected.user_metadata, expected.content_type)

    def _open_uploads(self, key: str | None = None) -> list[ExpectedUpload]:
        return [
            begun
            for begun in self.begun
            if begun.state == "open" and (key is None or begun.upload.key == key)
        ]

    def _make_room_for(self, key: str) -> None:
        """End open uploads of a key where they are exclusive: the hooks leave open what but a commit may end them."""
        if self.store.capabilities.exclusive_uploads:
            for begun in self._open_uploads(key):
                self._end(begun)

    def _end(self, begun: ExpectedUpload) -> None:
        self.store.abort(begun.upload)
        begun.state = "gone"


def driver_state_machine(
    make_driver: Callable[[], object], back_door: BackDoor | None = None
) -> type[DriverMachine]:
    """A state machine of this driver, for `hypothesis.stateful.run_state_machine_as_test` or as `.TestCase`.

    Args:
        make_driver: makes a driver, each time on the same tier.
        back_door: the same tier without the driver; None to do without its checks.
    """
    run = uuid.uuid4().hex[:8]
    rooms = (f"machine-{run}/{i}/" for i in itertools.count())
    attributes = {"make_driver": staticmethod(make_driver), "back_door": back_door, "rooms": rooms}
    return type("DriverMachine", (DriverMachine,), attributes)
