"""docs/metadata-stores.md lists exactly the options that the stores take, with their defaults."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from offload_core.catalogue.admin_records import AdminRecords
from offload_core.metadata.zookeeper import ZooKeeperStore
from offload_core.tier import registry
from offload_hooks.metadata_stores import MetadataStore

TEXT = (Path(__file__).parents[2] / "docs" / "metadata-stores.md").read_text()
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<default>[^|]+?) \| .+ \|$", re.MULTILINE)


@pytest.mark.parametrize(("title", "store"), [("Admin REST", AdminRecords), ("ZooKeeper", ZooKeeperStore)])
def test_the_options_are_those_of_the_store(title: str, store: type) -> None:
    section = TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    shown = {match["name"]: match["default"] for match in ROW.finditer(section)}
    taken = list(inspect.signature(store).parameters.values())[1:]
    assert list(shown) == [parameter.name for parameter in taken]
    for parameter in taken:
        if shown[parameter.name].startswith("`") and parameter.default is not None:
            assert shown[parameter.name] == f"`{str(parameter.default).lower()}`"


def test_the_methods_are_those_of_the_contract() -> None:
    section = TEXT.partition("\n## A store of your own\n")[2]
    shown = re.findall(r"^\| `(\w+)\((.*?)\)` \|", section, re.MULTILINE)
    contract = {
        name: ", ".join(list(inspect.signature(method).parameters)[1:])
        for name, method in vars(MetadataStore).items()
        if not name.startswith("_")
    }
    assert dict(shown) == contract


def test_the_stores_are_those_that_are_installed() -> None:
    group = registry.METADATA_STORES
    assert f"`{group}`" in TEXT
    assert {entry.name for entry in entry_points(group=group)} == {"http", "https", "zk"}
