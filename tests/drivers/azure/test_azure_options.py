from __future__ import annotations

import inspect

import pytest

from offload_drivers.azure import AzureDriver
from offload_drivers.azure.access import resolve
from offload_drivers.azure.options import checked_options
from offload_hooks.errors import OptionError

KEY = "c2VjcmV0LWFjY291bnQta2V5"
SAS = "sv=2022-11-02&sr=c&sp=racwdl&sig=c2VjcmV0%2Bc2ln%3D"
SECRETS = (KEY, "c2VjcmV0%2Bc2ln%3D", "c2VjcmV0+c2ln=", "hunter2")
DEFAULTS = dict.fromkeys(inspect.signature(AzureDriver).parameters, "") | {
    "connect_timeout_s": 20,
    "read_timeout_s": 60,
}


def access(environ=(), **given):
    return resolve(checked_options(**DEFAULTS | {"container": "tier"} | given), dict(environ))


def shown(access):
    """Account, kind and what the client will be given."""
    return access.account_url, access.kind


def test_a_description_names_the_driver_and_the_accounts_place():
    description = AzureDriver("tier", account_name="acct", account_key=KEY).describe()
    assert description.name == "azure"
    assert description.driver_metadata["serviceEndpoint"] == "https://acct.blob.core.windows.net"


# --- accounts and credentials ------------------------------------------------------------------------------

PUBLIC = "https://acct.blob.core.windows.net"
STRING = f"DefaultEndpointsProtocol=https;AccountName=acct;AccountKey={KEY};EndpointSuffix=core.windows.net"


def test_options_name_account_and_credentials():
    assert shown(access(account_name="acct", account_key=KEY)) == (PUBLIC, "account key")
    assert shown(access(account_name="acct", sas_token=f"?{SAS}")) == (PUBLIC, "SAS token")
    assert shown(access(account_name="acct", anonymous=True)) == (PUBLIC, "anonymous")
    assert shown(access(connection_string=STRING)) == (PUBLIC, "account key")
    principal = {"tenant_id": "t", "client_id": "c", "client_secret": "hunter2"}
    assert shown(access(account_name="acct", **principal)) == (PUBLIC, "service principal")
    assert shown(access(account_name="acct", managed_identity_client_id="m")) == (PUBLIC, "managed identity")
    assert shown(access(account_name="acct")) == (PUBLIC, "default identity")


def test_the_client_is_given_what_the_options_say():
    by_key = access(connection_string=STRING).make_credential()
    assert (by_key.named_key.name, by_key.named_key.key) == ("acct", KEY)
    assert access(account_name="acct", sas_token=f"?{SAS}").make_credential().signature == SAS
    assert access(account_name="acct", anonymous=True).make_credential() is None


@pytest.mark.parametrize(
    ("text", "account_url"),
    [
        (STRING, PUBLIC),
        (f"AccountName=acct;AccountKey={KEY}", PUBLIC),
        (
            f"accountname=acct;accountkey={KEY};EndpointSuffix=core.chinacloudapi.cn;",
            "https://acct.blob.core.chinacloudapi.cn",
        ),
        (
            f"BlobEndpoint=http://127.0.0.1:10000/acct/;AccountName=acct;AccountKey={KEY}",
            "http://127.0.0.1:10000/acct",
        ),
        (f"BlobEndpoint={PUBLIC};SharedAccessSignature={SAS}", PUBLIC),
        (f"BlobEndpoint={PUBLIC}/?{SAS}", PUBLIC),
    ],
)
def test_connection_strings_are_taken_as_azure_writes_them(text, account_url):
    found = access(connection_string=text)
    assert found.account_url == account_url
    assert found.kind == ("SAS token" if SAS in text else "account key")


@pytest.mark.parametrize(
    "given",
    [
        {"connection_string": "hunter2"},
        {"connection_string": "AccountName=acct;hunter2"},
        {"connection_string": "AccountKey=hunter2"},
        {"connection_string": "BlobEndpoint=https://u:hunter2@x;SharedAccessSignature=s"},
        {"connection_string": STRING, "account_name": "other"},
        {"account_name": "acct", "account_key": "hunter2!"},
        {"account_key": KEY},
        {},
        {"endpoint_url": "http://127.0.0.1:10000/acct"},
    ],
)
def test_no_account_or_credentials_that_cannot_be_are_refused(given):
    with pytest.raises(OptionError) as caught:
        access(**given)
    assert "hunter2" not in f"{caught.value} {caught.value!r}"


@pytest.mark.parametrize(
    ("environ", "found"),
    [
        ({"AZURE_STORAGE_CONNECTION_STRING": STRING}, (PUBLIC, "account key")),
        ({"AZURE_STORAGE_ACCOUNT": "acct", "AZURE_STORAGE_ACCESS_KEY": KEY}, (PUBLIC, "account key")),
        ({"AZURE_STORAGE_ACCOUNT_NAME": "acct", "AZURE_STORAGE_KEY": KEY}, (PUBLIC, "account key")),
        ({"AZURE_STORAGE_ACCOUNT": "acct", "AZURE_STORAGE_ACCOUNT_KEY": KEY}, (PUBLIC, "account key")),
        ({"AZURE_STORAGE_ACCOUNT": "acct", "AZURE_STORAGE_SAS_TOKEN": SAS}, (PUBLIC, "SAS token")),
        ({"AZURE_STORAGE_ACCOUNT": "acct"}, (PUBLIC, "default identity")),
        (
            {"AZURE_STORAGE_CONNECTION_STRING": STRING, "AZURE_STORAGE_ACCOUNT": "other"},
            (PUBLIC, "account key"),
        ),
    ],
)
def test_the_environment_is_asked_when_no_option_tells(environ, found):
    assert shown(access(environ)) == found


def test_what_the_environment_holds_of_one_account_is_not_used_for_another():
    theirs = {"AZURE_STORAGE_ACCOUNT": "theirs", "AZURE_STORAGE_KEY": KEY, "AZURE_STORAGE_SAS_TOKEN": SAS}
    assert access(theirs, account_name="acct").kind == "default identity"
    assert access({"AZURE_STORAGE_KEY": KEY}, account_name="acct").kind == "account key"
    string = {"AZURE_STORAGE_CONNECTION_STRING": STRING}
    assert access(string, account_name="other").kind == "default identity"
    assert shown(access(string, account_name="acct")) == (PUBLIC, "account key")
    assert access(string, endpoint_url="https://other.blob.core.windows.net").kind == "default identity"
    moved = access(string, endpoint_url="https://acct.privatelink.example.com/acct")
    assert shown(moved) == ("https://acct.privatelink.example.com/acct", "account key")


def test_explicit_credentials_come_before_the_environments():
    environ = {"AZURE_STORAGE_CONNECTION_STRING": STRING, "AZURE_STORAGE_ACCOUNT": "acct"}
    assert access(environ, account_name="acct", sas_token=SAS).kind == "SAS token"
    assert access(environ, account_name="acct", anonymous="true").kind == "anonymous"
    assert access(environ, account_name="acct", managed_identity_client_id="m").kind == "managed identity"


def test_all_forms_of_a_secret_are_known_and_none_is_shown():
    found = access(account_name="acct", sas_token=SAS, proxy="http://me:hunter2@proxy:3128")
    assert set(found.secrets) >= {"c2VjcmV0%2Bc2ln%3D", "c2VjcmV0+c2ln=", "hunter2"}
    assert not [secret for secret in SECRETS if secret in repr(found)]


def test_a_signature_is_sent_over_tls_only():
    for endpoint in ("http://store.invalid/acct", "http://10.0.0.1/acct"):
        with pytest.raises(OptionError, match="over https only"):
            access(endpoint_url=endpoint, sas_token=SAS)
    for endpoint in ("https://store.invalid/acct", "http://127.0.0.1:1/acct"):
        assert access(endpoint_url=endpoint, sas_token=SAS).kind == "SAS token"
