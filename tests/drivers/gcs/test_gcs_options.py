from __future__ import annotations

import pickle

import pytest

from offload_core.storage.tier import Tier, open_store, registry
from offload_drivers.gcs import GcsDriver
from offload_hooks.errors import OptionError

SECRET = "ya29.a-recognisable-secret"


def options_of(**given):
    return GcsDriver(**given)._options


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("gs://bucket", {"bucket": "bucket"}),
        ("gs://bucket/", {"bucket": "bucket"}),
        ("GS://my_bucket.example.com//a/b//", {"bucket": "my_bucket.example.com", "prefix": "a/b"}),
        ("gs://b-1/100%25/ä", {"bucket": "b-1", "prefix": "100%25/ä"}),
    ],
)
def test_a_url_names_bucket_and_prefix(url, options):
    assert GcsDriver.options_from_url(url) == options


@pytest.mark.parametrize(
    "url",
    [
        "gs://",
        "gs:///prefix",
        "gs:bucket/prefix",
        "s3://bucket",
        "gs://bucket:80/x",
        "gs://bucket/x?token=" + SECRET,
        "gs://bucket/x?",
        "gs://bucket/x#" + SECRET,
        f"gs://user:{SECRET}@bucket/x",
        f"gs://{SECRET}@bucket",
        f"gs://[{SECRET}/x",
    ],
)
def test_any_other_url_is_refused_without_repeating_it(url):
    with pytest.raises(OptionError) as caught:
        GcsDriver.options_from_url(url)
    assert SECRET not in f"{caught.value} {caught.value!r}"


def test_a_bucket_that_cannot_be_is_told_apart_from_one_that_is_missing():
    with pytest.raises(OptionError, match="the URL names no bucket"):
        GcsDriver.options_from_url("gs:///a")
    with pytest.raises(OptionError, match=r"no name of a bucket.*found 'localhost:4443'"):
        GcsDriver.options_from_url("gs://localhost:4443/bucket")


def test_the_location_is_a_url_that_opens_the_same_tier():
    location = GcsDriver(bucket="bucket", prefix="/a/b/", token=SECRET).describe().location
    assert location == "gs://bucket/a/b"
    assert GcsDriver(**GcsDriver.options_from_url(location)).describe().location == location
    assert GcsDriver(bucket="bucket").describe().location == "gs://bucket"


def test_pulsars_brokers_find_their_properties():
    description = GcsDriver(
        bucket="b", region="europe-west3", endpoint_url="https://storage.example:444/", token=SECRET
    ).describe()
    assert description.name == "gcs"
    assert description.driver_metadata == {
        "managedLedgerOffloadDriver": "GOOGLE_CLOUD_STORAGE",
        "bucket": "b",
        "region": "europe-west3",
        "serviceEndpoint": "https://storage.example:444",
    }
    plain = GcsDriver(bucket="b").describe().driver_metadata
    assert (plain["region"], plain["serviceEndpoint"]) == ("", "")


@pytest.mark.parametrize("name", ["gcs", "google-cloud-storage"])
def test_pulsars_option_names_are_taken_in_any_case(name, tmp_path):
    given = {
        "gcsmanagedledgeroffloadbucket": "b",
        "gcsManagedLedgerOffloadRegion": "r",
        "gcsManagedLedgerOffloadServiceAccountKeyFile": str(tmp_path / "key.json"),
        "managedledgeroffloadserviceendpoint": "https://host:1",
    }
    options = registry.make_driver(name, given)._options
    assert (options.bucket, options.region, options.endpoint_url) == ("b", "r", "https://host:1")
    assert options.service_account_file == str(tmp_path / "key.json")


def test_options_may_all_be_text():
    options = options_of(
        bucket="b", anonymous="TRUE", connect_timeout_s="2.5", read_timeout_s="7", storage_class="nearline"
    )
    assert (options.anonymous, options.connect_timeout_s, options.read_timeout_s) == (True, 2.5, 7.0)
    assert options.storage_class == "NEARLINE"


def test_an_option_of_empty_text_is_not_given():
    empty = dict.fromkeys(
        ("prefix", "region", "endpoint_url", "service_account_file", "token", "anonymous", "proxy"), ""
    )
    assert options_of(bucket="b", **empty) == options_of(bucket="b")
    assert options_of(bucket="b", prefix=None, token=None, anonymous=None) == options_of(bucket="b")


@pytest.mark.parametrize(
    "wrong",
    [
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
    ],
)
def test_options_that_make_no_sense_are_refused_without_a_secret(wrong):
    with pytest.raises(OptionError) as caught:
        GcsDriver(**{"bucket": "b", **wrong})
    assert SECRET not in f"{caught.value} {caught.value!r}"


def test_an_unknown_option_is_named():
    with pytest.raises(OptionError, match=r"takes no option 'buckett'.*Did you mean 'bucket'"):
        registry.make_driver("gcs", {"buckett": "b"})


def test_no_secret_is_in_a_driver_or_tier_that_is_shown():
    secrets = {"token": SECRET, "proxy": f"http://user:{SECRET}@localhost:1"}
    tier = open_store("gs://bucket/x", **secrets)
    driver = GcsDriver(bucket="b", **secrets)
    shown = f"{driver!r} {driver} {driver._options} {driver.describe()} {tier!r} {tier.describe()}"
    assert SECRET not in shown
    assert SECRET not in repr(GcsDriver(bucket="b", service_account_json=SECRET)._options)


def test_a_tier_is_pickled_by_its_options_without_a_request():
    tier = open_store("gs://bucket/x", endpoint_url="http://127.0.0.1:1", anonymous="true")
    copy = pickle.loads(pickle.dumps(tier))
    assert isinstance(copy, Tier)
    assert copy.describe() == tier.describe()
