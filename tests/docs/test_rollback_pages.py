"""docs/rollback.md and docs/migration.md: tables have what there is, commands have these options."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from offload_core.interfaces.cli.rollback import delete, list_objects, plan
from offload_core.maintenance.rollback import Need, Verdict
from offload_core.metadata.catalogue import Problem

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "rollback.md").read_text()


def column(heading: str) -> list[str]:
    """The names in the first column of the table with this heading."""
    table = TEXT.partition(f"| {heading} |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([\w-]+)`", row)]


def test_the_tables_have_what_there_is() -> None:
    assert column("`need`") == [each.value for each in Need]
    assert column("`verdict`") == [each.value for each in Verdict]
    states = set(column("`state`"))
    assert states - {"complete", "not-streaming"} <= {each.value for each in Problem}
    assert {"complete", "not-streaming", "no-index", "no-data", "broken-index", "wrong-length"} <= states


@pytest.mark.parametrize("page", ["rollback.md", "migration.md"])
def test_the_commands_have_the_options_that_the_pages_name(page: str) -> None:
    text = (DOCS / page).read_text().replace("\\\n", " ")
    named = re.findall(r"offload rollback (plan|list|delete)([^`\n]*)", text)
    assert named
    for command, arguments in named:
        assert set(re.findall(r"--[\w-]+", arguments)) <= options_of(command)


def test_the_options_of_delete_are_documented() -> None:
    documented = {f"--{name}" for name in re.findall(r"^\| `--([\w-]+)` \|", TEXT, re.MULTILINE)}
    shared = {
        f"--{name}"
        for name in ("prefix", "records-option", "driver", "option", "layer", "as-json", "debug", "url")
    }
    assert options_of("delete") - shared - {"--audit-log"} == documented


def options_of(command: str) -> set[str]:
    """The options of a command of `offload rollback`."""
    function = {"plan": plan, "list": list_objects, "delete": delete}[command]
    return {f"--{name.replace('_', '-')}" for name in inspect.signature(function).parameters}
