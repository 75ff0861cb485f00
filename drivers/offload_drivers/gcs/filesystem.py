"""gcsfs as the driver `gcs` uses it: its session and addresses, and requests to the JSON API of one try each.

gcsfs repeats a request up to six times and tells little of the store's answer. A changing request whose first answer
was lost would then be reported by what its second one found, and layers that retry would wait for one another. So
here a request is sent once, and its failure is a `RefusalError`. (An idempotent one is sent again by aiohttp when a
kept connection turns out to be closed, and any one with a renewed token after a 401.)

The class is gcsfs's plain one, whatever GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT says: that of the package's top asks for
each bucket's storage layout by a service of its own, which takes minutes where there is no Google.
"""

from __future__ import annotations

import asyncio
import functools
import json as json_text
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import google.auth.transport.requests
import requests
from yarl import URL

from offload_drivers.filesystems import RECIPE_DEFAULTS
from offload_drivers.gcs.credentials import make_credentials
from offload_drivers.gcs.errors import RefusalError, proxy_refusal
from offload_drivers.gcs.options import GcsOptions
from offload_drivers.server_options import check_private, trusted_certificates

with warnings.catch_warnings():
    # Google's libraries announce here, years ahead, which version of Python they will cease to support.
    warnings.simplefilter("ignore", FutureWarning)
    from gcsfs.core import GCSFileSystem

_SENT_AT_ONCE = 256 << 10
_READ_AHEAD = 1 << 20
_LONGEST_REFUSAL = 64 << 10
_CLOSE_WITHIN_S = 10.0


class OneTryFilesystem(GCSFileSystem):  # type: ignore[misc] # gcsfs has no types
    """A gcsfs file system whose requests are sent once; made by the process and closed by the one that uses it."""

    # fsspec would tell instances apart by the texts of their arguments, which lack the secrets.
    cachable = False

    def __init__(self, options: GcsOptions) -> None:
        trusted = trusted_certificates(options.ca_bundle)
        self._transport = functools.partial(_fetch, options)
        credentials = make_credentials(options, self._transport)
        super().__init__(
            token=credentials or "anon",
            endpoint_url=options.endpoint_url or None,
            requester_pays=options.user_project or False,
            session_kwargs={"auto_decompress": False, "read_bufsize": _READ_AHEAD},
            **RECIPE_DEFAULTS,
        )
        if credentials is not None:  # the environment may name an emulator
            check_private(self._location, "tokens of Google Cloud are sent", options.proxy)
        self._renewable = not (options.anonymous or options.token)
        self._renewing = asyncio.Lock()
        self._patience_s = options.read_timeout_s
        self._line = {
            "proxy": options.proxy or _proxy_of_environment(self._location),
            "ssl": trusted,
            "timeout": aiohttp.ClientTimeout(
                total=None, sock_connect=options.connect_timeout_s, sock_read=options.read_timeout_s
            ),
        }

    def shut(self) -> None:
        """Give back all connections."""
        if self._session is not None:
            asyncio.run_coroutine_threadsafe(self._session.close(), self.loop).result(_CLOSE_WITHIN_S)

    async def _request(
        self,
        method: str,
        path: str,
        *args: str,
        headers: Mapping[str, str] | None = None,
        json: object = None,
        data: Sequence[bytes | memoryview] | None = None,
        **params: object,
    ) -> tuple[int, Mapping[str, str], None, bytes]:
        """What gcsfs sends all of its requests by; `data` are buffers, sent one after the other."""
        headers = {"Accept-Encoding": "identity", **(headers or {})}
        if json is not None:
            headers["Content-Type"] = "application/json; charset=UTF-8"
            data = [json_text.dumps(json).encode()]
        async with self._answer(method, self._url(path, args, params), headers, data) as answer:
            return answer.status, answer.headers, None, await answer.read()

    async def read_media(self, bucket: str, name: str, headers: Mapping[str, str]) -> tuple[str, bytearray]:
        """The bytes of an object as they are stored, of a range if the headers have one, and its `Content-Range`."""
        url = self._url("b/{}/o/{}", (bucket, name), {"alt": "media"})
        # Whoever takes gzip is given compressed objects as they are, not unpacked, and ranges of them.
        headers = {"Accept-Encoding": "gzip", **headers}
        async with self._answer("GET", url, headers, None) as answer:
            if "Range" in headers and answer.status != 206:
                raise RefusalError(answer.status, {"Content-Type": "text/plain"}, b"the range was not heeded")
            return answer.headers.get("Content-Range", ""), await _whole_body(answer)

    def _url(self, path: str, args: Sequence[str], params: Mapping[str, object]) -> URL:
        url = URL(self._format_path(path, args), encoded=True)
        return url.update_query({name: str(value) for name, value in self._get_params(params).items()})

    @asynccontextmanager
    async def _answer(
        self, method: str, url: URL, headers: Mapping[str, str], data: Sequence[bytes | memoryview] | None
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        session = await self._set_session()
        refused = None
        while True:
            sent = dict(headers)
            token = await self._authorize(sent, refused)
            # aiohttp limits the wait for bytes that come, not for those that go.
            async with asyncio.timeout(None) as stall:
                body = None
                if data is not None:
                    sent["Content-Length"] = str(sum(memoryview(buffer).nbytes for buffer in data))
                    body = _pieces(data, stall, self._patience_s)
                try:
                    async with session.request(
                        method, url, headers=sent, data=body, allow_redirects=False, **self._line
                    ) as answer:
                        stall.reschedule(None)
                        if answer.status == 401 and self._renewable and refused is None:
                            refused = token
                            continue
                        if not 200 <= answer.status < 300:
                            text = await answer.content.read(_LONGEST_REFUSAL)
                            raise RefusalError(answer.status, answer.headers, text, secret=token)
                        yield answer
                        return
                except aiohttp.ClientHttpProxyError as error:
                    status = error.status
                raise proxy_refusal(status)

    async def _authorize(self, headers: dict[str, str], refused: str | None) -> str:
        """Put the credentials into a request's headers, with a token other than `refused`; answers the token."""
        credentials = self.credentials.credentials
        if credentials is None:
            return ""
        async with self._renewing:
            if (not credentials.valid and self._renewable) or credentials.token == refused:
                await asyncio.to_thread(credentials.refresh, self._transport)
        credentials.apply(headers)
        return str(credentials.token)


async def _pieces(
    data: Sequence[bytes | memoryview], stall: asyncio.Timeout, patience_s: float
) -> AsyncIterator[memoryview]:
    """The buffers piece by piece, each with its own time limit; nothing is copied."""
    now = asyncio.get_running_loop().time
    for buffer in data:
        view = memoryview(buffer).cast("B")
        for start in range(0, view.nbytes, _SENT_AT_ONCE):
            stall.reschedule(now() + patience_s)
            yield view[start : start + _SENT_AT_ONCE]
    stall.reschedule(None)


async def _whole_body(answer: aiohttp.ClientResponse) -> bytearray:
    body = bytearray(answer.content_length or 0)
    end = 0
    async for piece in answer.content.iter_any():
        body[end : end + len(piece)] = piece
        end += len(piece)
    del body[end:]
    return body


def _fetch(options: GcsOptions, *args: Any, **named: Any) -> Any:
    """One request of google-auth to a metadata or token server, by the same proxy and certificates as the store's."""
    with requests.Session() as session:
        session.verify = options.ca_bundle or True
        session.proxies = {"http": options.proxy, "https": options.proxy} if options.proxy else {}
        transport = google.auth.transport.requests.Request(session=session)
        return transport(*args, **{"timeout": options.read_timeout_s, **named})


def _proxy_of_environment(url: str) -> str | None:
    # Not aiohttp's trust_env, which would also look for a password of this host in ~/.netrc.
    proxies = requests.utils.get_environ_proxies(url)
    return requests.utils.select_proxy(url, proxies)
