"""A front before an emulator of Google Cloud Storage that demands tokens, and gives them.

The emulator takes any credentials, and none of Google's servers that give tokens can run here: that of OAuth and of
workload identity federation, that which gives tokens of other service accounts, a machine's metadata server. The front
plays them all, and takes only the last token that it gave.
"""

from __future__ import annotations

import json
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from http_front import Answer, Front, Request
from servers.fake_gcs import FakeGcs

SECRET = "ya29.a-recognisable-secret"
"""What all tokens begin with."""

MACHINES_ACCOUNT = "machine@project.iam.gserviceaccount.com"

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
        account = {"email": MACHINES_ACCOUNT, "scopes": [], "aliases": ["default"]}
        if name.startswith("instance/service-accounts/") and name.endswith("/token"):
            return self._token()
        if name.startswith("instance/service-accounts/"):
            return _json(account)
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
