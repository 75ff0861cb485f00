"""docs/spark.md lists exactly the options that there are, with their defaults."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from offload_core.interfaces.spark.source_options import KNOWN, RECORDS_PREFIX, STORAGE_PREFIX, SourceOptions
from offload_core.reading.scan import ScanOptions

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
ROW = re.compile(r"^\| `(?P<name>[\w.*]+)` \| (?P<default>[^|]+) \| (?P<meaning>.+) \|$", re.MULTILINE)


def test_all_options_are_listed_in_their_order():
    names = [match["name"] for match in ROW.finditer(PAGE.read_text())]
    expected = list(KNOWN)
    expected.insert(2, f"{STORAGE_PREFIX}*")
    expected.insert(expected.index("records") + 1, f"{RECORDS_PREFIX}*")
    assert names == expected


def test_plain_defaults_are_those_of_the_code():
    described = (*dataclasses.fields(ScanOptions), *dataclasses.fields(SourceOptions))
    defaults = {field.name: field.default for field in described}
    for match in ROW.finditer(PAGE.read_text()):
        if match["default"].startswith("`"):
            target, convert = KNOWN[match["name"]]
            assert convert(match["default"].strip("` "), match["name"]) == defaults[target], match["name"]
