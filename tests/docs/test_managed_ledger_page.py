"""docs/managed-ledger.md and docs/offload.md: their tables have what there is."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from offload_core.reading.transaction_buffers import BufferState
from offload_core.writing.managed_ledger import RolloverPolicy, SnapshotPolicy, StreamingSettings
from offload_core.writing.offload import LedgerOffloader, OfferResult, OffloadHandle, SegmentOffloader

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "managed-ledger.md").read_text()


@pytest.mark.parametrize(
    ("heading", "kind"), [("Rollover", RolloverPolicy), ("Streaming", StreamingSettings)]
)
def test_the_fields_of_settings_are_documented(heading: str, kind: type) -> None:
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    names = [field.name for field in dataclasses.fields(kind)]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == names


def test_the_fields_of_a_snapshot_policy_and_the_states_of_a_buffer_are_documented() -> None:
    text = (DOCS / "transactions.md").read_text()
    table = text.partition("by `SnapshotPolicy`:")[2].partition("\n\n")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \| (\S+) \|", table, re.MULTILINE) == [
        (field.name, str(field.default)) for field in dataclasses.fields(SnapshotPolicy)
    ]
    assert re.findall(r"^\| `([A-Z]\w+)` \|", text, re.MULTILINE) == [each.value for each in BufferState]


@pytest.mark.parametrize("offloader", [LedgerOffloader, SegmentOffloader])
def test_the_arguments_of_an_offloader_are_documented(offloader: type) -> None:
    page = (DOCS / "offload.md").read_text()
    table = page.partition(f"| Argument of `{offloader.__name__}`")[2].partition("\n\n")[0]
    names = list(inspect.signature(offloader).parameters)
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [
        name for name in names if offloader is SegmentOffloader or name != "tier"
    ]


def test_the_calls_of_a_handle_and_its_answers_are_documented() -> None:
    page = (DOCS / "offload.md").read_text()
    table = page.partition("| Call of the handle")[2].partition("\n\n")[0]
    public = {name for name in vars(OffloadHandle) if not name.startswith("_")}
    assert set(re.findall(r"^\| `(\w+)[`(]", table, re.MULTILINE)) == public
    answers = page.partition("| Answer ")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", answers, re.MULTILINE) == [each.name for each in OfferResult]
