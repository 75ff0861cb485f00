"""How the driver `s3` tells what went wrong: every kind of answer, and none; secrets are never told."""

from __future__ import annotations

import logging
import socket
from functools import partial

import pytest
from network.admin import raises_without
from network.fronts import NEVER_SENT, Answer, Front, make_certificate
from s3 import HOOKS, every_hook, opened, refusal
from servers.process import free_port

from offload_hooks.errors import (
    AccessDeniedError,
    InvalidKeyError,
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    RangeError,
    StoreError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
    StoreUnreachableError,
    UploadError,
)

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYa-recognisable-secret"
PASSWORD = "a-recognisable-password"
raises = partial(raises_without, "recognisable")
GIVEN = {"bucket": "a-bucket", "region": "us-east-1", "access_key_id": "an-id", "secret_access_key": SECRET}


@pytest.fixture(scope="module")
def served():
    with Front() as front, opened(**GIVEN, session_token=SECRET, endpoint_url=front.url) as driver:
        yield front, driver


@pytest.fixture
def front(served):
    served[0].requests.clear()
    return served[0]


@pytest.fixture
def driver(served):
    return served[1]


@pytest.fixture
def unanswered():
    """A driver of a server that neither reads nor answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with opened(**GIVEN, endpoint_url=url, read_timeout_s=0.2) as driver:
            yield driver


@pytest.fixture(autouse=True)
def _no_secret_is_logged(caplog):
    caplog.set_level(logging.INFO)
    yield
    assert "recognisable" not in caplog.text


# --- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (refusal(400, "InvalidRequest", "Such a thing"), StoreError, "InvalidRequest: Such a thing"),
        (refusal(400, "BadDigest"), StoreUnavailableError, "damaged"),
        (refusal(400, "XAmzContentSHA256Mismatch"), StoreUnavailableError, "damaged"),
        (refusal(400, "InvalidArgument", "Unsupported: x-amz-Checksum"), StoreError, "give checksum='none'"),
        (refusal(400, "ExpiredToken", f"Gone: {SECRET}"), AccessDeniedError, "have expired"),
        (refusal(400, "KeyTooLongError"), InvalidKeyError, "this long"),
        (refusal(400, "InvalidBucketName"), OptionError, "of this name"),
        (refusal(400, "RequestTimeout"), StoreUnavailableError, "RequestTimeout"),
        (refusal(400, "EntityTooLarge"), UploadError, "these blocks"),
        (refusal(400, "AuthorizationHeaderMalformed"), StoreError, "option region"),
        (refusal(401, "Whatever"), AccessDeniedError, "Whatever"),
        (refusal(403, "AccessDenied", f"No {SECRET}"), AccessDeniedError, "permissions"),
        (refusal(403, "InvalidAccessKeyId"), AccessDeniedError, "does not know the access key"),
        (refusal(403, "SignatureDoesNotMatch"), AccessDeniedError, "is wrong, or the region"),
        (refusal(403, "RequestTimeTooSkewed"), AccessDeniedError, "clock"),
        (refusal(403, "QuotaExceeded"), StoreFullError, "full"),
        (refusal(404, "NoSuchKey"), ObjectNotFoundError, "no such object in the bucket 'a-bucket'"),
        (refusal(404, "NoSuchBucket"), ObjectNotFoundError, "no bucket 'a-bucket'"),
        (refusal(409, "ConditionalRequestConflict"), StoreUnavailableError, "now"),
        (refusal(409, "OperationAborted"), StoreUnavailableError, "now"),
        (refusal(412, "PreconditionFailed"), ObjectExistsError, "already"),
        (refusal(429, "TooManyRequests"), StoreUnavailableError, "TooManyRequests"),
        (refusal(500, "InternalError"), StoreUnavailableError, "InternalError"),
        (refusal(503, "SlowDown", "Reduce your request rate."), StoreUnavailableError, "Reduce your"),
        (refusal(507, "Whatever"), StoreFullError, "full"),
        (Answer(status=502, body=f"<html>{SECRET}".encode()), StoreUnavailableError, None),
        (Answer(status=503), StoreUnavailableError, "503"),
        (Answer(status=418), StoreError, "418"),
        (Answer(status=200, body=b"<html>no S3 at all"), StoreUnavailableError, "now"),
    ],
    ids=lambda value: getattr(value, "body", None) and value.body.decode()[:40],
)
def test_answers_are_translated(driver, front, answer, kind, text):
    front.rule = lambda _: answer
    with raises(kind, text):
        next(driver.list_objects("", ""))
    assert len(front.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind"), [(403, AccessDeniedError), (404, ObjectNotFoundError), (503, StoreUnavailableError)]
)
def test_an_answer_to_head_has_no_text_and_is_known_by_its_status(driver, front, status, kind):
    front.rule = lambda _: Answer(status=status)
    with raises(kind) as caught:
        driver.stat("k")
    assert caught.value.key == "k"
    assert [request.method for request in front.requests] == ["HEAD"]


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7.0), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0), ("soon", None), ("-1", None)]
)
def test_the_time_to_wait_is_handed_on(driver, front, header, seconds):
    front.rule = lambda _: refusal(503, "SlowDown", Retry_After=header)
    with raises(StoreUnavailableError) as caught:
        driver.read_range("k", 0, 1)
    assert caught.value.retry_after_s == seconds


def test_a_commit_that_is_refused_after_it_was_answered_with_200_is_an_error(driver, front):
    """S3 sends the status before it knows the outcome, to keep the connection open."""

    def rule(request):
        if request.method == "POST":
            return refusal(200, "InternalError", "We encountered an internal error.")
        return Answer(status=200, body=b"<ListPartsResult/>")

    front.rule = rule
    with raises(StoreUnavailableError, "InternalError"):
        every_hook(driver)["commit"]()
    assert [request.method for request in front.requests] == ["GET", "POST"]


def test_one_key_that_cannot_be_deleted_is_named(driver, front):
    fault = "<Error><Key>bad</Key><Code>AccessDenied</Code><Message>Held</Message></Error>"
    gone = "<Error><Key>c</Key><Code>NoSuchKey</Code><Message>Gone</Message></Error>"
    front.rule = lambda _: Answer(status=200, body=f"<DeleteResult>{gone}{fault}</DeleteResult>".encode())
    with raises(AccessDeniedError, "Held") as caught:
        driver.delete(["a", "bad", "c"])
    assert caught.value.key == "bad"


def test_many_are_deleted_by_few_requests_that_carry_their_checksum(driver, front):
    front.rule = lambda _: Answer(status=200, body=b"<DeleteResult/>")
    assert driver.delete([f"k{number}" for number in range(2500)]) == 2500
    assert [request.body.count(b"<Key>") for request in front.requests] == [1000, 1000, 500]
    assert all(request.headers["content-md5"] for request in front.requests)


def test_bytes_of_another_number_than_was_asked_for_are_an_error(driver, front):
    front.rule = lambda _: Answer(status=206, body=b"89", headers={"Content-Range": "bytes 8-9/10"})
    with raises(RangeError, "byte 10, where it ends"):
        driver.read_range("k", 8, 3)
    front.rule = lambda _: Answer(status=416)
    with raises(RangeError, "its end"):
        driver.read_range("k", 80, 3)


# --- no answer ------------------------------------------------------------------------------------


@pytest.mark.sampled(8)
@pytest.mark.parametrize("hook", HOOKS)
def test_a_server_that_is_down(hook):
    with (
        opened(**GIVEN, endpoint_url=f"http://127.0.0.1:{free_port()}") as driver,
        raises(StoreUnreachableError, "nothing answers at") as caught,
    ):
        every_hook(driver)[hook]()
    assert caught.value.retryable


@pytest.mark.sampled(8)
@pytest.mark.parametrize("hook", HOOKS)
def test_a_connection_that_is_closed_without_an_answer(driver, front, hook):
    front.rule = lambda _: NEVER_SENT
    with raises(StoreUnavailableError, "does not answer"):
        every_hook(driver)[hook]()


@pytest.mark.sampled(8)
@pytest.mark.parametrize("hook", HOOKS)
def test_a_server_that_does_not_answer_in_time(unanswered, hook):
    with raises(StoreTimeoutError, "in time"):
        every_hook(unanswered)[hook]()


def test_a_server_that_does_not_take_a_block_in_time(unanswered):
    with raises(StoreTimeoutError, "in time"):
        unanswered.write_index("k", bytes(64 << 20), "a/b", {}, True)


@pytest.mark.parametrize("hook", ["block", "index", "commit"])
def test_what_changes_something_is_sent_once(driver, front, hook):
    """A second request could be told that what the first one made is there already."""
    front.rule = lambda request: (
        Answer(status=200, body=b"<ListPartsResult/>") if request.method == "GET" else NEVER_SENT
    )
    with raises(StoreUnavailableError):
        every_hook(driver)[hook]()
    assert len([request for request in front.requests if request.method != "GET"]) == 1


def test_a_host_that_has_no_address():
    with (
        opened(**GIVEN, endpoint_url="http://store.invalid") as driver,
        raises(StoreUnreachableError, "nothing answers at store.invalid:80"),
    ):
        driver.stat("k")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_is_down_shows_no_secret(scheme):
    proxy = f"http://user:{PASSWORD}@127.0.0.1:{free_port()}"
    with (
        opened(**GIVEN, endpoint_url=f"{scheme}://store.invalid", proxy=proxy) as driver,
        raises(StoreUnreachableError, "Check the address of the proxy"),
    ):
        driver.stat("k")


@pytest.mark.parametrize(
    ("scheme", "status", "kind"),
    [
        ("http", 407, AccessDeniedError),
        ("https", 407, AccessDeniedError),
        ("https", 403, AccessDeniedError),
        ("https", 404, StoreUnavailableError),
        ("https", 502, StoreUnavailableError),
    ],
)
def test_a_proxy_that_refuses_shows_no_secret(scheme, status, kind):
    with (
        Front(rule=lambda _: Answer(status=status, body=SECRET.encode())) as proxy,
        opened(
            **GIVEN,
            endpoint_url=f"{scheme}://store.invalid",
            proxy=f"http://user:{PASSWORD}@127.0.0.1:{proxy.port}",
        ) as driver,
        raises(kind),
    ):
        driver.read_range("k", 0, 1)


def test_only_a_certificate_that_is_trusted_is_talked_to(tmp_path):
    tls = make_certificate(tmp_path)
    answer = Answer(status=206, body=b"x", headers={"Content-Range": "bytes 0-0/1"})
    with Front(rule=lambda _: answer, tls=tls) as front:
        with opened(**GIVEN, endpoint_url=front.url, ca_bundle=str(tls[0])) as driver:
            assert bytes(driver.read_range("k", 0, 1)) == b"x"
        with (
            opened(**GIVEN, endpoint_url=front.url) as driver,
            raises(StoreError, "not trusted.*ca_bundle") as caught,
        ):
            driver.read_range("k", 0, 1)
        assert not caught.value.retryable
        with (
            opened(**GIVEN, endpoint_url=front.url, ca_bundle=str(tmp_path / "nowhere.pem")) as driver,
            raises(OptionError, "ca_bundle"),
        ):
            driver.read_range("k", 0, 1)
