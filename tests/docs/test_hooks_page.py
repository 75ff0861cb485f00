"""docs/hooks.md documents every hook and capability."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from offload_hooks import HOOK_SPEC_VERSION, OPTIONAL_HOOKS, Capabilities, TierHooks

TEXT = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text()
HOOKS = [name for name in vars(TierHooks) if not name.startswith("_")]


def section(hook: str) -> str:
    match = re.search(rf"^### `{hook}`$\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    assert match is not None, f"the hook {hook} is not documented"
    return match[1]


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_a_section_with_its_arguments(hook: str) -> None:
    arguments = [name for name in inspect.signature(getattr(TierHooks, hook)).parameters if name != "self"]
    assert section(hook).lstrip().startswith(f"`{hook}({', '.join(arguments)})`")


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_is_marked_optional_exactly_if_it_is(hook: str) -> None:
    assert ("**optional**" in section(hook)) == (hook in OPTIONAL_HOOKS)
    assert re.search(
        rf"^\| \[`{hook}`\]\(#{hook}\) \| .* \| {'no' if hook in OPTIONAL_HOOKS else 'yes'} \|$", TEXT, re.M
    )


def test_no_hook_is_documented_that_there_is_not() -> None:
    assert re.findall(r"^### `(\w+)`$", TEXT, re.MULTILINE) == HOOKS


def test_every_capability_is_documented() -> None:
    table = TEXT.partition("\n## Capabilities\n")[2].partition("\n## ")[0]
    shown = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert shown == [field.name for field in dataclasses.fields(Capabilities)]


def test_the_version_of_the_hooks_is_the_one_that_the_page_names() -> None:
    assert f"`hook_spec_version = {HOOK_SPEC_VERSION}`" in TEXT
