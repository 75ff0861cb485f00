"""Options and URLs of the stores' drivers, by tables of what differs; nothing here asks a server."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

from offload_core.storage.tier import Tier, open_store, registry
from offload_drivers.azure import AzureDriver
from offload_drivers.gcs import GcsDriver
from offload_drivers.hdfs import HdfsDriver
from offload_drivers.s3 import S3Driver
from offload_hooks.errors import OptionError

SECRET = "hunter2secret"
KEYS = {"access_key_id": "an-id", "secret_access_key": SECRET}
LEAST: dict[Any, dict[str, Any]] = {
    S3Driver: {"bucket": "bucket"},
    GcsDriver: {"bucket": "bucket"},
    AzureDriver: {"container": "tier"},
    HdfsDriver: {"url": "hdfs://namenode:8020"},
}
"""The options without which a driver is not made."""


def cases(of_driver):
    """A table by driver, as parameters `driver, …`."""
    return [
        pytest.param(
            driver, *(case if isinstance(case, tuple) else (case,)), id=f"{driver.__name__}-{number}"
        )
        for driver, table in of_driver.items()
        for number, case in enumerate(table)
    ]


def text_of(error):
    return f"{error.value} {error.value!r}"


@pytest.mark.parametrize(
    ("driver", "url", "options"),
    cases(
        {
            S3Driver: [
                ("s3://some-bucket", {"bucket": "some-bucket"}),
                ("s3://some-bucket/", {"bucket": "some-bucket"}),
                ("s3a://Some_Bucket.x/a/b", {"bucket": "Some_Bucket.x", "prefix": "a/b"}),
                ("s3n://some-bucket//a//", {"bucket": "some-bucket", "prefix": "a"}),
                ("S3://some-bucket/a%20b/ü c", {"bucket": "some-bucket", "prefix": "a%20b/ü c"}),
            ],
            GcsDriver: [
                ("gs://bucket", {"bucket": "bucket"}),
                ("gs://bucket/", {"bucket": "bucket"}),
                ("GS://my_bucket.example.com//a/b//", {"bucket": "my_bucket.example.com", "prefix": "a/b"}),
                ("gs://b-1/100%25/ä", {"bucket": "b-1", "prefix": "100%25/ä"}),
            ],
            AzureDriver: [
                ("az://tier", {"container": "tier"}),
                ("az://tier/", {"container": "tier"}),
                ("AZ://tier/a/b/", {"container": "tier", "prefix": "a/b"}),
                ("abfs://tier/a%20b", {"container": "tier", "prefix": "a%20b"}),
                ("az://$root/x", {"container": "$root", "prefix": "x"}),
                (
                    "abfss://tier@acct.dfs.core.windows.net/a/b",
                    {"container": "tier", "account_name": "acct", "prefix": "a/b"},
                ),
                ("abfs://tier@acct.blob.core.windows.net", {"container": "tier", "account_name": "acct"}),
                ("az://tier@ACCT.dfs.core.windows.net", {"container": "tier", "account_name": "acct"}),
                (
                    "abfss://tier@acct.dfs.core.chinacloudapi.cn/a",
                    {
                        "container": "tier",
                        "account_name": "acct",
                        "endpoint_url": "https://acct.blob.core.chinacloudapi.cn",
                        "prefix": "a",
                    },
                ),
                (
                    "abfss://tier@acct.z42.dfs.storage.azure.net/",
                    {
                        "container": "tier",
                        "account_name": "acct",
                        "endpoint_url": "https://acct.z42.blob.storage.azure.net",
                    },
                ),
            ],
        }
    ),
)
def test_a_url_stands_for_options(driver, url, options):
    assert driver.options_from_url(url) == options
    driver(**options)


@pytest.mark.parametrize(
    ("driver", "url"),
    cases(
        {
            S3Driver: [
                "s3://",
                "s3:///a",
                "s3:bucket",
                "gs://bucket",
                f"s3://id:{SECRET}@bucket/a",
                f"s3://{SECRET}@bucket",
                f"s3://bucket/a?secret={SECRET}",
                f"s3://bucket/a#{SECRET}",
                "s3://bucket:80/a",
                f"s3://[{SECRET}/a",
                "s3://bu cket/a",
            ],
            GcsDriver: [
                "gs://",
                "gs:///prefix",
                "gs:bucket/prefix",
                "s3://bucket",
                "gs://bucket:80/x",
                f"gs://bucket/x?token={SECRET}",
                "gs://bucket/x?",
                f"gs://bucket/x#{SECRET}",
                f"gs://user:{SECRET}@bucket/x",
                f"gs://{SECRET}@bucket",
                f"gs://[{SECRET}/x",
            ],
            AzureDriver: [
                "s3://tier",
                "az://",
                "az:///a",
                "az://Tier/a",
                f"az://tier/a?sig={SECRET}",
                f"az://tier/a#{SECRET}",
                f"az://tier:{SECRET}@acct.dfs.core.windows.net/a",
                f"az://u@{SECRET}@acct.dfs.core.windows.net/a",
                "abfs://tier@acct.example.com/a",
                "abfs://tier@acct.dfs.core.windows.net.example.com/a",
                "abfs://tier@acct.dfs.core.windows.net:444/a",
                "abfs://tier@acct-secondary.dfs.core.windows.net/a",
                "abfs://tier@127.0.0.1/a",
                "az://tier:10000/a",
                "az://[tier/a",
            ],
            HdfsDriver: [
                "",
                "/a",
                "s3://bucket/a",
                "hdfs://namenode:port/a",
                "hdfs://namenode:8020/a/../b",
                "hdfs://namenode:8020/a:b",
                "hdfs://namenode:8020/%ff",
                f"hdfs://namenode:8020/a?user={SECRET}",
                f"hdfs://namenode:8020/a#{SECRET}",
                f"hdfs://user:{SECRET}@namenode:8020/a",
                f"hdfs://{SECRET}@namenode:8020/a",
                f"hdfs://[{SECRET}/a",
            ],
        }
    ),
)
def test_any_other_url_is_refused_without_repeating_it(driver, url):
    for make in (driver.options_from_url, *([driver] if driver is HdfsDriver else [])):
        with pytest.raises(OptionError) as caught:
            make(url)
        assert SECRET not in text_of(caught)


@pytest.mark.parametrize(
    ("driver", "url", "fault"),
    cases(
        {
            S3Driver: [
                ("s3:///a", "the URL names no bucket"),
                ("s3://localhost:9000/bucket", r"no name of a bucket.*found 'localhost:9000'"),
            ],
            GcsDriver: [
                ("gs:///a", "the URL names no bucket"),
                ("gs://localhost:4443/bucket", r"no name of a bucket.*found 'localhost:4443'"),
            ],
            AzureDriver: [
                ("az:///x", "the URL names no container"),
                ("az://c/x", r"no name of a container.*3 to 63.*found 'c'"),
            ],
        }
    ),
)
def test_a_name_that_cannot_be_is_told_apart_from_one_that_is_missing(driver, url, fault):
    with pytest.raises(OptionError, match=fault):
        driver.options_from_url(url)


@pytest.mark.parametrize(
    ("driver", "given", "location"),
    cases(
        {
            S3Driver: [
                *(({"prefix": prefix}, "s3://bucket/a/b/") for prefix in ("a/b", "/a/b", "a/b/", "//a/b//")),
                ({"prefix": "/"}, "s3://bucket/"),
            ],
            GcsDriver: [({"prefix": "/a/b/", "token": SECRET}, "gs://bucket/a/b"), ({}, "gs://bucket")],
            AzureDriver: [
                ({"prefix": "/a/b/", "account_name": "acct", "account_key": SECRET}, "az://tier/a/b"),
                ({}, "az://tier"),
            ],
            HdfsDriver: [
                ({"url": "hdfs://namenode:8020"}, "hdfs://namenode:8020/"),
                ({"url": "hdfs://namenode:8020/a/b/"}, "hdfs://namenode:8020/a/b"),
                ({"url": "HDFS://namenode:8020//a//b", "root": "/c/d/"}, "hdfs://namenode:8020/a/b/c/d"),
                (
                    {"url": "hdfs://nameservice/a%20b/%C3%A4", "root": "100%"},
                    "hdfs://nameservice/a%20b/%C3%A4/100%25",
                ),
                ({"url": "hdfs:///a"}, "hdfs:///a"),
            ],
        }
    ),
)
def test_the_location_is_a_url_that_opens_the_same_tier(driver, given, location):
    assert driver(**LEAST[driver] | given).describe().location == location
    assert driver(**driver.options_from_url(location)).describe().location == location


@pytest.mark.parametrize(
    ("name", "given", "metadata"),
    [
        ("s3", {"bucket": "b"}, ("AWS_S3", "b", "", "")),
        (
            "aws-s3",
            {
                "S3MANAGEDLEDGEROFFLOADBUCKET": "b",
                "s3managedledgeroffloadregion": "eu-west-1",
                "s3ManagedLedgerOffloadServiceEndpoint": "http://localhost:9000/",
                "s3ManagedLedgerOffloadCredentialId": "an-id",
                "s3ManagedLedgerOffloadCredentialSecret": SECRET,
                "s3ManagedLedgerOffloadRole": "",
                "s3ManagedLedgerOffloadRoleSessionName": "pulsar-s3-offload",
            },
            ("S3", "b", "eu-west-1", "http://localhost:9000"),
        ),
        (
            "S3",
            {"managedLedgerOffloadBucket": "b2", "managedLedgerOffloadRegion": "r"},
            ("AWS_S3", "b2", "r", ""),
        ),
        ("gcs", {"bucket": "b"}, ("GOOGLE_CLOUD_STORAGE", "b", "", "")),
        *(
            (
                name,
                {
                    "gcsmanagedledgeroffloadbucket": "b",
                    "gcsManagedLedgerOffloadRegion": "europe-west3",
                    "gcsManagedLedgerOffloadServiceAccountKeyFile": "/tmp/key.json",
                    "managedledgeroffloadserviceendpoint": "https://storage.example:444/",
                },
                ("GOOGLE_CLOUD_STORAGE", "b", "europe-west3", "https://storage.example:444"),
            )
            for name in ("gcs", "google-cloud-storage")
        ),
        (
            "azureblob",
            {
                "managedledgeroffloadbucket": "tier",
                "managedLedgerOffloadServiceEndpoint": "https://acct.blob.core.windows.net/",
                "ANONYMOUS": "true",
                "account_key": "",
            },
            ("AZURE_BLOB", "tier", "", "https://acct.blob.core.windows.net"),
        ),
    ],
)
def test_pulsars_names_are_taken_in_any_case_and_its_brokers_find_their_properties(name, given, metadata):
    described = registry.make_driver(name, given).describe()
    names = ("managedLedgerOffloadDriver", "bucket", "region", "serviceEndpoint")
    assert dict(described.driver_metadata) == dict(zip(names, metadata, strict=True))


def test_pulsars_names_of_hdfs():
    driver = registry.make_driver("hdfs", {"filesystemuri": "hdfs://namenode:8020/a"})
    assert driver.describe().location == "hdfs://namenode:8020/a"
    assert driver.describe().driver_metadata == {
        "storageBasePath": "/a",
        "serviceEndpoint": "hdfs://namenode:8020",
    }


@pytest.mark.parametrize("driver", [S3Driver, GcsDriver, AzureDriver])
def test_aliases_name_options_that_there_are_and_are_none_themselves(driver):
    own = inspect.signature(driver).parameters.keys()
    assert set(driver.option_aliases.values()) <= own
    assert not (driver.option_aliases.keys() | driver.pointless_options.keys()) & own


@pytest.mark.parametrize(
    ("url", "by_name", "theirs"),
    [
        (  # s3fs
            "s3://bucket/tier",
            {**KEYS, "session_token": "t", "endpoint_url": "http://127.0.0.1:1", "region": "eu-west-1"},
            {
                "key": "an-id",
                "secret": SECRET,
                "token": "t",
                "client_kwargs": {"endpoint_url": "http://127.0.0.1:1", "region_name": "eu-west-1"},
            },
        ),
        ("s3://bucket/tier", {"anonymous": True}, {"anon": True}),
        (  # delta-rs, Polars
            "s3://bucket/tier",
            {**KEYS, "endpoint_url": "http://127.0.0.1:1", "region": "eu-west-1"},
            {
                "AWS_ACCESS_KEY_ID": "an-id",
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_REGION": "eu-west-1",
                "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
                "AWS_ALLOW_HTTP": "true",
                "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
                "aws_conditional_put": "etag",
            },
        ),
        ("gs://bucket/tier", {"token": "ya29.x"}, {"token": "ya29.x", "project": "a-project"}),  # gcsfs
        (
            "gs://bucket/tier",
            {"service_account_file": "/k.json"},
            {"GOOGLE_APPLICATION_CREDENTIALS": "/k.json"},
        ),
        (  # adlfs
            "az://tier/x",
            {"account_name": "acct", "account_key": "a2V5"},
            {"account_name": "acct", "account_key": "a2V5"},
        ),
        (  # delta-rs
            "az://tier/x",
            {"account_name": "acct", "sas_token": "sig=x"},
            {"AZURE_STORAGE_ACCOUNT_NAME": "acct", "AZURE_STORAGE_SAS_KEY": "sig=x"},
        ),
        (
            "az://tier/x",
            {"account_name": "acct", "tenant_id": "t", "client_id": "c", "client_secret": SECRET},
            {
                "azure_storage_account_name": "acct",
                "azure_storage_tenant_id": "t",
                "azure_storage_client_id": "c",
                "azure_storage_client_secret": SECRET,
            },
        ),
    ],
)
def test_options_of_other_tools_are_ours_by_other_names(url, by_name, theirs):
    mine, other = open_store(url, **by_name).spec, open_store(url, storage_options=theirs).spec
    named = registry.driver_options_by_own_names(other.driver, other.options)
    assert named == registry.driver_options_by_own_names(mine.driver, mine.options)


@pytest.mark.parametrize("token", ["google_default", "anon", "/keys/account.json"])
def test_a_token_that_is_a_way_of_gcsfs_to_find_one_is_refused(token):
    with pytest.raises(OptionError, match="'token' is an access token"):
        open_store("gs://bucket", token=token)


@pytest.mark.parametrize(
    ("driver", "text", "values"),
    cases(
        {
            GcsDriver: [
                (
                    {
                        "anonymous": "TRUE",
                        "connect_timeout_s": "2.5",
                        "read_timeout_s": "7",
                        "storage_class": "nearline",
                    },
                    {
                        "anonymous": True,
                        "connect_timeout_s": 2.5,
                        "read_timeout_s": 7.0,
                        "storage_class": "NEARLINE",
                    },
                ),
                (
                    dict.fromkeys(
                        ("prefix", "region", "endpoint_url", "service_account_file", "token", "anonymous"), ""
                    )
                    | {"proxy": ""},
                    {},
                ),
                ({"prefix": None, "token": None, "anonymous": None}, {}),
                ({"service_account_file": "/tmp/key.json"}, {"service_account_file": "/tmp/key.json"}),
            ],
            AzureDriver: [
                ({"anonymous": "true", "read_timeout_s": "2.5"}, {"anonymous": True, "read_timeout_s": 2.5})
            ],
            HdfsDriver: [
                ({"replication": "2", "timeout_s": "1.5"}, {"replication": 2, "timeout_s": 1.5}),
                ({"replication": ""}, {"replication": None}),
            ],
        }
    ),
)
def test_options_may_all_be_text_and_an_empty_one_is_not_given(driver, text, values):
    options = driver(**LEAST[driver] | text)._options
    assert options == driver(**LEAST[driver] | values)._options
    assert {name: getattr(options, name) for name in values} == values


def named(*options):
    """Options that make no sense, with the name of one of them as what the error names."""
    return [(given, "|".join(given)) for given in options]


@pytest.mark.parametrize(
    ("driver", "given", "fault"),
    cases(
        {
            S3Driver: named(
                {"bucket": ""},
                {"bucket": "a/b"},
                {"bucket": "-a"},
                {"prefix": "a/../b"},
                {"prefix": ".offload-uploads"},
                {"region": "a\nb"},
                *({"region": region} for region in ("evil.example/#", "a.b", "us-east-1@x", "x" * 64)),
                {"endpoint_url": "localhost:9000"},
                {"endpoint_url": "ftp://localhost"},
                {"endpoint_url": f"http://id:{SECRET}@localhost"},
                {"endpoint_url": f"http://localhost?x={SECRET}"},
                {"endpoint_url": "http://localhost:port"},
                {"sts_endpoint_url": "https://sts"},
                {"external_id": SECRET},
                {"access_key_id": "an-id"},
                {"secret_access_key": SECRET},
                {"session_token": SECRET},
                {**KEYS, "profile": "x"},
                {**KEYS, "anonymous": "true"},
                {"anonymous": True, "role_arn": "arn:aws:iam::1:role/x"},
                {"anonymous": "perhaps"},
                {"proxy": SECRET},
                {"proxy": f"socks5://u:{SECRET}@localhost"},
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
            ),
            GcsDriver: named(
                {"bucket": ""},
                {"bucket": "a/b"},
                {"prefix": "a/../b"},
                {"prefix": ".offload-uploads"},
                {"anonymous": "perhaps"},
                {"connect_timeout_s": "0"},
                {"read_timeout_s": "nan"},
                {"read_timeout_s": "soon"},
                {"endpoint_url": "host:80"},
                {"endpoint_url": "http://host/path"},
                {"endpoint_url": f"http://user:{SECRET}@host"},
                {"endpoint_url": f"http://host?key={SECRET}"},
                {"proxy": f"socks://user:{SECRET}@host"},
                {"token": SECRET + "\x00"},
                {"storage_class": "cold storage"},
                {"token": SECRET, "anonymous": True},
                {"token": SECRET, "service_account_json": SECRET},
                {"service_account_file": "/x", "service_account_json": SECRET},
                {"anonymous": True, "impersonate_service_account": "a@b"},
            ),
            AzureDriver: [
                *named(
                    {"container": "Tier"},
                    {"container": "a"},
                    {"container": "a--b"},
                    {"container": "x" * 64},
                    {"container": "a/b"},
                    {"account_name": "Not-An-Account"},
                    {"prefix": "a/../b"},
                    {"prefix": "a//b"},
                    {"prefix": "dots./b"},
                    {"endpoint_url": "ftp://x"},
                    {"endpoint_url": f"https://user:{SECRET}@x"},
                    {"endpoint_url": f"https://x/?sig={SECRET}"},
                    {"endpoint_url": "https://x:y"},
                    {"proxy": SECRET},
                    {"anonymous": "perhaps"},
                    {"read_timeout_s": "0"},
                    {"connect_timeout_s": "soon"},
                    {"account_key": f"{SECRET}\x01"},
                ),
                ({"account_key": SECRET, "sas_token": SECRET}, "exclude each other"),
                ({"account_key": SECRET, "anonymous": True}, "exclude each other"),
                ({"connection_string": SECRET, "managed_identity_client_id": "x"}, "exclude each other"),
                ({"tenant_id": "t", "client_secret": SECRET}, "go together"),
                ({"client_id": "c"}, "go together"),
            ],
            HdfsDriver: named(
                {"replication": 0},
                {"replication": "many"},
                {"timeout_s": 0},
                {"timeout_s": "soon"},
                {"root": "a/../b"},
                {"user": "a\nb"},
                {"kerberos_keytab": "/k"},
                {"kerberos_cache": "/c"},
            ),
        }
    ),
)
def test_options_that_make_no_sense_are_refused_by_name_and_no_secret_is_repeated(driver, given, fault):
    with pytest.raises(OptionError, match=fault) as caught:
        driver(**LEAST[driver] | given)
    assert SECRET not in text_of(caught)


@pytest.mark.parametrize(
    ("url", "driver", "given"),
    [
        (
            "s3://bucket/a",
            S3Driver,
            {
                "role_arn": "arn:aws:iam::1:role/x",
                "external_id": SECRET,
                "session_token": SECRET,
                "proxy": f"http://u:{SECRET}@localhost:1",
                "endpoint_url": "http://localhost:1",
                "max_connections": "7",
                **KEYS,
            },
        ),
        ("gs://bucket/x", GcsDriver, {"token": SECRET, "proxy": f"http://user:{SECRET}@localhost:1"}),
        ("gs://bucket/x", GcsDriver, {"service_account_json": SECRET}),
        ("gs://bucket/x", GcsDriver, {"endpoint_url": "http://127.0.0.1:1", "anonymous": "true"}),
        ("az://tier/cold", AzureDriver, {"account_name": "acct", "account_key": SECRET}),
        ("hdfs://namenode:8020/a", HdfsDriver, {"replication": "2"}),
    ],
)
def test_a_tier_is_pickled_by_its_options_and_shows_no_secret(url, driver, given):
    tier = open_store(url, **given)
    again = pickle.loads(pickle.dumps(tier))
    assert isinstance(again, Tier)
    assert again.describe() == tier.describe()
    made = driver(**LEAST[driver] | given)
    shown = f"{made!r} {made} {made._options!r} {made.describe()} {tier!r} {tier.describe()} {again!r}"
    assert SECRET not in shown
    if driver is S3Driver:
        assert SECRET not in repr(made._connection)
