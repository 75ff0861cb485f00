"""Options and URLs of the driver `s3`, and what its client is made of them; nothing here asks a server."""

from __future__ import annotations

import inspect
import pickle

import pytest

from offload_core.storage.tier import registry
from offload_core.storage.tier.urls import open_store
from offload_drivers.s3 import CAPABILITIES, S3Driver
from offload_drivers.s3.options import ALIASES
from offload_hooks.errors import InvalidKeyError, OptionError

KEYS = {"access_key_id": "an-id", "secret_access_key": "hunter2secret"}


@pytest.fixture(autouse=True)
def _no_aws_settings(monkeypatch, tmp_path):
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def client_of(driver):
    """botocore's client, which asks nothing by itself."""
    client = driver._connection.files.run(driver._connection.client)
    driver.close()
    return client


# --- URLs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("s3://some-bucket", {"bucket": "some-bucket"}),
        ("s3://some-bucket/", {"bucket": "some-bucket"}),
        ("s3a://Some_Bucket.x/a/b", {"bucket": "Some_Bucket.x", "prefix": "a/b"}),
        ("s3n://some-bucket//a//", {"bucket": "some-bucket", "prefix": "a"}),
        ("S3://some-bucket/a%20b/ü c", {"bucket": "some-bucket", "prefix": "a%20b/ü c"}),
    ],
)
def test_a_url_names_bucket_and_prefix(url, options):
    assert S3Driver.options_from_url(url) == options


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3:///a",
        "s3:bucket",
        "gs://bucket",
        "s3://id:hunter2secret@bucket/a",
        "s3://hunter2secret@bucket",
        "s3://bucket/a?secret=hunter2secret",
        "s3://bucket/a#hunter2secret",
        "s3://bucket:80/a",
        "s3://[hunter2secret/a",
        "s3://bu cket/a",
    ],
)
def test_other_urls_are_refused_without_repeating_them(url):
    with pytest.raises(OptionError) as caught:
        S3Driver.options_from_url(url)
    assert "hunter2secret" not in f"{caught.value!r} {caught.value}"


def test_a_bucket_that_cannot_be_is_told_apart_from_one_that_is_missing():
    with pytest.raises(OptionError, match="the URL names no bucket"):
        S3Driver.options_from_url("s3:///a")
    with pytest.raises(OptionError, match=r"no name of a bucket.*found 'localhost:9000'"):
        S3Driver.options_from_url("s3://localhost:9000/bucket")


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_a_tier_is_opened_by_its_url(scheme):
    with open_store(f"{scheme}://bucket/a/b", region="eu-west-1", **KEYS) as tier:
        assert tier.describe().location == "s3://bucket/a/b/"


@pytest.mark.parametrize("name", ["s3", "S3", "aws-s3"])
def test_pulsar_has_names_for_the_driver(name):
    assert registry.load_driver(name) is S3Driver


# --- options -------------------------------------------------------------------------------------


def test_pulsars_names_are_aliases_whatever_their_case():
    given = {
        "S3MANAGEDLEDGEROFFLOADBUCKET": "bucket",
        "s3managedledgeroffloadregion": "eu-west-1",
        "s3ManagedLedgerOffloadServiceEndpoint": "http://localhost:9000/",
        "s3ManagedLedgerOffloadCredentialId": "an-id",
        "s3ManagedLedgerOffloadCredentialSecret": "hunter2secret",
        "s3ManagedLedgerOffloadRole": "",
        "s3ManagedLedgerOffloadRoleSessionName": "pulsar-s3-offload",
    }
    with open_store("aws-s3", **given) as tier:
        assert tier.describe().driver_metadata == {
            "managedLedgerOffloadDriver": "S3",
            "bucket": "bucket",
            "region": "eu-west-1",
            "serviceEndpoint": "http://localhost:9000",
        }


def test_aliases_name_options_that_there_are():
    assert set(ALIASES.values()) <= set(inspect.signature(S3Driver).parameters)
    general = {"managedLedgerOffloadBucket": "b2", "managedLedgerOffloadRegion": "r"}
    assert registry.make_driver("s3", general).describe().driver_metadata["region"] == "r"


def test_without_an_endpoint_it_is_amazons():
    assert S3Driver(bucket="bucket").describe().driver_metadata == {
        "managedLedgerOffloadDriver": "AWS_S3",
        "bucket": "bucket",
        "region": "",
        "serviceEndpoint": "",
    }


def test_the_limits_are_those_of_s3():
    assert (CAPABILITIES.max_blocks, CAPABILITIES.min_block_bytes) == (10_000, 5 * 1024**2)
    assert CAPABILITIES.max_block_bytes == 5 * 1024**3


def test_a_prefix_is_without_slashes_around_it():
    for prefix in ("a/b", "/a/b", "a/b/", "//a/b//"):
        assert S3Driver(bucket="bucket", prefix=prefix).describe().location == "s3://bucket/a/b/"
    assert S3Driver(bucket="bucket", prefix="/").describe().location == "s3://bucket/"


def test_a_key_has_room_beside_the_prefix_only():
    driver = S3Driver(bucket="bucket", prefix="p" * 1000, **KEYS)
    with pytest.raises(InvalidKeyError):
        driver.stat("k" * 24)


@pytest.mark.parametrize(
    "options",
    [
        {"bucket": ""},
        {"bucket": "a/b"},
        {"bucket": "-a"},
        {"prefix": "a/../b"},
        {"prefix": ".offload-uploads"},
        {"region": "a\nb"},
        {"endpoint_url": "localhost:9000"},
        {"endpoint_url": "ftp://localhost"},
        {"endpoint_url": "http://id:hunter2secret@localhost"},
        {"endpoint_url": "http://localhost?x=hunter2secret"},
        {"endpoint_url": "http://localhost:port"},
        {"sts_endpoint_url": "https://sts"},
        {"external_id": "hunter2secret"},
        {"access_key_id": "an-id"},
        {"secret_access_key": "hunter2secret"},
        {"session_token": "hunter2secret"},
        {**KEYS, "profile": "x"},
        {**KEYS, "anonymous": "true"},
        {"anonymous": True, "role_arn": "arn:aws:iam::1:role/x"},
        {"anonymous": "perhaps"},
        {"proxy": "hunter2secret"},
        {"proxy": "socks5://u:hunter2secret@localhost"},
        {"addressing_style": "other"},
        {"connect_timeout_s": "soon"},
        {"read_timeout_s": 0},
        {"max_connections": "0"},
        {"max_connections": "1.5"},
        {"checksum": "md5"},
        {"payload_signing": "sometimes"},
        {"server_side_encryption": "ROT13"},
        {"kms_key_id": "a-key"},
        {"kms_key_id": "a-key", "server_side_encryption": "AES256"},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused_without_their_secrets(options):
    with pytest.raises(OptionError) as caught:
        S3Driver(**{"bucket": "bucket", **options})
    assert "hunter2secret" not in f"{caught.value!r} {caught.value}"
    assert any(name in str(caught.value) for name in options)


def test_secrets_are_nowhere_to_be_seen():
    driver = S3Driver(
        bucket="bucket",
        role_arn="arn:aws:iam::1:role/x",
        external_id="hunter2secret",
        session_token="hunter2secret",
        proxy="http://u:hunter2secret@localhost:1",
        **KEYS,
    )
    shown = f"{driver!r} {driver} {driver.describe()} {driver._options!r} {driver._connection!r}"
    assert "hunter2secret" not in shown


def test_a_tier_crosses_to_other_processes_as_its_options():
    with open_store("s3://bucket/a", endpoint_url="http://localhost:1", max_connections="7", **KEYS) as tier:
        again = pickle.loads(pickle.dumps(tier))
        assert again.describe() == tier.describe()
        assert "hunter2secret" not in repr(again)


# --- what the client is made of ------------------------------------------------------------------


def test_the_client_is_configured_as_asked(tmp_path):
    driver = S3Driver(
        bucket="bucket",
        region="eu-central-1",
        addressing_style="virtual",
        connect_timeout_s="1.5",
        read_timeout_s=7,
        max_connections="3",
        proxy="http://u:hunter2secret@localhost:3128",
        ca_bundle=str(tmp_path / "ca.pem"),
        **KEYS,
    )
    client = client_of(driver)
    config = client.meta.config
    assert (client.meta.region_name, client.meta.endpoint_url) == (
        "eu-central-1",
        "https://s3.eu-central-1.amazonaws.com",
    )
    assert (config.connect_timeout, config.read_timeout, config.max_pool_connections) == (1.5, 7.0, 3)
    assert config.s3["addressing_style"] == "virtual"
    assert set(config.proxies) == {"http", "https"}
    assert config.retries["total_max_attempts"] == 1
    assert (config.request_checksum_calculation, config.response_checksum_validation) == (
        "when_required",
        "when_required",
    )
    assert client._endpoint.http_session._verify == str(tmp_path / "ca.pem")


def test_region_endpoint_and_addressing_come_from_the_profile_where_no_option_says_otherwise(tmp_path):
    (tmp_path / "config").write_text(
        "[profile cold]\nregion = eu-north-1\nendpoint_url = http://localhost:9000\n"
        "s3 =\n  addressing_style = path\n"
    )
    client = client_of(S3Driver(bucket="bucket", profile="cold"))
    assert (client.meta.region_name, client.meta.endpoint_url) == ("eu-north-1", "http://localhost:9000")
    assert client.meta.config.s3["addressing_style"] == "path"
    client = client_of(S3Driver(bucket="bucket", profile="cold", region="eu-west-1"))
    assert client.meta.region_name == "eu-west-1"


def test_a_profile_that_is_not_there_is_an_option_error():
    with pytest.raises(OptionError):
        S3Driver(bucket="bucket", profile="nowhere").stat("k")


@pytest.mark.parametrize("region", ["evil.example/#", "a.b", "us-east-1@x", "x" * 64])
def test_a_region_cannot_name_another_server(region):
    with pytest.raises(OptionError, match="'region'"):
        S3Driver(bucket="bucket", region=region, **KEYS)


def test_credentials_of_a_role_are_received_over_tls_only():
    role = {"bucket": "bucket", "role_arn": "arn:aws:iam::1:role/r", **KEYS}
    with pytest.raises(OptionError, match="over https only"):
        S3Driver(sts_endpoint_url="http://sts.invalid", **role)
    for url in ("https://sts.invalid", "http://127.0.0.1:1"):
        S3Driver(sts_endpoint_url=url, **role)
