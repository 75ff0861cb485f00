"""The proxy does what `Spoil` declares, before a real HTTP server."""

from __future__ import annotations

import contextlib
import gc
import http.client
import socket
import threading
import time

import pytest
from network.fronts import Answer, Front
from network.proxies import WHOLE, Proxy, Spoil

BODY = bytes(range(256)) * 1024


@pytest.fixture
def server():
    def answer(request):
        return Answer(status=204) if request.method == "PUT" else Answer(status=200, body=BODY)

    with Front(rule=answer) as front:
        yield front.url


def ask(proxy, method="GET", body=None, timeout=30):
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=timeout)
    try:
        connection.request(method, "/", body=body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_it_passes_on_what_it_does_not_spoil(server):
    with Proxy(server) as proxy:
        assert ask(proxy) == (200, BODY)
        assert ask(proxy, "PUT", BODY) == (204, b"")
        assert (proxy.connections, proxy.spoiled) == (2, 0)


def test_a_delay_is_added_and_nothing_is_lost(server):
    with Proxy(server, lambda _: Spoil(delay_s=0.05)) as proxy:
        began = time.monotonic()
        assert ask(proxy) == (200, BODY)
        assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (Spoil(refuse=True), ConnectionResetError),
        (Spoil(truncate_after=1000), http.client.IncompleteRead),
        (Spoil(reset_after=1000), (ConnectionResetError, http.client.IncompleteRead)),
        (Spoil(silent_after=1000), TimeoutError),
    ],
)
def test_answers_are_spoiled(server, spoil, error):
    with Proxy(server, lambda number: spoil if number == 0 else WHOLE) as proxy:
        with pytest.raises(error):
            ask(proxy, timeout=0.5)
        assert ask(proxy) == (200, BODY)
        assert proxy.spoiled == 1


def test_requests_are_spoiled(server):
    with Proxy(server, lambda _: Spoil(reset_request_after=1000)) as proxy:
        with pytest.raises(ConnectionError):
            ask(proxy, "PUT", BODY)
        assert proxy.spoiled == 1


def test_a_server_that_is_down_is_down_behind_the_proxy():
    with Proxy("http://127.0.0.1:1") as proxy, pytest.raises(ConnectionError):
        ask(proxy)


def test_connections_that_come_while_it_ends_are_closed(server):
    """A socket that is left is a warning, which fails the test."""
    ports, ended = [], threading.Event()

    def connect():
        while not ended.is_set():
            with contextlib.suppress(OSError, IndexError):
                socket.create_connection(("127.0.0.1", ports[-1]), timeout=5).close()

    callers = [threading.Thread(target=connect) for _ in range(2)]
    for caller in callers:
        caller.start()
    for _ in range(20):
        with Proxy(server, lambda _: Spoil(refuse=True)) as proxy:
            ports.append(proxy.port)
            time.sleep(0.01)
    ended.set()
    for caller in callers:
        caller.join()
    gc.collect()
