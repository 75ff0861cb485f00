"""Options by a driver's own names, by its aliases, in any case of letters."""

from __future__ import annotations

import pytest

from offload_core.metadata.catalogue import open_tier
from offload_core.storage.tier import open_store
from offload_hooks.errors import OptionError

DRIVERS = "pulsar_offload.drivers"
SCHEMES = "pulsar_offload.url_schemes"
SOURCE = """
    from offload_drivers.local import LocalDriver

    class Driver(LocalDriver):
        option_aliases = {
            "fileSystemRoot": "root", "thingRegion": "region", "client_kwargs.region_name": "region"
        }
        pointless_options = {"thing_allow_http": "true", "thing_rename": None}

        def __init__(self, root, region="none"):
            super().__init__(f"{root}/{region}")

        @classmethod
        def options_from_url(cls, url):
            return {"root": url.partition(":")[2]}
"""


@pytest.fixture
def driver(install, module_name):
    target = f"{module_name}:Driver"
    install("thing", {DRIVERS: {"thing": target}, SCHEMES: {"thing": target}}, {module_name: SOURCE})


@pytest.mark.parametrize(
    "options",
    [
        {"root": "/a", "region": "b"},
        {"fileSystemRoot": "/a", "thingRegion": "b"},
        {"filesystemroot": "/a", "THINGREGION": "b"},
        {"ROOT": "/a", "Region": "b"},
        {"root": "/a", "fileSystemRoot": "/a", "thingregion": "b"},
        {"root": "/a", "client_kwargs": {"region_name": "b"}},
        {"root": "/a", "client_kwargs.region_name": "b"},
        {"root": "/a", "storage_options": {"thingRegion": "b"}},
        {"storage_options": {"root": "/a", "client_kwargs": {"region_name": "b"}}},
        {"root": "/a", "region": "b", "storage_options": {"region": "b", "THING_ALLOW_HTTP": "True"}},
        {"root": "/a", "region": "b", "thing_allow_http": True, "thing_rename": "anything"},
    ],
)
def test_an_option_has_several_names(driver, options):
    assert open_store("thing", **options).describe().location == "file:///a/b"


def test_an_alias_goes_with_a_url(driver):
    assert open_store("thing:/a", thingRegion="b").describe().location == "file:///a/b"


def test_two_names_with_different_values_are_refused_without_showing_them(driver):
    with pytest.raises(OptionError, match=r"its option 'root' twice, once as 'fileSystemRoot'") as caught:
        open_store("thing:/secret1", fileSystemRoot="/secret2")
    assert "/secret" not in str(caught.value)


def test_an_unknown_name_is_still_refused(driver):
    with pytest.raises(OptionError, match="takes no option 'thingregio'"):
        open_store("thing", root="/a", thingregio="b")
    with pytest.raises(OptionError, match=r"takes no option 'client_kwargs\.other'"):
        open_store("thing", root="/a", client_kwargs={"other": 1})


def test_an_option_that_would_change_nothing_is_refused_where_it_asks_for_a_change(driver):
    with pytest.raises(OptionError, match=r"'thing_allow_http' only where it changes nothing: expected true"):
        open_store("thing", root="/a", thing_allow_http="false")


@pytest.mark.parametrize(
    "twice",
    [
        {"region": "b", "storage_options": {"region": "c"}},
        {"region": "b", "storage_options": {"thingRegion": "c"}},
        {"storage_options": {"region": "b", "client_kwargs": {"region_name": "c"}}},
        {"storage_options": {"root": "/c"}},
    ],
)
def test_an_option_of_storage_options_that_is_given_elsewhere_too_is_refused(driver, twice):
    with pytest.raises(OptionError, match="twice"):
        open_store("thing:/a", **twice)


@pytest.mark.parametrize("given", ["region=b", ["region"], {1: "b"}])
def test_storage_options_are_a_dict_by_names(driver, given):
    with pytest.raises(OptionError, match="storage_options is no mapping"):
        open_store("thing:/a", storage_options=given)


def test_a_driver_with_an_option_of_this_name_gets_the_dict_itself():
    given = {"username": "pulsar", "client_kwargs": {"timeout": 5}}
    for place in ("fsspec+sftp://host/tier", "fsspec+sftp://host/"):
        (option,) = open_store(place, storage_options=given).spec.options.keys() - {"protocol", "root"}
        assert open_store(place, storage_options=given).spec.options[option] == given


def test_a_tier_keeps_its_storage_options_for_what_is_opened_beside_it():
    options = {"AWS_REGION": "eu-west-1", "client_kwargs": {"endpoint_url": "http://127.0.0.1:1"}}
    with open_tier("s3://bucket/tier", storage_options=options) as tier:
        (other,) = tier.also("s3://other/tier").store.spec.others
    assert other.options == {"bucket": "other", "prefix": "tier", **options}
