"""One container of Azure's blob storage: its requests as coroutines, and calls of them with errors of ours.

The coroutines raise what the SDK raises. `call` and `call_all` run them on the process's loop and translate.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.blob import BlobBlock, BlobProperties, ContentSettings
from azure.storage.blob.aio import BlobClient, ContainerClient

from offload_drivers.azure.access import resolve
from offload_drivers.azure.blocks import RequestBody
from offload_drivers.azure.errors import Translator, code_of, exists_already
from offload_drivers.azure.filesystem import AccountFilesystem
from offload_drivers.azure.options import AzureOptions
from offload_drivers.filesystems import ProcessFilesystem
from offload_drivers.object_metadata import ObjectMetadata
from offload_hooks.json_text import whole_number

_T = TypeVar("_T")

_AT_ONCE = 32


class Container:
    """The container that a tier is in. Nothing is asked of the store, or of the environment, before the first call."""

    def __init__(self, options: AzureOptions) -> None:
        self._options = options
        self._filesystems = ProcessFilesystem(self._connect, AccountFilesystem.shut)

    def call(self, what: str, key: str | None, call: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
        """Wait for a coroutine function's answer; errors are about `what` is done to `key`."""
        with self._translated(what, key):
            return self._filesystems.run(call, *arguments)

    def call_all(
        self, what: str, calls: Sequence[tuple[str | None, Callable[[], Awaitable[_T]]]]
    ) -> list[_T]:
        """Call coroutine functions, each for a key, many at once; the first error ends all."""

        def translated(key: str | None, call: Callable[[], Awaitable[_T]]) -> Callable[[], Awaitable[_T]]:
            async def run() -> _T:
                with self._translated(what, key):
                    return await call()

            return run

        return self._filesystems.run_all([translated(key, call) for key, call in calls], _AT_ONCE)

    def close(self) -> None:
        """Give back this process's connections."""
        self._filesystems.close()

    # --- coroutines ----------------------------------------------------------------------------

    async def read(self, name: str, offset: int, length: int) -> tuple[bytes, int | None]:
        """Up to `length` bytes from `offset`, by one request, and the blob's size if there are fewer."""
        answer = await self._blob(name).download_blob(offset, length)
        if answer.size != length:
            total = (answer.properties.content_range or "").rpartition("/")[2]
            return b"", whole_number(total)
        async for data in answer.chunks():
            return data, None
        return b"", None

    async def whole(self, name: str, most_bytes: int | None = None) -> tuple[bytes, BlobProperties]:
        """All bytes of a blob, none if there are more than `most_bytes`, and its properties."""
        answer = await self._blob(name).download_blob()
        is_too_large = most_bytes is not None and answer.properties.size > most_bytes
        return b"" if is_too_large else await answer.readall(), answer.properties

    async def put(self, name: str, view: memoryview, metadata: ObjectMetadata, create_only: bool) -> datetime:
        """Store a blob by one request; answers its time."""
        blob = self._blob(name)
        async with asyncio.timeout(None) as stall:
            body = RequestBody(view, stall, self._options.read_timeout_s)
            named: dict[str, Any] = {"raw_request_hook": body.instead()} if view.nbytes else {}
            answer = await blob.upload_blob(
                bytes(view),
                length=view.nbytes,
                overwrite=not create_only,
                metadata=dict(metadata.user_metadata),
                content_settings=ContentSettings(content_type=metadata.content_type),
                **named,
            )
        return _time(answer)

    async def create(self, name: str, view: memoryview, metadata: ObjectMetadata, block: str) -> datetime:
        """Store a blob where there is none; answers its time.

        By one request. But Azurite takes blocks that were staged for a blob of this name for the blob, and refuses;
        then the blob is made of a block of its own, of the id `block`.
        """
        try:
            return await self.put(name, view, metadata, create_only=True)
        except HttpResponseError as error:
            if not exists_already(error) or not await self.is_absent(name):
                raise
        blocks = [block] if view.nbytes else []
        for each in blocks:
            await self.stage(name, each, view)
        return await self.commit(name, blocks, metadata, create_only=True)

    async def stage(self, name: str, block: str, view: memoryview) -> None:
        """Store a block that is no part of the blob yet."""
        blob = self._blob(name)
        async with asyncio.timeout(None) as stall:
            body = RequestBody(view, stall, self._options.read_timeout_s)
            await blob.stage_block(block, body, view.nbytes)  # type: ignore[arg-type]

    async def commit(
        self, name: str, blocks: Sequence[str], metadata: ObjectMetadata, create_only: bool
    ) -> datetime:
        """Make a blob of these blocks and no others; answers its time. All other uncommitted blocks are dropped."""
        named: dict[str, Any] = {"match_condition": MatchConditions.IfMissing} if create_only else {}
        answer = await self._blob(name).commit_block_list(
            [BlobBlock(block) for block in blocks],
            ContentSettings(content_type=metadata.content_type),
            dict(metadata.user_metadata),
            **named,
        )
        return _time(answer)

    async def committed_blocks(self, name: str) -> list[str]:
        """The ids of the blocks that a blob is made of; none if there is no blob."""
        try:
            committed, _ = await self._blob(name).get_block_list("committed")
        except ResourceNotFoundError:
            return []
        return [block.id for block in committed]

    async def properties(self, name: str) -> BlobProperties:
        """A blob's size, time, type and metadata."""
        return await self._blob(name).get_blob_properties()

    async def is_absent(self, name: str) -> bool:
        """True if there is no blob, as far as these credentials may know."""
        try:
            await self.properties(name)
        except ResourceNotFoundError:
            return True
        except HttpResponseError:
            return False
        return False

    async def delete(self, name: str) -> bool:
        """Delete a blob with its snapshots; whether there was one."""
        try:
            await self._blob(name).delete_blob("include")
        except ResourceNotFoundError as error:
            if code_of(error) != "BlobNotFound":
                raise
            return False
        return True

    def listed(self) -> ContainerClient:
        """The client for listings, which asks for nothing yet."""
        filesystem: AccountFilesystem = self._filesystems.get()
        return filesystem.service_client.get_container_client(self._options.container)

    def _blob(self, name: str) -> BlobClient:
        filesystem: AccountFilesystem = self._filesystems.get()
        return filesystem.service_client.get_blob_client(self._options.container, name)

    def _connect(self) -> AccountFilesystem:
        return AccountFilesystem(self._options, resolve(self._options, os.environ))

    def _translated(self, what: str, key: str | None) -> AbstractContextManager[None]:
        filesystem: AccountFilesystem = self._filesystems.get()
        translator = Translator(container=self._options.container, secrets=filesystem.secrets)
        return translator.translated(what, key)


def _time(answer: dict[str, Any]) -> datetime:
    modified_at: datetime = answer["last_modified"]
    return modified_at
