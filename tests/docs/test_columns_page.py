"""docs/columns.md lists exactly the columns that there are, with their types in Arrow and Spark."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_type

from offload_core.format.messages.message_columns import ENTRY_COLUMNS, EXTRA_MESSAGE_COLUMNS, MESSAGE_COLUMNS

PAGE = Path(__file__).parents[2] / "docs" / "columns.md"
SECTIONS = {
    "Messages, by default": MESSAGE_COLUMNS,
    "Messages, on request": EXTRA_MESSAGE_COLUMNS,
    "Entries": ENTRY_COLUMNS,
}

_ROW = re.compile(
    r"^\| `(?P<name>[^`]+)` \| `(?P<arrow>[^`]+)` \| `(?P<spark>[^`]+)` \| (?P<meaning>.+) \|$", re.MULTILINE
)


def section(title: str) -> str:
    match = re.search(
        rf"^## {re.escape(title)}$\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    assert match is not None, title
    return match[1]


@pytest.mark.parametrize("title", SECTIONS)
def test_columns_and_their_types_are_those_of_the_schema(title: str) -> None:
    shown = [match.group("name", "arrow", "spark") for match in _ROW.finditer(section(title))]
    assert shown == [(name, arrow(kind), spark(kind)) for name, kind in SECTIONS[title].items()]


def test_no_table_row_is_overlooked() -> None:
    rows = [line for title in SECTIONS for line in section(title).splitlines() if line.startswith("| `")]
    assert len(rows) == sum(len(columns) for columns in SECTIONS.values())


def arrow(kind: pa.DataType) -> str:
    """Arrow's own text of a type, without the names that it gives to a map's children."""
    return re.sub(r" \('[^)]*'\)", "", str(kind))


def spark(kind: pa.DataType) -> str:
    return str(from_arrow_type(kind).simpleString())
