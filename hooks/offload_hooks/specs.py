"""The hooks that a driver implements and a layer may stand before. The docstrings are the contract.

A **driver** is a class whose constructor takes its options by keyword and whose methods implement these hooks, marked
with `@hookimpl`. It is found by entry point (group `pulsar_offload.drivers`), and by the schemes of the URLs it
serves (group `pulsar_offload.url_schemes`; it then has a class method `options_from_url(url) -> dict`).
It carries `hook_spec_version = 1`. It may also have:
- `option_aliases`, a mapping of other names for its options (Pulsar's, say) to its own. Aliases, and its own names,
  are found whatever the case of their letters: Spark hands options over in lower case. Values may all be text. An
  option in a mapping that is no option itself has a dot: `client_kwargs.region_name`;
- `pointless_options`, a mapping of other tools' options that would change nothing here to the only value that they may
  have, in lower case; None for any. They are accepted, and the driver does not get them;
- `default_layers`, the names of the layers that it is opened under where the configuration names none;
- `close()`, which closes the calling process's connections; the driver can still be used, and then makes new ones.

For all hooks:
- Calls are synchronous and may come from many threads at once.
- A hook never returns None after acting: with `firstresult` the next plugin would then act as well.
- A key is a relative path of UTF-8 text with `/` between its parts. A key that would leave the tier's root, or that
  the store cannot have, is refused with `InvalidKeyError`.
- Errors are those of `offload_hooks.errors`, translated by the driver, with the foreign one as their cause, and
  without credentials in their text.
- Arguments may be added to a hook in a later version of the specs; none is renamed or removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pluggy

from offload_hooks.values import (
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

PROJECT = "pulsar_offload"
HOOK_SPEC_VERSION = 1

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class TierHooks:
    """All hooks between the core and a store. Those marked optional may be left out."""

    @hookspec(firstresult=True)
    def describe(self) -> DriverDescription | None:
        """Describe the driver: its name, its tier's place and its abilities. No request to the store."""

    @hookspec(firstresult=True)
    def begin_data(self, key: str, content_type: str, user_metadata: Mapping[str, str]) -> Upload | None:
        """Begin a data object. Nothing is visible under `key` until `commit_data`.

        Two uploads of one key may run at once; the last commit wins, or under `create_only` the first. Where the
        driver declares `exclusive_uploads`, a commit ends the key's other uploads: theirs is an `UploadError`.
        """

    @hookspec(firstresult=True)
    def write_block(
        self, upload: Upload, part_number: int, offset: int, data: ReadableBuffer
    ) -> BlockReceipt | None:
        """Store one block of a data object: part `part_number` (from 1), at byte `offset` of the object.

        Blocks come in any order and concurrently, unless the driver declares `ordered_parts`. The same block may be
        written again (after an error): the last one counts. The data is not kept after the call.
        """

    @hookspec(firstresult=True)
    def commit_data(
        self, upload: Upload, receipts: Sequence[BlockReceipt], create_only: bool
    ) -> ObjectStat | None:
        """Make the data object visible, whole and durable, with its user metadata; answer what `stat` would.

        `receipts` are those of the parts 1, 2 and on in order, and cover the object without hole or overlap, else
        `UploadError`.
        With `create_only` an existing object is not changed: `ObjectExistsError`; without, it is replaced.
        Committing an upload that is gone: `UploadError`.
        """

    @hookspec(firstresult=True)
    def abort_data(self, upload: Upload) -> bool | None:
        """Drop an upload and all its blocks; idempotent. True if there was something to drop, else False."""

    @hookspec(firstresult=True)
    def write_index(
        self,
        key: str,
        data: ReadableBuffer,
        content_type: str,
        user_metadata: Mapping[str, str],
        create_only: bool,
    ) -> ObjectStat | None:
        """Store a small object whole, durably, in one call; answer what `stat` would.

        Visible whole or not at all. With `create_only` an existing object is not changed: `ObjectExistsError`.
        """

    @hookspec(firstresult=True)
    def read_range(self, key: str, offset: int, length: int) -> ReadableBuffer | None:
        """Read exactly `length` bytes from byte `offset`: never fewer.

        Errors: `ObjectNotFoundError`; `RangeError` for a range that is negative, empty or ends past the object.
        """

    @hookspec(firstresult=True)
    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[ReadableBuffer] | None:
        """Read many ranges at once, in their order; optional (without it the Tier reads them concurrently).

        All or nothing: the first error is raised, none is returned in the list. Errors as `read_range`.
        """

    @hookspec(firstresult=True)
    def read_object(self, key: str, most_bytes: int) -> WholeObject | None:
        """Read a small object whole, with what `stat` shows of it, by one request; optional.

        Bytes and stat are of one version of the object. Errors: `ObjectNotFoundError`; `RangeError` for an object of
        more than `most_bytes`, of which not much more is read. A driver whose store needs several requests leaves it
        out: without it the Tier asks for the stat, and then for the bytes.
        """

    @hookspec(firstresult=True)
    def stat(self, key: str) -> ObjectStat | None:
        """An object's size, time, user metadata and storage class. `ObjectNotFoundError` when there is none."""

    @hookspec(firstresult=True)
    def list_objects(self, prefix: str, start_after: str) -> Iterator[ListedObject] | None:
        """All committed objects whose key begins with `prefix` and comes after `start_after`, in order of their keys.

        Lazy: pages are asked for as they are needed. The order is that of the keys' UTF-8 bytes. Sidecars,
        uploads and other things of the driver's own are not listed. A missing root is an empty listing only
        if the store cannot tell it from an empty one, else `ObjectNotFoundError`.
        """

    @hookspec(firstresult=True)
    def delete(self, keys: Sequence[str]) -> int | None:
        """Delete objects with all that belongs to them; idempotent. The number of keys given, once all are gone.

        A missing object counts as gone. On an error some may be gone already: the call may be made again.
        """

    @hookspec(firstresult=True)
    def list_uploads(self, prefix: str) -> Iterator[StaleUpload] | None:
        """Uploads whose key begins with `prefix` that are neither committed nor aborted, by anyone; optional.

        An upload that a crash ended before its key was stored has an empty key; it cannot be continued.
        A driver that has it declares `stale_uploads`.
        """


OPTIONAL_HOOKS = frozenset({"read_ranges", "read_object", "list_uploads"})
