"""What stands in for Microsoft Entra and a machine's identity service, which cannot run here; and Azurite with TLS.

Tokens are what Azurite checks with `--oauth basic`: claims, no signature.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from servers.azurite import Azurite

TENANT = "11111111-2222-3333-4444-555555555555"


class SecureAzurite(Azurite):
    """Azurite with https, which takes the tokens of identities."""

    def __init__(self, certificate: Path, key: Path) -> None:
        super().__init__()
        self._tls = ["--cert", str(certificate), "--key", str(key), "--oauth", "basic"]
        self._trust = ssl.create_default_context(cafile=str(certificate))

    def command(self) -> list[str]:
        return super().command() + self._tls

    @property
    def endpoint(self) -> str:
        return super().endpoint.replace("http://", "https://")

    @property
    def connection_string(self) -> str:
        return super().connection_string.replace("Protocol=http;", "Protocol=https;")

    def is_ready(self) -> bool:
        import http.client

        connection = http.client.HTTPSConnection(self.host, self.port, timeout=5, context=self._trust)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except OSError:
            return False
        finally:
            connection.close()
        return True


class Identities:
    """Gives tokens for a client's secret or a workload's assertion (https), and to a managed identity (http).

    Attributes:
        asked: what was sent for each token, by name.
        client_secret: the secret that is accepted.
        lifetime_s: how long tokens say that they last.
    """

    client_secret = "a-client-secret-nobody-may-see"
    lifetime_s = 3600

    def __init__(self, certificate: Path, key: Path) -> None:
        self.asked: list[dict[str, str]] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._secure = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._secure.socket = context.wrap_socket(self._secure.socket, server_side=True)
        self._plain = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._threads = []
        for server in (self._secure, self._plain):
            server.daemon_threads = True
            self._threads.append(threading.Thread(target=server.serve_forever, args=(0.05,)))
            self._threads[-1].start()

    @property
    def authority(self) -> str:
        """What AZURE_AUTHORITY_HOST is to be."""
        return f"https://127.0.0.1:{self._secure.server_port}"

    @property
    def machine_endpoint(self) -> str:
        """What IDENTITY_ENDPOINT is to be."""
        return f"http://127.0.0.1:{self._plain.server_port}/msi"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in (self._secure, self._plain):
            server.shutdown()
            server.server_close()
        for thread in self._threads:
            thread.join()

    def _token(self) -> str:
        now = int(time.time())
        claims = {
            "aud": "https://storage.azure.com",
            "iss": f"https://sts.windows.net/{TENANT}/",
            "iat": now - 60,
            "nbf": now - 60,
            "exp": now + 3600,
        }
        parts = ({"alg": "none", "typ": "JWT"}, claims)
        return ".".join(
            [*(_base64url(json.dumps(part).encode()) for part in parts), _base64url(b"signature")]
        )

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        identities = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                identities.asked.append({"path": urlsplit(self.path).path, **form})
                if form.get("client_secret", identities.client_secret) != identities.client_secret:
                    self._answer(401, {"error": "invalid_client", "error_description": "AADSTS7000215"})
                    return
                token = {"access_token": identities._token(), "expires_in": identities.lifetime_s}
                self._answer(200, token | {"token_type": "Bearer"})

            def do_GET(self) -> None:
                query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
                identities.asked.append(query | {"header": self.headers.get("X-IDENTITY-HEADER", "")})
                expires_on = str(int(time.time()) + identities.lifetime_s)
                token = {
                    "access_token": identities._token(),
                    "expires_on": expires_on,
                    "token_type": "Bearer",
                }
                self._answer(200, token | {"resource": "https://storage.azure.com"})

            def _answer(self, status: int, answer: object) -> None:
                data = json.dumps(answer).encode()
                self.send_response_only(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        return Handler


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
