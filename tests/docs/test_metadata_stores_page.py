"""docs/metadata-stores.md lists exactly the options that the stores take, with their defaults."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from offload_core.metadata import records
from offload_core.metadata.catalogue.admin_records import AdminRecords
from offload_core.metadata.stores.sqlite import SqliteStore
from offload_core.metadata.stores.zookeeper import ZooKeeperStore
from offload_core.storage.tier import registry
from offload_hooks.metadata_stores import MetadataStore, WritableMetadataStore
from offload_hooks.testing import MetadataStoreConformance
from offload_hooks.testing.metadata_cases.base import MetadataSuiteBase

TEXT = (Path(__file__).parents[2] / "docs" / "metadata-stores.md").read_text()
ROW = re.compile(r"^\| `(?P<name>\w+)` \| (?P<default>[^|]+?) \| .+ \|$", re.MULTILINE)


@pytest.mark.parametrize(
    ("title", "store"), [("Admin REST", AdminRecords), ("ZooKeeper", ZooKeeperStore), ("SQLite", SqliteStore)]
)
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
    shown = re.findall(r"^\| `(\w+)\((.*?)\)` \| (\w+) \|", section, re.MULTILINE)
    contract = [
        (name, ", ".join(list(inspect.signature(method).parameters)[1:]), who)
        for who, protocol in (("both", MetadataStore), ("writable", WritableMetadataStore))
        for name, method in vars(protocol).items()
        if not name.startswith("_")
    ]
    assert shown == contract


def test_the_steps_are_those_that_there_are() -> None:
    section = TEXT.partition("\n## Writing\n")[2].partition("\n## ")[0]
    for name, parameters in re.findall(r"^\| `(\w+)\((.*?)\)` \|", section, re.MULTILINE):
        assert parameters.split(", ") == list(inspect.signature(getattr(records, name)).parameters)


def test_the_attributes_of_the_suite_are_documented_with_their_defaults() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| `?(.*?)`? \|", TEXT.partition("| Attribute | Default |")[2], re.MULTILINE
    )
    assert [name for name, _ in rows] == list(MetadataSuiteBase.__annotations__)
    for name, default in rows:
        assert default == f"{getattr(MetadataStoreConformance, name)}".removesuffix(".0")


def test_the_stores_are_those_that_are_installed() -> None:
    group = registry.METADATA_STORES
    assert f"`{group}`" in TEXT
    assert {entry.name for entry in entry_points(group=group)} == {"http", "https", "sqlite", "zk"}
