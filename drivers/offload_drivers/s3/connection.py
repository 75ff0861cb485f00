"""Requests to S3 from any thread and process: s3fs, its aiobotocore client and its event loop.

Each call is one request. Whatever a library raises comes out as it is, for `errors` to translate.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from functools import partial
from typing import Any

import s3fs

from offload_drivers.filesystems import RECIPE_DEFAULTS, ProcessFilesystem
from offload_drivers.s3.body import BlockBody, sign_bodies, watched
from offload_drivers.s3.credentials import make_session, network_config
from offload_drivers.s3.options import S3Options
from offload_hooks import ReadableBuffer

_CLOSE_WITHIN_S = 10.0


class S3Connection:
    """One s3fs file system for each process, made at its first use there."""

    def __init__(self, options: S3Options) -> None:
        self._options = options
        self.files = ProcessFilesystem(partial(_make_filesystem, options), _close_filesystem)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of botocore's S3 client on the tier's bucket; its answer."""
        return self.files.run(self._call, method, parameters)

    def send(self, method: str, data: ReadableBuffer, **parameters: Any) -> dict[str, Any]:
        """As `call`, with `data` as the body, and its checksum if there is to be one; it is not kept."""
        body = BlockBody(data, signed=self._signs_payload())
        try:
            if self._options.checksum == "crc32":
                parameters["ChecksumCRC32"] = body.crc32()
            return self.files.run(self._send, method, body, parameters)
        finally:
            body.release()

    async def client(self) -> Any:
        """This process's client; to be awaited on the file system's loop."""
        return await self.files.get().set_session()

    async def read(self, name: str, offset: int, length: int) -> tuple[bytes, dict[str, Any]]:
        """At most `length` bytes of an object from an offset, and the answer that they came with; on the loop."""
        answer = await self._call(
            "get_object", {"Key": name, "Range": f"bytes={offset}-{offset + length - 1}"}
        )
        async with answer["Body"] as body:
            return await body.read(), answer

    async def credentials(self) -> Any:
        """Credentials that are valid now, None if there are none; on the loop."""
        await self.client()
        found = await self.files.get().session.get_credentials()
        return None if found is None else await found.get_frozen_credentials()

    def close(self) -> None:
        """Give back this process's connections; a later use makes new ones."""
        self.files.close()

    def _signs_payload(self) -> bool:
        """True if signatures cover the bytes that are written, and not only the headers, their checksum among them."""
        if self._options.payload_signing != "auto":
            return self._options.payload_signing == "always"
        return self._options.checksum == "none" or not self.files.run(self._is_private)

    async def _is_private(self) -> bool:
        # The endpoint may be the environment's or the profile's.
        return (await self.client()).meta.endpoint_url.startswith("https:")  # type: ignore[no-any-return]

    async def _call(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        client = await self.client()
        return await getattr(client, method)(Bucket=self._options.bucket, **parameters)  # type: ignore[no-any-return]

    async def _send(self, method: str, body: BlockBody, parameters: dict[str, Any]) -> dict[str, Any]:
        request = self._call(method, {**parameters, "Body": body})
        return await watched(request, body, self._options.read_timeout_s)  # type: ignore[no-any-return]


def _make_filesystem(options: S3Options) -> Any:
    session = make_session(options)
    sign_bodies(session)
    session.register("before-call.s3.DeleteObjects", _add_content_md5)
    config = network_config(options) | {
        "max_pool_connections": options.max_connections,
        "user_agent_extra": "pulsar-offload",
        # No checksums of botocore's: of what is written it would compute them on the event loop, and of what is read,
        # entries have their own CRC-32C.
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }
    if options.addressing_style != "auto":
        config["s3"] = {"addressing_style": options.addressing_style}
    client = {"region_name": options.region, "verify": options.ca_bundle}
    return s3fs.S3FileSystem(
        anon=options.anonymous,
        endpoint_url=options.endpoint_url or None,
        session=session,
        client_kwargs={name: value for name, value in client.items() if value},
        config_kwargs=config,
        **RECIPE_DEFAULTS,
    )


def _close_filesystem(filesystem: Any) -> None:
    client = filesystem._s3  # None as long as nothing was asked; there is no public way to tell
    if client is not None:
        asyncio.run_coroutine_threadsafe(client.close(), filesystem.loop).result(_CLOSE_WITHIN_S)


def _add_content_md5(params: Any, **_: Any) -> None:
    # This request must have a checksum, and the one that botocore adds is unknown to many servers besides Amazon's.
    digest = hashlib.md5(params["body"], usedforsecurity=False).digest()
    params["headers"]["Content-MD5"] = base64.b64encode(digest).decode()
