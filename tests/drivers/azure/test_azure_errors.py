from __future__ import annotations

import pickle
import socket
import traceback

import pytest
from azure.storage.blob import BlobServiceClient
from layered import calls
from network.fronts import Answer
from servers.azurite import Azurite

from offload_drivers.azure.errors import retry_after_s
from offload_hooks.errors import (
    AccessDeniedError,
    InvalidKeyError,
    ObjectNotFoundError,
    OffloadError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
    StoreUnreachableError,
    UploadError,
)

pytestmark = pytest.mark.sampled(6)

SECRET = "aHVudGVyMi1pcy1hLXNlY3JldC1rZXk="


def all_fail(driver, kind, *, secrets=()):
    for name, (key, call) in calls(driver).items():
        with pytest.raises(OffloadError) as caught:
            call()
        error = caught.value
        assert type(error) is kind, f"{name}: {error!r}"
        assert error.key == key
        assert isinstance(pickle.loads(pickle.dumps(error)), kind)
        whole = "".join(traceback.format_exception(error)) + repr(error)
        assert not [secret for secret in secrets if secret in whole], name


def refusal(status, code, headers=()):
    return Answer(status=status, headers={"x-ms-error-code": code} | dict(headers))


# --- what the store refuses --------------------------------------------------------------------------------


def test_a_wrong_key_is_denied_and_never_shown(open_driver, azurite):
    driver = open_driver(
        account_name=azurite.account_name, account_key=SECRET, endpoint_url=azurite.account_url
    )
    all_fail(driver, AccessDeniedError, secrets=[SECRET])
    assert SECRET not in f"{driver!r} {vars(driver)!r}"


def test_a_wrong_signature_is_denied_and_never_shown(open_driver, azurite):
    token = f"sv=2022-11-02&sr=c&sp=racwdl&se=2099-01-01T00%3A00%3A00Z&sig={SECRET.rstrip('=')}%3D"
    driver = open_driver(endpoint_url=azurite.account_url, sas_token=token)
    all_fail(driver, AccessDeniedError, secrets=[SECRET, SECRET.rstrip("="), token])


def test_no_credentials_are_denied_where_the_container_is_not_public(open_driver, azurite):
    all_fail(open_driver(endpoint_url=azurite.account_url, anonymous=True), AccessDeniedError)


def test_a_missing_container_is_named(open_driver, azurite):
    driver = open_driver(container="no-such-container", connection_string=azurite.connection_string)
    all_fail(driver, ObjectNotFoundError)
    with pytest.raises(ObjectNotFoundError, match="no container 'no-such-container'"):
        driver.stat("k")


def test_a_missing_object_is_named(open_driver, azurite):
    driver = open_driver(connection_string=azurite.connection_string)
    with pytest.raises(ObjectNotFoundError, match="no such object") as caught:
        driver.stat("t/k")
    assert caught.value.key == "t/k"
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "ServerBusy", StoreUnavailableError),
        (500, "InternalError", StoreUnavailableError),
        (429, "TooManyRequests", StoreUnavailableError),
        (502, "", StoreUnavailableError),
        (500, "OperationTimedOut", StoreTimeoutError),
        (408, "RequestTimeout", StoreTimeoutError),
        (401, "InvalidAuthenticationInfo", AccessDeniedError),
        (403, "AuthorizationPermissionMismatch", AccessDeniedError),
        (400, "InvalidAuthenticationInfo", AccessDeniedError),
        (409, "PublicAccessNotPermitted", AccessDeniedError),
        (409, "BlobImmutableDueToPolicy", AccessDeniedError),
        (409, "ContainerBeingDeleted", ObjectNotFoundError),
        (404, "ContainerNotFound", ObjectNotFoundError),
        (400, "InvalidUri", InvalidKeyError),
        (412, "LeaseIdMissing", StoreError),
        (409, "BlobArchived", StoreError),
        (409, "ResourceTypeMismatch", StoreError),
        (501, "NotImplemented", StoreError),
    ],
)
def test_what_azure_itself_would_refuse_with(fronted, front, status, code, kind):
    front.rule = lambda _: refusal(status, code)
    all_fail(fronted, kind)
    assert len(front.requests) == len(calls(fronted)), "each call is tried once"


@pytest.mark.parametrize(
    ("headers", "waits_s"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"x-ms-retry-after-ms": "1500", "Retry-After": "2"}, 1.5),
        ({"Retry-After": "soon"}, None),
        ({}, None),
    ],
)
def test_the_wait_that_azure_asks_for_is_handed_on(fronted, front, headers, waits_s):
    front.rule = lambda _: refusal(503, "ServerBusy", headers)
    with pytest.raises(StoreUnavailableError) as caught:
        fronted.read_range("k", 0, 1)
    assert caught.value.retry_after_s == waits_s
    assert caught.value.retryable


def test_a_wait_may_be_a_date():
    assert retry_after_s({"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0.0
    assert retry_after_s({"Retry-After": "Thu, 01 Jan 2099 00:00:00 GMT"}) > 1e6


def test_a_commit_while_a_retry_is_asked_for_can_be_made_again(fronted, front):
    upload = fronted.begin_data("k", "text/plain", {})
    receipt = fronted.write_block(upload, 1, 0, b"abc")
    busy = refusal(503, "ServerBusy")
    front.rule = lambda request: busy if request.parameters.get("comp") == "blocklist" else None
    with pytest.raises(StoreUnavailableError):
        fronted.commit_data(upload, [receipt], True)
    front.rule = lambda _: None
    assert fronted.commit_data(upload, [receipt], True).size_bytes == 3


# --- no store ----------------------------------------------------------------------------------------------


def test_a_server_that_is_down_is_unreachable(open_driver, azurite):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        moved = f"http://127.0.0.1:{nobody.getsockname()[1]}/{azurite.account_name}"
        driver = open_driver(connection_string=azurite.connection_string, endpoint_url=moved)
        all_fail(driver, StoreUnreachableError, secrets=[azurite.account_key])


def test_a_server_of_no_known_name_is_unreachable(open_driver, azurite):
    driver = open_driver(
        connection_string=azurite.connection_string,
        endpoint_url="http://no-such-host.invalid/devstoreaccount1",
    )
    with pytest.raises(StoreUnreachableError, match="nothing answers at no-such-host"):
        driver.stat("k")


@pytest.fixture
def unanswered(azurite, open_driver):
    """A driver of a server that neither reads nor answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = {"endpoint_url": f"http://127.0.0.1:{silent.getsockname()[1]}/{azurite.account_name}"}
        yield open_driver(connection_string=azurite.connection_string, **place, read_timeout_s="0.3")


def test_a_server_that_says_nothing_is_waited_for_as_long_as_the_option_says(unanswered):
    all_fail(unanswered, StoreTimeoutError)


def test_a_server_that_stops_taking_a_block_is_a_time_out(unanswered, fronted):
    """The HTTP client's own time-out counts only what comes, so a body that nobody takes would be sent for ever."""
    upload = fronted.begin_data("k", "text/plain", {})
    with pytest.raises(StoreTimeoutError):
        unanswered.write_block(upload, 1, 0, bytes(32 << 20))
    with pytest.raises(StoreTimeoutError):
        unanswered.write_index("k", bytes(32 << 20), "text/plain", {}, True)


def test_a_server_that_is_not_azure_is_told(open_driver, fake_gcs, azurite):
    driver = open_driver(connection_string=azurite.connection_string, endpoint_url=fake_gcs.endpoint)
    with pytest.raises(StoreError):
        driver.stat("k")
    with pytest.raises(StoreError):
        list(driver.list_objects("", ""))


def test_an_upload_goes_on_after_the_server_was_away(start_server, open_driver):
    """Stopped in good order: Azurite forgets what was written in the last seconds before it is killed."""
    server = start_server(Azurite(on_disk=True))
    server.make_container("tier")
    driver = open_driver(container="tier", connection_string=server.connection_string)
    upload = driver.begin_data("k", "text/plain", {"a": "1"})
    first = driver.write_block(upload, 1, 0, b"abc")
    server.stop()
    with pytest.raises(StoreUnavailableError):
        driver.write_block(upload, 2, 3, b"de")
    with pytest.raises(StoreUnavailableError):
        driver.commit_data(upload, [first], True)
    server.restart()
    assert [stale.upload for stale in driver.list_uploads("")] == [upload]
    second = driver.write_block(upload, 2, 3, b"de")
    assert driver.commit_data(upload, [first, second], True).size_bytes == 5
    assert driver.read_range("k", 0, 5) == b"abcde"
    assert driver.stat("k").user_metadata == {"a": "1"}


def test_an_upload_that_the_server_lost_with_its_own_life_is_gone(start_server, open_driver):
    server = start_server(Azurite())  # in memory
    server.make_container("tier")
    driver = open_driver(container="tier", connection_string=server.connection_string)
    upload = driver.begin_data("k", "text/plain", {})
    receipt = driver.write_block(upload, 1, 0, b"abc")
    server.kill()
    with pytest.raises(StoreUnavailableError):
        driver.write_block(upload, 2, 3, b"de")
    server.restart()
    with pytest.raises(ObjectNotFoundError, match="no container"):
        driver.commit_data(upload, [receipt], True)
    with BlobServiceClient.from_connection_string(server.connection_string) as service:
        service.create_container("tier").close()
    with pytest.raises(UploadError):
        driver.commit_data(upload, [receipt], True)
    assert list(driver.list_objects("", "")) == []
