"""Connections that say nothing, say it slowly or say nonsense: they end, and the service answers others meanwhile."""

import asyncio
import contextlib
import http.client
import json
import resource
import signal
import socket
import ssl
import struct
import threading
import time

import jwt
import psutil
import pytest
from commands import configuration_file, opened_service
from network.fronts import make_certificate
from prometheus_client import CollectorRegistry
from service import BUCKET, DRIVER, ENDPOINT, EXTRA, KEY, SilentServer, TenantService, bearer
from waiting import wait_for

from offload_core.interfaces.service.request_guards import RequestMetrics, Watch
from offload_core.interfaces.service.server import most_connections
from offload_core.writing.managed_ledger import open_managed_ledger

HEALTH = "/admin/v2/brokers/health"
REQUEST = b"GET /admin/v2/brokers/health HTTP/1.1\r\nHost: 127.0.0.1\r\n"
TIMEOUT_S = 2.0
MOST = 50


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    limits = f"request_timeout_s = {TIMEOUT_S}\nmax_connections = {MOST}"
    with TenantService(tmp_path_factory.mktemp("connections"), service=limits) as running:
        yield running


def connected(service):
    return socket.create_connection(("127.0.0.1", service.port), timeout=30)


def answer_of(connection):
    """All that a connection is told until it is closed; nothing where it is cut off."""
    told = b""
    with contextlib.suppress(ConnectionError):
        while more := connection.recv(1 << 16):
            told += more
    return told


def health_s(service):
    began = time.monotonic()
    assert service.ask("GET", HEALTH).text == "ok"
    return time.monotonic() - began


@pytest.mark.long
def test_a_request_that_does_not_come_whole_ends_its_connection(service):
    header, body = REQUEST + b"X-Slow: ", REQUEST + b"Content-Length: 5\r\nX: y"
    began = time.monotonic()
    with contextlib.ExitStack() as opened:
        connections = {
            first: opened.enter_context(connected(service))
            for first in (b"", b"G", REQUEST, header, body, b"\x16\x03\x01\x02")
        }
        for first, connection in connections.items():
            connection.sendall(first)
        for first, connection in connections.items():
            assert b" 200 " not in answer_of(connection), first
    assert time.monotonic() - began < TIMEOUT_S + 10


@pytest.mark.long
def test_bytes_that_come_slowly_give_no_more_time(service):
    for request in (
        REQUEST + b"X-Slow: ",
        b"POST /nothing HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
    ):
        began = time.monotonic()
        with connected(service) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(request)
            connection.settimeout(0.1)
            while time.monotonic() - began < 60:
                connection.sendall(b"a" if b"X-Slow" in request else b"1\r\na\r\n")
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(1 << 16):
                        break
        assert time.monotonic() - began < TIMEOUT_S + 10


@pytest.mark.long
def test_a_connection_is_kept_for_several_requests_and_then_closed(service):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    for _ in range(3):
        connection.request("GET", HEALTH)
        assert connection.getresponse().read() == b"ok"
    assert answer_of(connection.sock) == b""
    connection.close()


def test_connections_that_say_nothing_make_room_for_one_that_does(service):
    with contextlib.ExitStack() as opened:
        for _ in range(4 * MOST):
            opened.enter_context(connected(service))
        assert health_s(service) < 1
        assert service.open_descriptors() < 2 * MOST + 50
    assert health_s(service) < 1


def test_there_are_never_more_connections_than_half_of_the_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        assert (most_connections(None), most_connections(10), most_connections(10_000)) == (128, 10, 128)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.long
@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (REQUEST + b"X: " + b"a" * 100_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * 100_000, 400),
        (b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 401),
        (REQUEST + b"X: y\r\n" * 10_000 + b"\r\n", 431),
        (b"GET " + HEALTH.encode() + b" HTTP/1.0\r\n\r\n", 200),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 401),
        (b"nonsense\r\n\r\n", 400),
        (b"\x00\xff\r\n\r\n", 400),
        (b"GET " + HEALTH.encode() + b" HTTP/1.1\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 401),
        (b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 401),
        (REQUEST + b"Connection: upgrade, close\r\nUpgrade: websocket\r\n\r\n", 200),
        (REQUEST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (REQUEST + b"Content-Length: -1\r\n\r\n", 400),
        (REQUEST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", 400),
        (REQUEST + b"Transfer-Encoding: chunked\r\n\r\nz\r\n", 400),
        (REQUEST + b"Connection: close\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n", 200),
    ],
    ids=range(17),
)
def test_what_is_no_request_is_answered_or_cut_off(service, sent, status):
    with connected(service) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
        told = answer_of(connection)
    assert not told or int(told.split()[1]) in {status, 400 if status == 431 else status}, told
    assert health_s(service) < 1


def test_a_long_url_and_many_headers_are_refused(service):
    namespaces, given = "/admin/v2/namespaces/acme", bearer("acme-admin")
    many = {f"X-{number}": "y" for number in range(120)}
    assert service.ask("GET", f"{namespaces}/{'n' * 9000}", headers=given).status == 414
    assert service.ask("GET", namespaces, headers=given | many).status == 431


def test_requests_one_after_another_without_waiting_are_all_answered(service):
    with connected(service) as connection:
        connection.sendall((REQUEST + b"\r\n") * 300 + REQUEST + b"Connection: close\r\n\r\n")
        assert answer_of(connection).count(b"HTTP/1.1 200 OK") == 301


@pytest.mark.long
def test_answers_that_nobody_takes_end_their_connection(service):
    began = time.monotonic()
    request = f"GET /metrics HTTP/1.1\r\nHost: h\r\nAuthorization: {bearer('admin')['Authorization']}\r\n\r\n"
    with connected(service) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(0.2)
        while time.monotonic() - began < 150:
            try:
                connection.sendall(request.encode() * 100)
            except TimeoutError:
                continue
            except ConnectionError:
                break
    assert time.monotonic() - began < 120  # some 35 s, where the service is not busy until then
    assert health_s(service) < 1


def test_a_large_answer_is_sent_in_pieces_each_after_the_one_before():
    body, sent = b"x" * 1_000_000, []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def take(message):
        sent.append(message)

    watch = Watch(app, RequestMetrics(CollectorRegistry()))
    asyncio.run(watch({"type": "http", "method": "GET", "path": "/"}, None, take))
    pieces = [each["body"] for each in sent[1:]]
    assert b"".join(pieces) == body
    assert max(map(len, pieces)) <= 64 << 10
    assert [each.get("more_body", False) for each in sent[1:]] == [True] * (len(pieces) - 1) + [False]


def test_who_asks_for_the_page_and_takes_none_of_it_costs_little(service):
    """It needs no token."""
    assert service.ask("GET", "/ui").status == 200
    before = service.resident_mib()
    with contextlib.ExitStack() as opened:
        for _ in range(MOST - 10):
            connection = opened.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(30)
            connection.connect(("127.0.0.1", service.port))
            connection.sendall(b"GET /ui HTTP/1.1\r\nHost: h\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 ")
        assert service.resident_mib() - before < 40
        assert health_s(service) < 1


@pytest.mark.long
def test_an_answer_that_is_taken_slowly_ends_its_connection(service):
    """What the kernel has of it is still sent; the service is rid of it."""
    large = {"managedLedgerOffloadDriver": "aws-s3", "unknownField": "x" * 1_000_000}
    assert service.set("admin", "acme/large", large).status == 204
    began = time.monotonic()
    with connected(service) as connection:
        port = connection.getsockname()[1]

        def is_held():
            held = psutil.Process(service.pid).net_connections("tcp")
            return any(each.raddr and each.raddr.port == port for each in held)

        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        authorization = f"Authorization: {bearer('admin')['Authorization']}"
        path = "/admin/v2/namespaces/acme/large/offloadPolicies"
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\n{authorization}\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        assert is_held()

        def is_rid_of_it():
            connection.recv(1 << 14)
            return not is_held()

        wait_for(is_rid_of_it)
    assert time.monotonic() - began < TIMEOUT_S + 10


@pytest.mark.long
def test_a_body_without_an_end_ends_its_connection(service):
    headers = f"Authorization: {bearer('acme-admin')['Authorization']}\r\nContent-Type: application/json\r\n"
    head = f"POST /admin/v2/namespaces/acme/n/offloadPolicies HTTP/1.1\r\nHost: h\r\n{headers}"
    began, sent = time.monotonic(), 0
    with connected(service) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        while time.monotonic() - began < 60:
            connection.sendall(b"10000\r\n" + b"a" * 0x10000 + b"\r\n")
            sent += 0x10000
    assert time.monotonic() - began < TIMEOUT_S + 10
    assert service.resident_mib() < 600


@pytest.mark.parametrize("how", [socket.SHUT_RD, socket.SHUT_WR, "reset"])
def test_sockets_that_are_closed_by_half_leave_nothing_behind(service, how):
    before = service.open_descriptors()
    for _ in range(20):
        connection = connected(service)
        connection.sendall(REQUEST)
        if how == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            connection.shutdown(how)
        if how == socket.SHUT_WR:
            answer_of(connection)
        connection.close()
    wait_for(lambda: service.open_descriptors() <= before + 2, TIMEOUT_S + 10)


@pytest.mark.long
def test_the_time_for_a_request_begins_before_the_tls_handshake(tmp_path):
    tls, timeout_s = make_certificate(tmp_path), 6.0
    limits = f"request_timeout_s = {timeout_s}\nmax_connections = {MOST}"
    with (
        TenantService(tmp_path, service=limits, certificate=tls) as service,
        contextlib.ExitStack() as opened,
    ):
        began = time.monotonic()
        with connected(service) as half:
            half.sendall(b"\x16\x03\x01\x02\x00")
            assert answer_of(half) == b""
        assert time.monotonic() - began < timeout_s + 10
        for _ in range(4 * MOST):
            opened.enter_context(connected(service))
        assert health_s(service) < timeout_s / 2
        context = ssl.create_default_context(cafile=str(tls[0]))
        with context.wrap_socket(connected(service), server_hostname="127.0.0.1") as silent:
            assert answer_of(silent) == b""


# --- tokens ------------------------------------------------------------------------------------


def _token(header, claims):
    parts = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in (header, claims)]
    text = b".".join(jwt.utils.base64url_encode(part) for part in parts)
    signature = jwt.get_algorithm_by_name("HS256").sign(text, KEY)
    return (text + b"." + jwt.utils.base64url_encode(signature)).decode()


HS256 = {"alg": "HS256", "typ": "JWT"}


@pytest.mark.parametrize(
    "token",
    [
        _token({"alg": "none"}, {"sub": "admin"}),
        _token({"alg": ["HS256"]}, {"sub": "admin"}),
        _token({"alg": {}}, {"sub": "admin"}),
        _token({}, {"sub": "admin"}),
        _token([], {"sub": "admin"}),
        _token(b"[" * 5_000, {"sub": "admin"}),
        _token(HS256 | {"crit": ["x"]}, {"sub": "admin"}),
        _token(HS256 | {"b64": False}, {"sub": "admin"}),
        _token(HS256 | {"kid": 7}, {"sub": "admin"}),
        _token(HS256, []),
        _token(HS256, b"[" * 5_000),
        _token(HS256, b'{"sub": "admin", "exp": ' + b"9" * 5_000 + b"}"),
        _token(HS256, b'{"sub": "admin", "exp": 1e999}'),
        _token(HS256, b'{"sub": "admin", "exp": NaN}'),
        _token(HS256, {"sub": "admin", "exp": {}}),
        _token(HS256, {"sub": "admin", "exp": []}),
        _token(HS256, {"sub": "admin", "nbf": "soon"}),
        _token(HS256, {"sub": {"admin": 1}}),
        _token(HS256, {"sub": [["admin"]]}),
        _token(HS256, {"sub": []}),
        _token(HS256, {"sub": None}),
        _token(HS256, {"sub": "admin", "padding": "x" * 9_000}),
        "é.é.é",
        "..",
        "a" * 8_000,
    ],
    ids=range(25),
)
def test_a_token_that_is_strange_is_not_good(service, token):
    told = service.ask("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
    assert told.status == 401, told.text


# --- slow stores -------------------------------------------------------------------------------


SOON_S = 10
"""A busy machine's moment. What waited for the store would wait for ever."""


def slow_requests(service, topics, statuses):
    """Ask for schemas that lie in a store which never answers."""

    def ask(topic):
        connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
        with contextlib.suppress(OSError):
            connection.request("GET", f"/admin/v2/schemas/{topic}/schema", headers=bearer("acme-admin"))
            answer = connection.getresponse()
            statuses.append(answer.status)
            assert answer.status != 429 or answer.getheader("Retry-After") == "1"
        connection.close()

    threads = [threading.Thread(target=ask, args=(topic,), daemon=True) for topic in topics]
    for each in threads:
        each.start()
    return threads


def offload_beside_a_store_that_never_answers(folder, *, idle, slow, limits):
    """Another tenant's offload comes to its end beside a store that never answers, silence and slow headers."""
    configuration = configuration_file(folder)
    settings = configuration.read_text().partition("[hot_tier.options]")
    with SilentServer() as hole:
        places = f"""
[[service.tenant_places]]
driver = "gcs"
endpoint = "{hole.url}"
bucket = "bbb"
"""
        service = TenantService(folder, places + settings[1] + settings[2], service=limits)
        with opened_service(service.config) as (environment, _):
            for name in [*(f"acme/n/persistent/t{number}" for number in range(6)), "zeta/n/persistent/t"]:
                with open_managed_ledger(environment, name) as ledger:
                    ledger.add_entries([b"payload %d" % number for number in range(5)])
        with service, contextlib.ExitStack() as opened:
            silent = {DRIVER: "gcs", ENDPOINT: hole.url, BUCKET: "bbb", EXTRA: {"anonymous": "true"}}
            assert service.set("acme-admin", "acme/n", silent).status == 204
            for number in range(6):
                path = f"/admin/v2/persistent/acme/n/t{number}/offload"
                message = {"ledgerId": 10**9, "entryId": 0, "partitionIndex": -1}
                assert service.ask("PUT", path, message, headers=bearer("acme-admin")).status in (204, 409)
            statuses = []
            slow_requests(service, [f"acme/n/t{number}" for number in range(45)], statuses)
            wait_for(lambda: statuses.count(429) >= 45 - 8)
            for number in range(idle):
                connection = opened.enter_context(connected(service))
                if number < slow:
                    with contextlib.suppress(OSError):
                        connection.sendall(REQUEST + b"X-Slow: a")
            assert health_s(service) < SOON_S
            began = time.monotonic()
            metrics = service.ask("GET", "/metrics", headers=bearer("admin"))
            assert (metrics.status, time.monotonic() - began < SOON_S) == (200, True)
            path = "/admin/v2/persistent/zeta/n/t/offload"
            message = {"ledgerId": 10**9, "entryId": 0, "partitionIndex": -1}
            assert service.ask("PUT", path, message, headers=bearer("zeta-admin")).status in (204, 409)

            def is_done():
                assert health_s(service) < SOON_S
                told = service.ask("GET", path, headers=bearer("zeta-admin")).json
                return bool(told["status"] == "SUCCESS")

            wait_for(is_done)
            info = service.get("zeta-admin", "zeta/n/t", "internal-info").json
            assert info["ledgers"][0]["isOffloaded"]
            service.end(signal.SIGKILL)  # it would wait for what the silent store holds up


@pytest.mark.long
def test_a_slow_store_of_a_tenant_stops_neither_health_nor_another_tenants_offload(tmp_path):
    limits = "max_connections = 100\nupkeep_interval_s = 0.2"
    offload_beside_a_store_that_never_answers(tmp_path, idle=200, slow=50, limits=limits)


@pytest.mark.nightly
def test_two_thousand_connections_and_a_slow_store_stop_neither_health_nor_an_offload(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    try:
        offload_beside_a_store_that_never_answers(
            tmp_path, idle=2000, slow=500, limits="upkeep_interval_s = 0.2"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
