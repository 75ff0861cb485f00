"""adlfs as the driver `azure` uses it: its loop and its `service_client`, one connection pool, requests of one try.

adlfs's own constructor is passed over. It prefers the environment's connection string to the account it is given,
has no option for a proxy, certificates or time-outs, speaks only https to an account that is named, and registers a
call for the interpreter's end that waits for ever in a forked child. So the client is made here:
- a request is sent once. The SDK's retries would stand below those of a layer, and a create-only write that was made
  again behind our back would be told that the object exists. (What reads or deletes is sent again by aiohttp when a
  kept connection turns out to be closed.)
- the body of an answer is read in one go, with one copy, and as it is stored, however it is encoded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import weakref
from typing import Any

import aiohttp
from adlfs import AzureBlobFileSystem
from azure.core.pipeline.transport import AioHttpTransport
from azure.storage.blob.aio import BlobServiceClient, LinearRetry

from offload_drivers.azure.access import Access
from offload_drivers.azure.options import AzureOptions
from offload_drivers.filesystems import RECIPE_DEFAULTS
from offload_drivers.server_options import trusted_certificates

MAX_PUT_BYTES = 5000 << 20
"""The largest blob that is stored by one request."""

_READ_AHEAD = 1 << 20
_LONGEST_HEADER = 32 << 10  # 8 KiB of metadata may be one header, and aiohttp takes less by itself
_WHOLE = 1 << 62  # larger than any range: one request for each
_CLOSE_WITHIN_S = 5.0


class AccountFilesystem(AzureBlobFileSystem):  # type: ignore[misc] # adlfs has no types
    """The file system of one account, made and shut by the process that uses it."""

    cachable = False

    def __init__(self, options: AzureOptions, access: Access) -> None:
        super(AzureBlobFileSystem, self).__init__(**RECIPE_DEFAULTS)
        trusted = trusted_certificates(options.ca_bundle)
        self.service_client, self.credential = asyncio.run_coroutine_threadsafe(
            _connected(options, access, trusted), self.loop
        ).result()
        self.secrets = access.secrets
        closing = (os.getpid(), self.loop, self.service_client, self.credential)
        self._finalizer = weakref.finalize(self, _shut, *closing)

    def shut(self) -> None:
        """Give back all connections."""
        self._finalizer()


class _WholeAnswers(AioHttpTransport):  # type: ignore[misc] # a lazy import hides its type
    """Answers are read to their end before anything looks at them: one copy, and no retries while they are read."""

    async def send(self, request: Any, **config: Any) -> Any:
        answer: Any = await super().send(request, **config | {"stream": True})
        # What is stored is wanted, not what its encoding stands for.
        answer.headers.pop("Content-Encoding", None)
        try:
            await answer.read()
        finally:
            await answer.close()
        return answer


async def _connected(
    options: AzureOptions, access: Access, trusted: ssl.SSLContext | bool
) -> tuple[BlobServiceClient, Any]:
    session = aiohttp.ClientSession(
        # One context for all connections: the SDK would read the certificates anew for each request.
        connector=aiohttp.TCPConnector(ssl=trusted),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=not options.proxy,
        read_bufsize=_READ_AHEAD,
        max_line_size=_LONGEST_HEADER,
        max_field_size=_LONGEST_HEADER,
    )
    try:
        credential = access.make_credential()
        client = BlobServiceClient(
            access.account_url,
            credential,
            transport=_WholeAnswers(
                session=session,
                connection_timeout=options.connect_timeout_s,
                read_timeout=options.read_timeout_s,
            ),
            proxies={"http": options.proxy, "https": options.proxy} if options.proxy else None,
            retry_policy=LinearRetry(retry_total=0),
            max_single_get_size=_WHOLE,
            max_chunk_get_size=_WHOLE,
            max_single_put_size=MAX_PUT_BYTES,
        )
    except BaseException:
        await session.close()
        raise
    return client, credential


def _shut(process: int, loop: asyncio.AbstractEventLoop, client: BlobServiceClient, credential: Any) -> None:
    """Close a client in the process that made it; a forked child has no loop to do it in."""
    if process != os.getpid() or loop.is_closed():
        return

    async def close() -> None:
        await client.close()
        if hasattr(credential, "close"):
            await credential.close()

    closing = asyncio.run_coroutine_threadsafe(close(), loop)
    with contextlib.suppress(RuntimeError):
        if asyncio.get_running_loop() is loop:
            return  # a wait here would be for this thread itself
    with contextlib.suppress(TimeoutError):
        closing.result(_CLOSE_WITHIN_S)
