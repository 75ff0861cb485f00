"""What the driver `gcs` makes of the store's answers, and of none, where the emulator would not give them."""

from __future__ import annotations

import json
import socket
from functools import partial

import pytest
from gcs import opened
from network.admin import raises_without
from network.fronts import NEVER_SENT, Answer, Front
from servers.process import free_port

from offload_drivers.gcs.errors import RefusalError, translated
from offload_hooks import ByteRange
from offload_hooks.errors import (
    AccessDeniedError,
    ObjectExistsError,
    ObjectNotFoundError,
    OffloadError,
    RangeError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
    StoreUnreachableError,
)

SECRET = "ya29.a-recognisable-secret"
raises = partial(raises_without, SECRET)


def refusal(status, message="", reason="", **headers):
    error = {"code": status, "message": message, "errors": [{"reason": reason, "message": message}]}
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, body=json.dumps({"error": error}).encode(), headers=headers)


@pytest.fixture
def front():
    with Front() as front:
        yield front


@pytest.fixture
def driver(front):
    with opened(bucket="b", endpoint_url=front.url, token=SECRET) as driver:
        yield driver


@pytest.fixture
def unanswered():
    """A driver of a server that neither reads nor answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with opened(bucket="b", endpoint_url=url, token=SECRET, read_timeout_s=0.2) as driver:
            yield driver


# --- answers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (refusal(400, "Invalid argument."), StoreError, "status 400: Invalid argument"),
        (refusal(400, "Provided CRC32C does not match."), StoreUnavailableError, "damaged"),
        (refusal(400, "Bucket is requester pays bucket"), StoreError, "user_project"),
        (refusal(401, f"Invalid Credentials {SECRET}"), AccessDeniedError, "not accepted.*(secret)"),
        (
            refusal(403, "x@y does not have storage.objects.get access"),
            AccessDeniedError,
            "storage.objects.get",
        ),
        (refusal(403, "Slow down", "rateLimitExceeded"), StoreUnavailableError, "Slow down"),
        (refusal(404, "No such object: b/k"), ObjectNotFoundError, "no such object in the bucket 'b'"),
        (refusal(404, "The specified bucket does not exist."), ObjectNotFoundError, "no bucket 'b'"),
        (refusal(407), AccessDeniedError, "status 407"),
        (refusal(408, "Took too long"), StoreTimeoutError, "status 408"),
        (refusal(409, "Conflict"), StoreError, "status 409"),
        (refusal(412, "Precondition"), ObjectExistsError, "already"),
        (refusal(429, "Rate"), StoreUnavailableError, "status 429"),
        (refusal(500), StoreUnavailableError, "status 500"),
        (refusal(503, "Busy"), StoreUnavailableError, "status 503"),
        (refusal(504), StoreTimeoutError, "status 504"),
        (Answer(status=302, headers={"Location": "http://127.0.0.1:1/"}), StoreError, "status 302"),
        (Answer(status=200, body=b"<html>"), StoreError, "not that of Google"),
        (Answer(status=200, body=b"[]"), StoreError, "not that of Google"),
        (Answer(status=200, body=b'{"name": "k"}'), StoreError, "not that of Google"),
        (Answer(status=502, body=f"<html>{SECRET}".encode()), StoreUnavailableError, "status 502"),
    ],
)
def test_answers_are_translated(driver, front, answer, kind, text):
    front.rule = lambda _: answer
    with raises(kind, text) as caught:
        driver.stat("k")
    assert caught.value.key == "k"
    assert len(front.requests) == 1


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0), ("soon", None), ("-1", None)]
)
def test_the_time_to_wait_is_handed_on(driver, front, header, seconds):
    front.rule = lambda _: refusal(429, "Rate", Retry_After=header)
    with raises(StoreUnavailableError) as caught:
        driver.stat("k")
    assert caught.value.retry_after_s == seconds


def test_texts_of_media_answers_are_read_as_well(driver, front):
    text = {"Content-Type": "text/plain; charset=utf-8"}
    front.rule = lambda _: Answer(status=404, body=b"The specified bucket does not exist.", headers=text)
    with raises(ObjectNotFoundError, "no bucket 'b'"):
        driver.read_range("k", 0, 1)
    front.rule = lambda _: Answer(status=404, body=b"No such object: b/k", headers=text)
    with raises(ObjectNotFoundError, "no such object in the bucket 'b'"):
        driver.read_range("k", 0, 1)


def test_a_missing_bucket_is_not_taken_for_objects_that_are_gone(driver, front):
    front.rule = lambda _: refusal(404, "The specified bucket does not exist.")
    with raises(ObjectNotFoundError, "no bucket 'b'"):
        driver.delete(["k"])


def test_one_key_that_cannot_be_deleted_is_named(driver, front):
    front.rule = lambda request: refusal(403, "Held") if request.path.endswith("/bad") else Answer(status=204)
    with raises(AccessDeniedError, "Held") as caught:
        driver.delete(["a", "bad", "c"])
    assert caught.value.key == "bad"


def test_a_server_that_ignores_ranges_is_an_error_not_wrong_bytes(driver, front):
    front.rule = lambda _: Answer(status=200, body=b"0123456789")
    with raises(StoreError, "range was not heeded"):
        driver.read_range("k", 2, 3)


@pytest.mark.parametrize(
    ("body", "content_range"), [(b"012", "bytes 0-2/10"), (b"2345", "bytes 2-5/10"), (b"234", "")]
)
def test_another_range_than_was_asked_for_is_an_error_not_wrong_bytes(driver, front, body, content_range):
    front.rule = lambda _: Answer(status=206, body=body, headers={"Content-Range": content_range})
    with raises(StoreError, "another range"):
        driver.read_range("k", 2, 3)


def test_a_range_that_comes_short_is_a_range_error_with_the_size(driver, front):
    front.rule = lambda _: Answer(status=206, body=b"89", headers={"Content-Range": "bytes 8-9/10"})
    with raises(RangeError, "byte 10, where it ends"):
        driver.read_range("k", 8, 3)
    front.rule = lambda _: Answer(status=416)
    with raises(RangeError, "its end"):
        driver.read_range("k", 80, 3)


def test_other_bytes_than_were_sent_are_noticed(driver, front):
    answer = {"name": "k", "size": "1", "crc32c": "AAAAAA==", "updated": "2026-01-01T00:00:00Z"}
    front.rule = lambda _: Answer(status=200, body=json.dumps(answer).encode())
    with raises(StoreUnavailableError, "other bytes"):
        driver.write_index("k", b"x", "a/b", {}, True)


def test_our_own_faults_are_not_taken_for_the_stores():
    with pytest.raises(ZeroDivisionError), translated("divide", "b", "k"):
        raise ZeroDivisionError
    with pytest.raises(RefusalError, match=r"status 400$"):
        raise RefusalError(400, {}, b"[" * 100_000)


# --- no answer ----------------------------------------------------------------------------------------------


def every_hook(driver):
    """One call of each hook that sends a request."""
    return {
        "begin": lambda: driver.begin_data("k", "a/b", {}),
        "index": lambda: driver.write_index("k", b"x", "a/b", {}, True),
        "read": lambda: driver.read_range("k", 0, 1),
        "ranges": lambda: driver.read_ranges([ByteRange(key="k", offset=0, length=1)] * 3),
        "stat": lambda: driver.stat("k"),
        "list": lambda: list(driver.list_objects("", "")),
        "delete": lambda: driver.delete(["k"]),
        "uploads": lambda: list(driver.list_uploads("")),
    }


HOOKS = list(every_hook(None))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("hook", HOOKS)
def test_a_server_that_is_down(hook):
    with (
        opened(bucket="b", endpoint_url=f"http://127.0.0.1:{free_port()}", token=SECRET) as driver,
        raises(StoreUnreachableError, "nothing answers at 127.0.0.1:") as caught,
    ):
        every_hook(driver)[hook]()
    assert caught.value.retryable


@pytest.mark.sampled(8)
@pytest.mark.parametrize("hook", HOOKS)
def test_a_connection_that_is_closed_without_an_answer(driver, front, hook):
    front.rule = lambda _: NEVER_SENT
    with raises(StoreUnavailableError, "connection broke"):
        every_hook(driver)[hook]()


def test_a_changing_request_is_sent_once(driver, front):
    """gcsfs would send it six times, and its second answer would tell of what the first one did."""
    front.rule = lambda _: NEVER_SENT
    with raises(StoreUnavailableError):
        driver.write_index("k", b"x", "a/b", {}, True)
    assert len(front.requests) == 1


@pytest.mark.sampled(8)
@pytest.mark.parametrize("hook", HOOKS)
def test_a_server_that_does_not_answer_in_time(unanswered, hook):
    with raises(StoreTimeoutError, "in time"):
        every_hook(unanswered)[hook]()


def test_a_server_that_does_not_take_a_block_in_time(unanswered):
    with raises(StoreTimeoutError, "in time"):
        unanswered.write_index("k", bytes(64 << 20), "a/b", {}, True)


BEHIND_A_PROXY = {"http": "http://127.0.0.1:1", "https": "https://store.invalid"}
"""Over http a token goes to this machine only."""


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_down_shows_no_secret(scheme):
    proxy = f"http://user:{SECRET}@127.0.0.1:{free_port()}"
    with (
        opened(bucket="b", endpoint_url=BEHIND_A_PROXY[scheme], token=SECRET, proxy=proxy) as driver,
        raises(StoreUnreachableError, "Check the address of the proxy"),
    ):
        driver.stat("k")


@pytest.mark.parametrize(("scheme", "status"), [("http", 407), ("https", 407), ("https", 403)])
def test_a_proxy_that_refuses_shows_no_secret(front, scheme, status):
    front.rule = lambda _: Answer(status=status, body=SECRET.encode())
    proxy = f"http://user:{SECRET}@127.0.0.1:{front.port}"
    with (
        opened(bucket="b", endpoint_url=BEHIND_A_PROXY[scheme], token=SECRET, proxy=proxy) as driver,
        raises(AccessDeniedError, f"407.*{status}" if scheme == "https" else "407"),
    ):
        driver.stat("k")


def test_all_these_errors_are_ours(driver, front):
    front.rule = lambda _: refusal(418)
    for call in every_hook(driver).values():
        with pytest.raises(OffloadError):
            call()
