"""Options and URLs of the driver `s3`, and what its client is made of them; nothing here asks a server."""

from __future__ import annotations

import pytest

from offload_core.storage.tier.urls import open_store
from offload_drivers.s3 import S3Driver
from offload_hooks.errors import InvalidKeyError, OptionError

KEYS = {"access_key_id": "an-id", "secret_access_key": "hunter2secret"}


def client_of(driver):
    """botocore's client, which asks nothing by itself."""
    client = driver._connection.files.run(driver._connection.client)
    driver.close()
    return client


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_a_tier_is_opened_by_its_url(scheme):
    with open_store(f"{scheme}://bucket/a/b", region="eu-west-1", **KEYS) as tier:
        assert tier.describe().location == "s3://bucket/a/b/"


def test_a_key_has_room_beside_the_prefix_only():
    driver = S3Driver(bucket="bucket", prefix="p" * 1000, **KEYS)
    with pytest.raises(InvalidKeyError):
        driver.stat("k" * 24)


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


def test_credentials_of_a_role_are_received_over_tls_only():
    role = {"bucket": "bucket", "role_arn": "arn:aws:iam::1:role/r", **KEYS}
    with pytest.raises(OptionError, match="over https only"):
        S3Driver(sts_endpoint_url="http://sts.invalid", **role)
    for url in ("https://sts.invalid", "http://127.0.0.1:1"):
        S3Driver(sts_endpoint_url=url, **role)
