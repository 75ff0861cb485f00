"""A tier in a bucket of Google Cloud Storage for tests of the driver `gcs`, and the same bucket by REST requests."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from typing import Any
from urllib.parse import quote, urlencode

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from network.fronts import Answer, Front, Request
from servers.fake_gcs import FakeGcs
from servers.process import http_answer

from offload_drivers.gcs import GcsDriver

PREFIX = "some/tier"

_numbers = itertools.count()


def new_bucket(server: FakeGcs) -> str:
    """An empty bucket of the test's own."""
    return server.make_bucket(f"gcs-tests-{os.getpid()}-{next(_numbers)}")


def opened(**options: Any) -> AbstractContextManager[GcsDriver]:
    """A driver that is closed in the end."""
    return closing(GcsDriver(**options))


class Rest:
    """The tier in a bucket, by requests to the JSON API; each on a connection of its own, from any thread."""

    def __init__(self, server: FakeGcs, bucket: str) -> None:
        self.bucket = bucket
        self._netloc = f"{server.host}:{server.port}"

    def put(
        self, key: str, data: bytes, user_metadata: Mapping[str, str] = {}, content_type: str = "a/b"
    ) -> dict[str, Any]:
        """Store an object; return its metadata by the store."""
        resource = {"name": f"{PREFIX}/{key}", "contentType": content_type, "metadata": dict(user_metadata)}
        head = f"--x\r\nContent-Type: application/json\r\n\r\n{json.dumps(resource)}\r\n"
        body = f"{head}--x\r\nContent-Type: {content_type}\r\n\r\n".encode() + data + b"\r\n--x--\r\n"
        headers = {"Content-Type": "multipart/related; boundary=x"}
        path = f"/upload/storage/v1/b/{self.bucket}/o?uploadType=multipart"
        status, answer = self._ask("POST", path, body, headers)
        assert status == 200, answer
        return json.loads(answer)

    def get(self, key: str) -> bytes | None:
        """An object's bytes, if there is one."""
        status, body = self._ask("GET", f"{self._path(key)}?alt=media")
        assert status in (200, 404), body
        return body if status == 200 else None

    def resource(self, key: str) -> dict[str, Any]:
        """The metadata of an object by the store."""
        status, body = self._ask("GET", self._path(key))
        assert status == 200, body
        return json.loads(body)

    def delete(self, key: str) -> None:
        """Remove an object."""
        status, body = self._ask("DELETE", self._path(key))
        assert status in (200, 204), body

    def keys(self) -> set[str]:
        """All names in the bucket, without the prefix."""
        return {found["name"].removeprefix(f"{PREFIX}/") for found in self.listed()}

    def staged(self) -> dict[str, int]:
        """The sizes of what is staged of uploads, by their names in the driver's own folder."""
        folder = f"{PREFIX}/.offload-uploads/"
        return {
            found["name"].removeprefix(folder): int(found["size"])
            for found in self.listed()
            if found["name"].startswith(folder)
        }

    def listed(self) -> list[dict[str, Any]]:
        """The metadata of all objects by the store."""
        found: list[dict[str, Any]] = []
        token: dict[str, str] = {}
        while True:
            status, body = self._ask("GET", f"/storage/v1/b/{self.bucket}/o?{urlencode(token)}")
            assert status == 200, body
            page = json.loads(body)
            found += page.get("items", [])
            if not page.get("nextPageToken"):
                return found
            token = {"pageToken": page["nextPageToken"]}

    def _path(self, key: str) -> str:
        return f"/storage/v1/b/{self.bucket}/o/{quote(f'{PREFIX}/{key}', safe='')}"

    def _ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = {}
    ) -> tuple[int, bytes]:
        status, _, answer = http_answer(self._netloc, method, path, body, headers)
        return status, answer


# --- A front before an emulator of Google Cloud Storage that demands tokens, and gives them.
#
# The emulator takes any credentials, and none of Google's servers that give tokens can run here: that of OAuth and of
# workload identity federation, that which gives tokens of other service accounts, a machine's metadata server. The
# front plays them all, and takes only the last token that it gave.


SECRET = "ya29.a-recognisable-secret"
"""The prefix of all tokens."""

_METADATA = "/computeMetadata/v1/"


class Google(Front):
    """The front; its URL is that of the store and of all the others.

    Attributes:
        given: how many tokens were given.
        lifetime_s: how long they say that they last.
        token_answer: what is answered instead of a token.
    """

    def __init__(self, server: FakeGcs) -> None:
        super().__init__(server.endpoint, self.judge)
        self.given = 0
        self.lifetime_s = 3600
        self.token_answer: Answer | None = None

    @property
    def token(self) -> str:
        """The last token that was given."""
        return f"{SECRET}-{self.given}"

    def judge(self, request: Request) -> Answer | None:
        """Give a token, or refuse a request without one."""
        if request.path == "/token":
            return self.token_answer or self._token()
        if request.path == "/" or request.path.startswith(_METADATA):
            return self._metadata(request.path.removeprefix(_METADATA))
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return Answer(status=401, body=b'{"error": {"code": 401, "message": "Invalid Credentials"}}')
        if request.path.endswith(":generateAccessToken"):
            self.given += 1
            return _json({"accessToken": self.token, "expireTime": "2999-01-01T00:00:00Z"})
        return None

    def service_account_key(self, private_key: RSAPrivateKey) -> str:
        """A service account's key, as Google hands it out."""
        return json.dumps(
            {
                "type": "service_account",
                "client_email": "writer@project.iam.gserviceaccount.com",
                "token_uri": f"{self.url}/token",
                "private_key": pem(private_key),
            }
        )

    def _token(self) -> Answer:
        self.given += 1
        kind = {"token_type": "Bearer", "issued_token_type": "urn:ietf:params:oauth:token-type:access_token"}
        return _json({"access_token": self.token, "expires_in": self.lifetime_s, **kind})

    def _metadata(self, name: str) -> Answer:
        if name.startswith("instance/service-accounts/") and name.endswith("/token"):
            return self._token()
        if name.startswith("instance/service-accounts/"):
            account = "machine@project.iam.gserviceaccount.com"
            return _json({"email": account, "scopes": [], "aliases": ["default"]})
        headers = {"Content-Type": "application/text", "Metadata-Flavor": "Google"}
        return Answer(
            status=200, body=b"googleapis.com" if "universe" in name else b"project", headers=headers
        )


def pem(private_key: RSAPrivateKey) -> str:
    """A private key as text."""
    return private_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _json(value: dict[str, Any]) -> Answer:
    headers = {"Content-Type": "application/json", "Metadata-Flavor": "Google"}
    return Answer(status=200, body=json.dumps(value).encode(), headers=headers)
