"""Who the driver `gcs` says it is, by options and files; and the line to the store."""

from __future__ import annotations

import json
import traceback
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from gcs import PREFIX, SECRET, opened
from network.fronts import NEVER_SENT, Answer, Front, make_certificate

from offload_drivers.gcs import GcsDriver
from offload_hooks.errors import AccessDeniedError, OptionError, StoreError, StoreUnavailableError


@pytest.fixture
def options(google, bucket):
    return {"bucket": bucket, "prefix": PREFIX, "endpoint_url": google.url}


@pytest.fixture(autouse=True)
def machine_without_credentials(monkeypatch, tmp_path):
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


def use(driver):
    driver.write_index("k", b"x", "a/b", {}, False)
    assert driver.stat("k").size_bytes == 1


def refused(kind, match=None, **options):
    """The error of the first request of a driver with these options."""
    with opened(**options) as driver, pytest.raises(kind, match=match) as caught:
        driver.stat("k")
    return caught.value


def whole(error):
    """All that a log would show of it."""
    return "".join(traceback.format_exception(error))


# --- kinds of credentials -----------------------------------------------------------------------------------


def test_a_service_account_by_its_key_by_option_and_by_environment(
    options, google, key, tmp_path, monkeypatch
):
    path = tmp_path / "key.json"
    path.write_text(key)
    for more in ({"service_account_json": key}, {"service_account_file": str(path)}, {}):
        if not more:
            monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        with opened(**options, **more) as driver:
            use(driver)
    assert google.given == 3
    grants = [request.body for request in google.requests if request.path == "/token"]
    assert all(b"assertion=" in body for body in grants)


def test_application_default_credentials_of_a_user_by_gcloud(options, google, tmp_path, monkeypatch):
    user = {"type": "authorized_user", "client_id": "i", "client_secret": SECRET, "refresh_token": SECRET}
    path = tmp_path / "gcloud" / "application_default_credentials.json"
    path.parent.mkdir()
    path.write_text(json.dumps(user | {"token_uri": f"{google.url}/token", "quota_project_id": "q"}))
    with opened(**options) as driver:
        credentials = driver._filesystem.get().credentials.credentials
        assert credentials.refresh_token == SECRET


def test_a_token_is_used_as_it_is(options, google):
    with opened(**options, token=google.token) as driver:
        use(driver)
    assert google.given == 0


def test_anonymous_requests_have_no_credentials(options, google):
    refused(AccessDeniedError, **options, anonymous=True)
    assert "authorization" not in google.requests[0].headers


def test_the_project_that_pays_is_named_in_every_request(options, google):
    with opened(**options, token=google.token, user_project="payer") as driver:
        use(driver)
        upload = driver.begin_data("data", "a/b", {})
        driver.commit_data(upload, [driver.write_block(upload, 1, 0, b"x")], True)
        driver.read_range("data", 0, 1)
        driver.delete(["data"])
        list(driver.list_objects("", ""))
    assert {request.parameters.get("userProject") for request in google.requests} == {"payer"}


def test_drivers_that_differ_in_their_secrets_only_share_nothing(options, google):
    with opened(**options, token=google.token) as right, opened(**options, token=f"{SECRET}-wrong") as wrong:
        use(right)
        with pytest.raises(AccessDeniedError):
            wrong.stat("k")
        use(right)


# --- tokens that expire -------------------------------------------------------------------------------------


def test_a_token_that_is_about_to_expire_is_renewed_before_it_is_sent(options, google, key):
    google.lifetime_s = 1
    with opened(**options, service_account_json=key) as driver:
        use(driver)
    assert google.given == 2


def test_a_callables_token_is_renewed_before_it_expires_and_when_it_is_refused(options, google):
    lifetime_s = 1

    def vend():
        google.given += 1  # what was given before counts no more
        expires_at = datetime.now(UTC) + timedelta(seconds=lifetime_s)
        return {"token": google.token, "expires_at": expires_at}

    with opened(**options, credentials=vend) as driver:
        use(driver)
        assert google.given == 2
        lifetime_s = 3600
        use(driver)
        assert google.given == 3
        google.given += 1
        use(driver)
        assert google.given == 5


def test_a_callable_that_fails_is_denied_without_its_text(options):
    def vend():
        raise RuntimeError(SECRET)

    error = refused(
        AccessDeniedError, "'credentials' failed .*found RuntimeError", **options, credentials=vend
    )
    assert SECRET not in whole(error)


def test_a_token_that_is_refused_is_renewed_once_and_the_request_sent_again(options, google, key):
    with opened(**options, service_account_json=key) as driver:
        upload = driver.begin_data("k", "a/b", {})
        google.given += 1  # what was given before counts no more
        receipt = driver.write_block(upload, 1, 0, b"block" * 1_000_000)
        google.given += 1
        assert driver.commit_data(upload, [receipt], True).size_bytes == 5_000_000


def test_credentials_that_are_refused_with_a_new_token_are_denied(options, google, key):
    google.rule = lambda request: google.judge(request) if request.path == "/token" else Answer(status=401)
    refused(AccessDeniedError, **options, service_account_json=key)
    assert google.given == 2


def test_a_token_server_that_denies_and_one_that_is_down(options, google, key):
    denial = b'{"error": "invalid_grant", "error_description": "Invalid JWT Signature."}'
    google.token_answer = Answer(status=400, body=denial, headers={"Content-Type": "application/json"})
    refused(AccessDeniedError, "no access token", **options, service_account_json=key)
    google.rule = lambda _: NEVER_SENT
    refused(StoreUnavailableError, "access tokens", **options, service_account_json=key)


def test_an_expired_token_without_a_way_to_renew_it_is_denied(options):
    error = refused(AccessDeniedError, "not accepted", **options, token=f"{SECRET}-old")
    assert SECRET not in whole(error)


# --- none, or malformed -------------------------------------------------------------------------------------


def test_a_machine_without_credentials_is_told_what_to_do(options):
    refused(AccessDeniedError, "GOOGLE_APPLICATION_CREDENTIALS", **options)


@pytest.mark.parametrize("text", [SECRET, "[]", "{}", json.dumps({"type": "authorized_user", "x": SECRET})])
def test_a_key_that_is_none_is_refused_without_repeating_it(options, tmp_path, text):
    path = tmp_path / "key.json"
    path.write_text(text)
    for more in ({"service_account_json": text}, {"service_account_file": str(path)}):
        assert SECRET not in whole(refused(OptionError, "no key", **options, **more))


def test_a_key_that_is_damaged_is_refused_without_repeating_it(options, key):
    damaged = json.dumps(json.loads(key) | {"private_key": f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n"})
    assert SECRET not in whole(refused(OptionError, **options, service_account_json=damaged))


def test_files_that_are_not_there_are_named(options, tmp_path):
    missing = str(tmp_path / "none")
    refused(OptionError, "service_account_file", **options, service_account_file=missing)
    refused(OptionError, "ca_bundle", **options, ca_bundle=missing, anonymous=True)


# --- the line -----------------------------------------------------------------------------------------------


def test_only_a_certificate_that_is_trusted_is_talked_to(fake_gcs, bucket, tmp_path):
    tls = make_certificate(tmp_path)
    with Front(fake_gcs.endpoint, tls=tls) as front:
        options = {"bucket": bucket, "endpoint_url": front.url, "anonymous": True}
        with opened(**options, ca_bundle=str(tls[0])) as driver:
            use(driver)
        error = refused(StoreError, "ca_bundle", **options)
        assert not error.retryable
        assert isinstance(error.__cause__, aiohttp.ClientSSLError)


def test_a_proxy_is_used_for_the_store_and_for_tokens(google, bucket, key):
    key = key.replace(google.url, "http://127.0.0.8")
    proxy = f"http://user:password@127.0.0.1:{google.port}"
    options = {"bucket": bucket, "endpoint_url": "http://127.0.0.9", "service_account_json": key}
    with opened(**options, proxy=proxy) as driver:
        use(driver)
    assert {request.target.split("/")[2] for request in google.requests} == {"127.0.0.8", "127.0.0.9"}
    assert all(request.headers["proxy-authorization"].startswith("Basic ") for request in google.requests)


def test_the_proxy_of_the_environment_is_used(google, bucket, monkeypatch):
    monkeypatch.setenv("http_proxy", google.url)
    with opened(bucket=bucket, endpoint_url="http://127.0.0.9", token=google.token) as driver:
        use(driver)
    assert google.requests


@pytest.mark.parametrize("given", [{"token": "t"}, {}, {"anonymous": "false"}])
def test_tokens_are_sent_over_tls_only(given):
    for url, proxy in (("http://store.invalid", ""), ("http://127.0.0.1:1", "http://proxy.invalid:1")):
        with pytest.raises(OptionError, match="over https only"):
            GcsDriver(bucket="b", endpoint_url=url, proxy=proxy, **given)
    for url in ("https://store.invalid", "http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"):
        GcsDriver(bucket="b", endpoint_url=url, **given)
    GcsDriver(bucket="b", endpoint_url="http://store.invalid", anonymous=True)


def test_an_emulator_of_the_environment_gets_no_token_over_http(monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://store.invalid")
    refused(OptionError, "over https only", bucket="b", token="t")


def test_no_token_is_asked_for_over_http(key, google):
    key = key.replace(google.url, "http://tokens.invalid")
    refused(OptionError, "over https", bucket="b", service_account_json=key)
