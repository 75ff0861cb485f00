"""The client of an admin REST: what it sends and to whom, and what it makes of answers of every kind."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import pytest
from network.admin import PATH, TOKEN, AdminRest, asked, client_of, raises_without, reason
from network.fronts import NEVER_SENT, Answer, Front, json_answer, make_certificate

from offload_core.storage import pulsar_admin as client_module
from offload_hooks.errors import (
    AccessDeniedError,
    BadLengthError,
    MetadataError,
    ObjectNotFoundError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
)


@contextmanager
def raw_server(answer, *, then_wait=False, piece_s=None):
    """A socket that sends these bytes, at once or one every `piece_s`, and closes or stays silent."""
    ended = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while not ended.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                try:
                    if piece_s is None:
                        connection.sendall(answer)
                    for byte in answer if piece_s is not None else b"":
                        connection.sendall(bytes([byte]))
                        if ended.wait(piece_s):
                            break
                    if then_wait:
                        ended.wait()
                except OSError:
                    pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


# --- what is sent ------------------------------------------------------------------------------


def test_the_token_is_sent_if_there_is_one_and_the_json_is_given_back():
    with AdminRest({"/tenants": ["acme", {"a": None}]}) as rest:
        assert asked(rest.url) == ["acme", {"a": None}]
        (request,) = rest.requests
    assert (request.method, request.target) == ("GET", PATH)
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    with AdminRest({"/tenants": []}) as rest:
        assert asked(rest.url, token=None) == []
        assert "authorization" not in rest.requests[0].headers


def test_proxies_of_the_environment_get_no_request(monkeypatch):
    with AdminRest({"/tenants": []}) as rest, Front() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert asked(rest.url) == []
        assert proxy.requests == []


def test_a_server_is_verified_by_the_certificates_that_are_named(tmp_path):
    certificate, key = make_certificate(tmp_path)
    with AdminRest({"/tenants": ["acme"]}, tls=(certificate, key)) as rest:
        assert asked(rest.url, ca_bundle=certificate) == ["acme"]
        with pytest.raises(StoreError, match=r"no TLS connection.*certificate verify failed.*'ca_bundle'"):
            asked(rest.url)
        assert len(rest.requests) == 1


# --- redirects ---------------------------------------------------------------------------------


def redirect(to, status=307):
    return Answer(status=status, headers={"Location": to})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_request_is_followed_to_a_server_that_is_named(status):
    with AdminRest({"/tenants": ["acme"]}) as owner, AdminRest() as first:
        first.answers["/tenants"] = redirect(f"{owner.url}{PATH}?authoritative=true", status)
        assert asked(f"{first.url},127.0.0.1:{owner.port}/") == ["acme"]
        assert owner.requests[0].target == f"{PATH}?authoritative=true"
        assert owner.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_server_that_is_not_named_gets_no_request():
    with AdminRest({"/tenants": ["acme"]}) as other, AdminRest() as first:
        for target in (
            f"{other.url}{PATH}",
            f"//127.0.0.1:{other.port}{PATH}",
            f"http://user@127.0.0.1:{other.port}{PATH}",
            f"http://127.0.0.1:{first.port}@127.0.0.1:{other.port}{PATH}",
        ):
            first.answers["/tenants"] = redirect(target)
            with raises_without(TOKEN, StoreError, match="a server that is not named") as caught:
                asked(first.url)
            assert caught.value.found == f"http://127.0.0.1:{other.port}"
        assert other.requests == []


@pytest.mark.parametrize("target", ["", "ftp://127.0.0.1/x", "http://[", "http://127.0.0.1:99999/x"])
def test_a_redirect_to_no_place_is_an_error(target):
    with (
        AdminRest({"/tenants": redirect(target)}) as rest,
        pytest.raises(StoreError, match="sends a request on to no place"),
    ):
        asked(rest.url)


def test_redirects_in_a_circle_end():
    with AdminRest({"/tenants": redirect(PATH)}) as rest:
        with pytest.raises(StoreError, match="on and on"):
            asked(rest.url)
        assert len(rest.requests) == 6


# --- answers that are errors -------------------------------------------------------------------


def test_nothing_is_there_if_the_broker_says_so():
    with AdminRest({"/tenants": reason(404, "Namespace not found")}) as rest:
        assert asked(rest.url) is None


def test_a_404_that_no_broker_gives_is_an_error():
    for body in (b"<html>not here</html>", b"", b"[]", b'{"reason": 1}'):
        with (
            AdminRest({"/tenants": Answer(status=404, body=body)}) as rest,
            pytest.raises(StoreError, match="this is not a broker's admin REST"),
        ):
            asked(rest.url)


@pytest.mark.parametrize("status", [401, 403])
def test_what_is_refused_is_denied_and_the_token_is_not_shown(status):
    with AdminRest({"/tenants": reason(status, f"bad token {TOKEN}\x1b[2J")}) as rest:
        with raises_without(TOKEN, AccessDeniedError, match="refuses a request") as caught:
            asked(rest.url)
        assert "\x1b" not in str(caught.value)
        assert f"found {status}: bad token (the token)" in str(caught.value)
        with pytest.raises(AccessDeniedError, match="The option 'token_file' names a token"):
            asked(rest.url, token=None)


def test_what_may_help_is_tried_again_at_the_next_server():
    with AdminRest({"/tenants": reason(500, "oops")}) as first, AdminRest({"/tenants": ["acme"]}) as second:
        assert asked(f"{first.url},127.0.0.1:{second.port}") == ["acme"]
        assert (len(first.requests), len(second.requests)) == (1, 1)


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_server_that_cannot_now_is_asked_as_often_as_told(status):
    with AdminRest({"/tenants": reason(status, "not now\nat java.lang.Thread")}) as rest:
        with pytest.raises(StoreUnavailableError, match=f"found {status}: not now at java.lang.Thread"):
            asked(rest.url, attempts=2)
        assert len(rest.requests) == 2


def test_a_server_that_asks_for_too_long_a_wait_is_not_waited_for():
    answer = Answer(status=503, headers={"Retry-After": "3600"})
    with AdminRest({"/tenants": answer}) as rest:
        with pytest.raises(StoreUnavailableError) as caught:
            asked(rest.url, attempts=5)
        assert caught.value.retry_after_s == 3600
        assert len(rest.requests) == 1


def test_other_answers_are_errors_and_are_not_asked_for_again():
    for status in (204, 400, 405, 409, 412, 501):
        with AdminRest({"/tenants": Answer(status=status)}) as rest:
            with pytest.raises(StoreError, match=f"expected 200, found {status}"):
                asked(rest.url, attempts=3)
            assert len(rest.requests) == 1


# --- answers that are none ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[1, 2", b"[" * 100_000, b"9" * 100_000, b"\x1f\x8b\x08\x00"]
)
@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": "gzip"}], ids=["plain", "compressed unasked"])
def test_what_is_no_json_is_an_error_and_is_not_unpacked(body, headers):
    with (
        AdminRest({"/tenants": Answer(status=200, body=body, headers=headers)}) as rest,
        pytest.raises(MetadataError, match=f"is not JSON .*{PATH}"),
    ):
        asked(rest.url)


def test_an_answer_that_is_too_large_is_not_read_to_its_end(monkeypatch):
    monkeypatch.setattr(client_module, "MAX_ANSWER_BYTES", 1000)
    with (
        AdminRest({"/tenants": Answer(status=200, body=b" " * 1_000_000)}) as rest,
        pytest.raises(BadLengthError, match=r"too large .*at most 1000 bytes"),
    ):
        asked(rest.url)


def test_an_answer_that_is_cut_off_is_an_error():
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
    for answer in (head + b"[1", head, b"HTTP/1.1", b"", b"nonsense\r\n\r\n"):
        with raw_server(answer) as url, pytest.raises(StoreUnavailableError, match="does not answer"):
            asked(url)
    with raw_server(b"HTTP/1.1 200 OK\r\n\r\n[1") as url, pytest.raises(MetadataError, match="is not JSON"):
        asked(url)


def test_a_lost_connection_is_tried_again():
    with AdminRest() as rest:
        answers = iter([NEVER_SENT, json_answer(["acme"])])
        rest.rule = lambda _: next(answers)
        assert asked(rest.url, attempts=2) == ["acme"]


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[1"])
def test_a_server_that_falls_silent_is_not_waited_for(sent):
    with (
        raw_server(sent, then_wait=True) as url,
        pytest.raises(StoreTimeoutError, match=r"does not answer within 0\.2 s"),
    ):
        asked(url, timeout_s=0.2)


@pytest.mark.long
def test_a_server_that_never_ends_its_answer_is_not_waited_for():
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    with (
        raw_server(head + b" " * 100_000, piece_s=0.01) as url,
        pytest.raises(StoreTimeoutError, match=r"not answered as a whole within 1 s"),
    ):
        asked(url, timeout_s=1)


def test_a_server_that_is_not_there_does_not_answer():
    with Front() as gone:
        url = gone.url
    with pytest.raises(StoreUnavailableError, match=r"does not answer .*found NewConnectionError"):
        asked(url)


# --- what is put -------------------------------------------------------------------------------


@pytest.mark.parametrize(("status", "done"), [(200, True), (204, True), (409, False)])
def test_what_is_put_is_sent_as_json_and_a_conflict_is_said(status, done):
    with AdminRest({"/tenants": Answer(status=status)}) as rest, client_of(rest.url) as client:
        assert client.put(PATH, {"ledgerId": 7}) is done
    (request,) = rest.requests
    assert (request.method, request.body) == ("PUT", b'{"ledgerId": 7}')
    assert request.headers["content-type"] == "application/json"


def test_what_is_put_is_put_at_the_server_that_is_named():
    with AdminRest() as first, AdminRest({"/tenants": Answer(status=204)}) as owner:
        first.answers["/tenants"] = redirect(f"{owner.url}{PATH}")
        with client_of(f"{first.url},{owner.url.removeprefix('http://')}") as client:
            assert client.put(PATH, 1)
    assert [request.method for request in (*first.requests, *owner.requests)] == ["PUT", "PUT"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (reason(404, "Topic not found"), ObjectNotFoundError),
        (Answer(status=404), StoreError),
        (reason(403, "no"), AccessDeniedError),
        (reason(412, "no tier"), StoreError),
        (reason(503, "not now"), StoreUnavailableError),
    ],
)
def test_what_cannot_be_put_is_an_error(answer, error):
    with (
        AdminRest({"/tenants": answer}) as rest,
        client_of(rest.url, attempts=2) as client,
        pytest.raises(error) as caught,
    ):
        client.put(PATH, 1)
    assert type(caught.value) is error
    assert len(rest.requests) == (2 if error is StoreUnavailableError else 1)
