"""docs/layers.md documents every layer, and every option with its default."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from offload_layers.retry import MARKER

TEXT = (Path(__file__).parents[2] / "docs" / "layers.md").read_text()
LAYERS = {
    entry.name: entry
    for entry in entry_points(group="pulsar_offload.layers")
    if entry.module.startswith("offload_layers.")
}
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def section(layer: str) -> str:
    return TEXT.partition(f"\n## {layer}\n")[2].partition("\n## ")[0]


def documented(layer: str) -> dict[str, str]:
    """Options by name, with their defaults."""
    table = (
        section(layer).partition("| Option | Default | Meaning |\n|---|---|---|\n")[2].partition("\n\n")[0]
    )
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", table, re.MULTILINE))


def value(text: str) -> object:
    words = {"none": None, "empty": "", "true": True, "false": False}
    if text in words:
        return words[text]
    number, _, unit = text.partition(" ")
    return float(number) * UNITS.get(unit, 1)


@pytest.mark.parametrize("layer", LAYERS)
def test_every_option_is_documented_with_its_default(layer: str) -> None:
    _, *options = inspect.signature(LAYERS[layer].load()).parameters.values()
    assert {name: value(text) for name, text in documented(layer).items()} == {
        option.name: option.default for option in options
    }


def test_every_layer_is_listed_in_the_recommended_order() -> None:
    listed = re.findall(r"^\| \[`([\w-]+)`\]\(#[\w-]+\) \|", TEXT, re.MULTILINE)
    assert sorted(listed) == sorted(LAYERS)
    order = re.findall(r"`([\w-]+)`", TEXT.partition("\n## Order\n\n")[2].partition(", then the driver")[0])
    assert order == listed
    assert re.findall(r"^## ([a-z-]+)$", TEXT, re.MULTILINE) == listed


def test_the_mark_in_user_metadata_is_named() -> None:
    assert f"`{MARKER}`" in section("retry")
