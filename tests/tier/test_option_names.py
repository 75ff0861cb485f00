"""Options by a driver's own names, by its aliases, in any case of letters."""

from __future__ import annotations

import pytest

from offload_core.storage.tier import open_store
from offload_hooks.errors import OptionError

DRIVERS = "pulsar_offload.drivers"
SCHEMES = "pulsar_offload.url_schemes"
SOURCE = """
    from offload_drivers.local import LocalDriver

    class Driver(LocalDriver):
        option_aliases = {"fileSystemRoot": "root", "thingRegion": "region"}

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
