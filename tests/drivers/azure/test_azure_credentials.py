from __future__ import annotations

import base64
import logging
import os
import traceback
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import pytest
from azure.storage.blob import (
    BlobServiceClient,
    ContainerSasPermissions,
    PublicAccess,
    generate_container_sas,
)
from network.fronts import TENANT, Answer, Front, Identities, SecureAzurite, make_certificate

from offload_hooks.errors import (
    AccessDeniedError,
    ObjectExistsError,
    OptionError,
    StoreError,
    StoreUnavailableError,
)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("AZURE_", "IDENTITY_", "MSI_")):
            monkeypatch.delenv(name)
    # So that the default chain asks nobody outside of this machine.
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secure_server(azurite, tls, tmp_path_factory):
    with SecureAzurite(*tls).start(tmp_path_factory.mktemp("secure")) as server:
        yield server


@pytest.fixture
def secure(secure_server, tls):
    """Azurite with https, which checks tokens; and its container, which is empty."""
    with BlobServiceClient.from_connection_string(
        secure_server.connection_string, connection_verify=str(tls[0])
    ) as service:
        service.create_container("tier").close()
        yield secure_server
        service.delete_container("tier")


@pytest.fixture
def identities(tls, monkeypatch):
    with Identities(*tls) as identities:
        monkeypatch.setenv("AZURE_AUTHORITY_HOST", identities.authority)
        yield identities


@pytest.fixture
def secure_place(secure, tls):
    """That container, as options."""
    return {"container": "tier", "endpoint_url": secure.account_url, "ca_bundle": str(tls[0])}


@pytest.fixture
def principal(identities):
    """A service principal, as options."""
    return {"tenant_id": TENANT, "client_id": "me", "client_secret": identities.client_secret}


def works(driver):
    """All kinds of requests are made, and work."""
    upload = driver.begin_data("k", "text/plain", {"a": "1"})
    receipt = driver.write_block(upload, 1, 0, b"abc")
    assert driver.commit_data(upload, [receipt], True).size_bytes == 3
    assert driver.read_range("k", 0, 3) == b"abc"
    assert [found.key for found in driver.list_objects("", "")] == ["k"]
    assert driver.delete(["k"]) == 1
    return True


# --- keys, signatures, nothing -----------------------------------------------------------------------------


def test_an_account_key_by_option_and_by_environment(azurite, open_driver, monkeypatch):
    place, key = {"endpoint_url": azurite.account_url}, azurite.account_key
    assert works(open_driver(**place, account_key=key))
    assert works(open_driver(**place, account_name=azurite.account_name, account_key=key))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", azurite.account_name)
    monkeypatch.setenv("AZURE_STORAGE_ACCESS_KEY", key)
    assert works(open_driver(**place))


def test_a_connection_string_by_option_and_by_environment(azurite, open_driver, monkeypatch):
    assert works(open_driver(connection_string=azurite.connection_string))
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite.connection_string)
    assert works(open_driver())
    assert works(open_driver(account_name=azurite.account_name))


def signature(azurite, container, permissions, expires=timedelta(hours=1)):
    return generate_container_sas(
        azurite.account_name,
        container.container_name,
        account_key=azurite.account_key,
        permission=ContainerSasPermissions.from_string(permissions),
        expiry=datetime.now(UTC) + expires,
    )


def test_a_signature_allows_what_it_says(azurite, container, open_driver, monkeypatch):
    place = {"endpoint_url": azurite.account_url}
    everything = signature(azurite, container, "racwdl")
    assert works(open_driver(**place, sas_token=f"?{everything}"))
    monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", everything)
    assert works(open_driver(**place))
    string = f"BlobEndpoint={azurite.account_url};SharedAccessSignature={everything}"
    writer = open_driver(connection_string=string)
    writer.write_index("k", b"x", "text/plain", {}, False)
    reader = open_driver(**place, sas_token=signature(azurite, container, "rl"))
    assert reader.read_range("k", 0, 1) == b"x"
    for call in (
        lambda: reader.write_index("k", b"y", "text/plain", {}, False),
        lambda: reader.begin_data("k", "text/plain", {}),
        lambda: reader.delete(["k"]),
    ):
        with pytest.raises(AccessDeniedError):
            call()


def test_a_signature_that_may_only_write_is_told_that_the_object_exists(azurite, container, open_driver):
    place = {"endpoint_url": azurite.account_url}
    driver = open_driver(**place, sas_token=signature(azurite, container, "w"))
    driver.write_index("k", b"x", "text/plain", {}, True)
    with pytest.raises(ObjectExistsError):
        driver.write_index("k", b"y", "text/plain", {}, True)
    with pytest.raises(AccessDeniedError):
        driver.stat("k")


def test_a_public_container_is_read_without_credentials(azurite, container, open_driver):
    container.set_container_access_policy({}, public_access=PublicAccess.CONTAINER)
    container.upload_blob("k", b"x")
    driver = open_driver(endpoint_url=azurite.account_url, anonymous="true")
    assert driver.read_range("k", 0, 1) == b"x"
    assert [found.key for found in driver.list_objects("", "")] == ["k"]
    with pytest.raises(AccessDeniedError):
        driver.write_index("k", b"y", "text/plain", {}, False)


# --- identities --------------------------------------------------------------------------------------------


def test_a_service_principal(secure_place, identities, principal, open_driver):
    assert works(open_driver(**secure_place, **principal))
    (asked,) = identities.asked  # a token is asked for once
    assert (asked["client_id"], asked["path"]) == ("me", f"/{TENANT}/oauth2/v2.0/token")
    assert asked["scope"] == "https://storage.azure.com/.default"


def test_a_token_that_has_expired_is_asked_for_anew(secure_place, identities, principal, open_driver):
    driver = open_driver(**secure_place, **principal)
    identities.lifetime_s = 0
    driver.write_index("k", b"x", "text/plain", {}, False)
    identities.lifetime_s = 3600
    assert driver.read_range("k", 0, 1) == b"x"
    assert len(identities.asked) == 2
    assert driver.stat("k").size_bytes == 1
    assert len(identities.asked) == 2


def test_a_callables_token_is_kept_until_it_is_about_to_expire(secure_place, identities, open_driver):
    calls = []

    def vend():
        calls.append(1)
        lifetime = timedelta(seconds=1 if len(calls) == 1 else 3600)
        return {"token": identities.token(), "expires_at": datetime.now(UTC) + lifetime}

    driver = open_driver(**secure_place, credentials=vend)
    driver.write_index("k", b"x", "text/plain", {}, False)
    assert driver.read_range("k", 0, 1) == b"x"
    assert len(calls) == 2
    assert driver.stat("k").size_bytes == 1
    assert len(calls) == 2


def test_a_callable_that_fails_is_denied_without_its_text(secure_place, open_driver):
    def vend():
        raise RuntimeError("hunter2secret")

    with pytest.raises(AccessDeniedError, match=r"'credentials' failed .*found RuntimeError") as caught:
        open_driver(**secure_place, credentials=vend).stat("k")
    assert "hunter2secret" not in "".join(traceback.format_exception(caught.value))


def test_a_block_that_azure_challenges_is_sent_again_whole(identities, principal, open_driver, tls):
    """Azure refuses a token with a challenge, which Azurite does not."""
    wanted = f"authorization_uri={identities.authority}/{TENANT} resource_id=https://storage.azure.com"
    refused = {"WWW-Authenticate": f"Bearer {wanted}", "x-ms-error-code": "InvalidAuthenticationInfo"}
    done = {"ETag": '"1"', "Last-Modified": "Sun, 01 Nov 2026 00:00:00 GMT"}
    blocks = []

    def challenge_first(request):
        if "comp=block" not in request.target:
            return Answer(status=201, headers=done)
        blocks.append(request.body)
        return Answer(status=401, headers=refused) if len(blocks) == 1 else Answer(status=201, headers=done)

    with Front(rule=challenge_first, tls=tls) as front:
        driver = open_driver(endpoint_url=f"{front.url}/account", ca_bundle=str(tls[0]), **principal)
        driver.write_block(driver.begin_data("k", "text/plain", {}), 1, 0, b"block" * 100_000)
        driver.close()
    assert blocks == [b"block" * 100_000] * 2


def test_a_managed_identity(secure_place, identities, open_driver, monkeypatch):
    monkeypatch.setenv("IDENTITY_ENDPOINT", identities.machine_endpoint)
    monkeypatch.setenv("IDENTITY_HEADER", "a-header")
    assert works(open_driver(**secure_place, managed_identity_client_id="this-one"))
    asked = identities.asked[0]
    assert (asked["client_id"], asked["header"]) == ("this-one", "a-header")
    assert asked["resource"] == "https://storage.azure.com"


def test_the_default_chain_has_the_environments_service_principal(
    secure_place, identities, open_driver, monkeypatch
):
    monkeypatch.setenv("AZURE_TENANT_ID", TENANT)
    monkeypatch.setenv("AZURE_CLIENT_ID", "from-environment")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", identities.client_secret)
    assert works(open_driver(**secure_place))
    assert identities.asked[0]["client_id"] == "from-environment"


def test_the_default_chain_has_a_workload_identity(
    secure_place, identities, open_driver, monkeypatch, tmp_path
):
    assertion = tmp_path / "token"
    assertion.write_text("signed-by-the-cluster")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "WorkloadIdentityCredential")
    monkeypatch.setenv("AZURE_TENANT_ID", TENANT)
    monkeypatch.setenv("AZURE_CLIENT_ID", "a-pod")
    monkeypatch.setenv("AZURE_FEDERATED_TOKEN_FILE", str(assertion))
    assert works(open_driver(**secure_place))
    assert identities.asked[0]["client_assertion"] == "signed-by-the-cluster"


def test_no_credentials_anywhere_are_told_with_a_hint(secure_place, open_driver):
    with pytest.raises(AccessDeniedError, match="Give account_key") as caught:
        open_driver(**secure_place).stat("k")
    assert caught.value.key == "k"


def test_an_identitys_token_is_not_sent_over_plain_http(azurite, open_driver):
    driver = open_driver(endpoint_url=azurite.account_url, managed_identity_client_id="this-one")
    with pytest.raises(OptionError, match="https"):
        driver.stat("k")


def test_no_account_is_told_at_the_first_call(open_driver):
    with pytest.raises(OptionError, match="no storage account"):
        open_driver().stat("k")


# --- certificates and proxies ------------------------------------------------------------------------------


def test_a_certificate_that_nobody_signed_is_refused_unless_it_is_named(secure, open_driver, tls, tmp_path):
    place = {"container": "tier", "connection_string": secure.connection_string}
    with pytest.raises(StoreError, match="ca_bundle") as caught:
        open_driver(**place).stat("k")
    assert not caught.value.retryable
    assert works(open_driver(**place, ca_bundle=str(tls[0])))
    with pytest.raises(OptionError, match="ca_bundle"):
        open_driver(**place, ca_bundle=str(tmp_path / "missing")).stat("k")


def test_requests_go_through_the_proxy(azurite, open_driver, monkeypatch):
    place = {"connection_string": azurite.connection_string}
    with Front(azurite.endpoint) as front:
        assert works(open_driver(**place, proxy=front.url))
        by_option = len(front.requests)
        assert by_option > 5
        monkeypatch.setenv("http_proxy", front.url)
        monkeypatch.setenv("no_proxy", "")
        assert works(open_driver(**place))
        assert len(front.requests) == 2 * by_option
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert works(open_driver(**place))
        assert len(front.requests) == 2 * by_option


def test_a_proxys_password_is_not_shown(azurite, open_driver):
    proxy = "http://me:hunter2@127.0.0.1:1"
    driver = open_driver(connection_string=azurite.connection_string, proxy=proxy)
    with pytest.raises(StoreUnavailableError) as caught:
        driver.stat("k")
    assert "hunter2" not in "".join(traceback.format_exception(caught.value)) + repr(driver)


def test_no_log_or_error_shows_a_secret(azurite, container, secure_place, principal, open_driver, caplog):
    caplog.set_level(logging.DEBUG)
    place = {"endpoint_url": azurite.account_url}
    token = signature(azurite, container, "racwdl")
    expired = signature(azurite, container, "racwdl", expires=timedelta(hours=-1))
    signed = [each.partition("sig=")[2].partition("&")[0] for each in (token, expired)]
    wrong_key = base64.b64encode(b"hunter2secret-key").decode()
    assert works(open_driver(**place, account_key=azurite.account_key))
    assert works(open_driver(**place, sas_token=token))
    assert works(open_driver(**secure_place, **principal))
    with Front(azurite.endpoint) as front:
        proxy = front.url.replace("://", "://me:hunter2secret@")
        assert works(open_driver(**place, account_key=azurite.account_key, proxy=proxy))
    denied = [
        open_driver(**place, sas_token=expired),
        open_driver(**place, account_key=wrong_key),
        open_driver(**secure_place, **principal | {"client_secret": "hunter2secret-wrong"}),
    ]
    shown = []
    for driver in denied:
        with pytest.raises(AccessDeniedError) as caught:
            driver.stat("k")
        shown += [*traceback.format_exception(caught.value), repr(driver)]
    assert "azure" in caplog.text
    secrets = [azurite.account_key, wrong_key, principal["client_secret"], "hunter2secret", *signed]
    for secret in [*secrets, *(unquote(each) for each in signed)]:
        assert secret not in caplog.text + "".join(shown)
