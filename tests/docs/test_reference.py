"""Generated pages are those that the code makes now (`make reference`), and the OpenAPI document is one."""

import json
import re
from pathlib import Path

import pytest
from openapi_spec_validator import validate
from reference import PAGES
from reference.requests import REQUESTS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_what_the_code_makes(path):
    assert path.read_text() == PAGES[path](), "make reference"


def test_the_man_page_has_no_orders_by_accident():
    lines = (DOCS / "reference" / "offload.1").read_text().splitlines()
    assert {line.split()[0] for line in lines if line.startswith((".", "'"))} == {
        ".TH", ".SH", ".SS", ".TP", ".PP", ".nf", ".fi",
    }  # fmt: skip
    escapes = set(re.findall(r"\\(?:f.|.)", "\n".join(lines)))
    assert escapes <= {"\\fB", "\\fI", "\\fR", "\\-", "\\e", "\\&"}


def test_the_document_is_openapi():
    document = json.loads((DOCS / "reference" / "openapi.json").read_text())
    validate(document)
    there = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert there == set(REQUESTS)


def test_every_command_of_the_overview_is_one_and_all_commands_are_in_it():
    commands = set(
        re.findall(r"^## offload (.+)$", (DOCS / "reference" / "commands.md").read_text(), re.MULTILINE)
    )
    rows = re.findall(r"^\| (`offload .+?`) \|", (DOCS / "cli.md").read_text(), re.MULTILINE)
    named = {
        " ".join(word for word in name.split() if word.islower() and not word.startswith("-"))
        for row in rows
        for name in re.findall(r"`offload ([^`]+)`", row)
    }
    groups = {name.split()[0] for name in commands if " " in name}
    assert {name for name in named if name not in groups} <= commands
    assert {name for name in commands if " " not in name} <= named | groups


def test_every_metric_of_the_service_is_on_its_page():
    listed = re.findall(
        r"^\| `(brk_\w+?)(?:_total)?` \|", (DOCS / "reference" / "metrics.md").read_text(), re.MULTILINE
    )
    page = (DOCS / "service.md").read_text()
    assert len(listed) >= 10
    assert not [name for name in listed if f"`{name}`" not in page]
