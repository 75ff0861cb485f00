"""Certificates for servers that speak TLS on loopback."""

from __future__ import annotations

import base64
import datetime
import http.client
import ipaddress
import json
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from servers.azurite import Azurite


def make_certificate(folder):
    """A certificate for loopback that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_path, key_path = folder / "certificate.pem", folder / "key.pem"
    certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return certificate_path, key_path


# --- An HTTP server before another one: it passes requests on, or answers, changes or loses them as a test sets it.
#
# It understands requests, unlike `proxy`, which counts bytes. It is a forward proxy as well: a request's target may be
# a whole URL, of which the path is passed on.


_NOT_PASSED_ON = {"connection", "expect", "proxy-authorization", "proxy-connection"}
_NOT_PASSED_BACK = {"connection", "date", "keep-alive", "server", "transfer-encoding"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as it came; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self):
        """The path, its %-escapes taken away."""
        return unquote(urlsplit(self.target).path)

    @property
    def parameters(self):
        """The parameters of the query."""
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer in place of the server's."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def json_answer(value, status=200):
    """JSON as an answer."""
    headers = {"Content-Type": "application/json"}
    return Answer(status=status, body=json.dumps(value).encode(), headers=headers)


class Lost:
    """The connection is closed without an answer."""


NEVER_SENT = Lost()
"""The server does not get the request."""
NEVER_ANSWERED = Lost()
"""The server gets the request, and its answer is dropped."""


class Front:
    """A server on a free loopback port before the one at `endpoint`, if any; with `tls`, a certificate and its key.

    Headers are passed on as they came, the host with them: a signature may cover them.

    Attributes:
        rule: what happens to a request; None passes it on.
        change: the request to pass on for a request.
        requests: those that came, in order.
    """

    def __init__(self, endpoint="", rule=lambda _: None, tls=None):
        self.rule = rule
        self.change = lambda request: request
        self.requests = []
        self._behind = urlsplit(endpoint)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self._answered))
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="http-front")

    @property
    def port(self):
        """The front's own port."""
        return self._server.server_port

    @property
    def url(self):
        """The front's own URL, with the path that the endpoint has."""
        return f"{self._scheme}://127.0.0.1:{self.port}{self._behind.path}"

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answered(self, request):
        self.requests.append(request)
        ruled = self.rule(request)
        if ruled is None or ruled is NEVER_ANSWERED:
            answer = _passed_on(self._behind, self.change(request))
        return ruled or answer


def _handler(answered):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_one_request(self):
            try:
                super().handle_one_request()
            except ConnectionError:  # the client went away, or the server is down
                self.close_connection = True

        def do(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = answered(Request(method=self.command, target=self.path, headers=headers, body=body))
            if isinstance(answer, Lost):
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            has_size = any(name.lower() == "content-length" for name in answer.headers)
            if answer.status != 204 and not has_size:
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        # The names are the library's.
        do_GET = do_HEAD = do_POST = do_DELETE = do_PUT = do_CONNECT = do  # noqa: N815

        def log_message(self, *_):
            pass

    return Handler


def _passed_on(server, request):
    if not server.hostname:
        raise ConnectionRefusedError("this front has no server")
    target = urlsplit(request.target)
    with closing(http.client.HTTPConnection(server.hostname, server.port, timeout=60)) as connection:
        path = target.path + (f"?{target.query}" if target.query else "")
        connection.putrequest(request.method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in request.headers.items():
            if name not in _NOT_PASSED_ON:
                connection.putheader(name, value)
        connection.endheaders(request.body)
        answer = connection.getresponse()
        headers = {n: v for n, v in answer.getheaders() if n.lower() not in _NOT_PASSED_BACK}
        return Answer(status=answer.status, body=answer.read(), headers=headers)


# --- A replacement for Microsoft Entra and a machine's identity service, which cannot run here; and Azurite with TLS.
#
# Tokens are what Azurite checks with `--oauth basic`: claims, no signature.


TENANT = "11111111-2222-3333-4444-555555555555"


class SecureAzurite(Azurite):
    """Azurite with https, which takes the tokens of identities."""

    def __init__(self, certificate, key):
        super().__init__()
        self._tls = ["--cert", str(certificate), "--key", str(key), "--oauth", "basic"]
        self._trust = ssl.create_default_context(cafile=str(certificate))

    def command(self):
        return super().command() + self._tls

    @property
    def endpoint(self):
        return super().endpoint.replace("http://", "https://")

    @property
    def connection_string(self):
        return super().connection_string.replace("Protocol=http;", "Protocol=https;")

    def is_ready(self):
        connection = http.client.HTTPSConnection(self.host, self.port, timeout=5, context=self._trust)
        with suppress(OSError), closing(connection):
            connection.request("GET", "/")
            connection.getresponse().read()
            return True
        return False


class Identities:
    """Gives tokens for a client's secret or a workload's assertion (https), and to a managed identity (http).

    Attributes:
        asked: what was sent for each token, by name.
        client_secret: the secret that is accepted.
        lifetime_s: how long tokens say that they last.
    """

    client_secret = "a-client-secret-nobody-may-see"
    lifetime_s = 3600

    def __init__(self, certificate, key):
        self.asked = []
        self._secure = Front(rule=self._answer, tls=(certificate, key))
        self._plain = Front(rule=self._answer)

    @property
    def authority(self):
        """The value of AZURE_AUTHORITY_HOST."""
        return self._secure.url

    @property
    def machine_endpoint(self):
        """The value of IDENTITY_ENDPOINT."""
        return f"{self._plain.url}/msi"

    def __enter__(self):
        self._fronts = ExitStack()
        for front in (self._secure, self._plain):
            self._fronts.enter_context(front)
        return self

    def __exit__(self, *_):
        self._fronts.close()

    def token(self):
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

    def _answer(self, request):
        if request.method == "GET":
            self.asked.append(request.parameters | {"header": request.headers.get("x-identity-header", "")})
            until = {"expires_on": str(int(time.time()) + self.lifetime_s)}
            about = {"resource": "https://storage.azure.com"}
        else:
            form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
            self.asked.append({"path": request.path, **form})
            if form.get("client_secret", self.client_secret) != self.client_secret:
                refused = {"error": "invalid_client", "error_description": "AADSTS7000215"}
                return json_answer(refused, 401)
            until, about = {"expires_in": self.lifetime_s}, {}
        return json_answer({"access_token": self.token(), "token_type": "Bearer", **until, **about})


def _base64url(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
