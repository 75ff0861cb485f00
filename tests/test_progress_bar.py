"""A bar shows what a listener is told: in a terminal, and nothing of it elsewhere."""

import sys
from io import StringIO

import pytest
from rich.console import Console
from tiers import lay_out_broker_objects

from offload_core.interfaces.progress_bar import byte_bar
from offload_core.reading.scan import ReadProgress
from offload_hooks.errors import MissingExtraError
from pulsar_offload import ProgressBar, export, open_tier


def drawn(*heard, terminal=True):
    console = Console(file=StringIO(), force_terminal=terminal, width=100)
    with ProgressBar("reading", byte_bar(console, redirect_stdout=False)) as bar:
        for each in heard:
            bar(each)
    return console.file.getvalue()


def test_rows_bytes_and_the_whole_are_shown():
    shown = drawn(
        ReadProgress(done_bytes=0, total_bytes=4_000_000, rows=0),
        ReadProgress(done_bytes=1_000_000, total_bytes=4_000_000, rows=12_345),
    )
    assert "reading 12,345 rows" in shown
    assert "1.0/4.0 MB" in shown


def test_without_a_known_whole_the_bytes_are_shown():
    shown = drawn(ReadProgress(done_bytes=1_000_000, total_bytes=0, rows=7))
    assert "1.0 MB" in shown
    assert "?" not in shown.replace("\x1b[?25", "")


def test_an_export_tells_it(tmp_path):
    lay_out_broker_objects(tmp_path / "tier", topics=["json"])
    console = Console(file=StringIO(), force_terminal=True, width=100)
    shown = ProgressBar("exporting", byte_bar(console, redirect_stdout=False))
    with open_tier(tmp_path / "tier") as tier, shown as bar:
        report = export(tier, tmp_path / "out", "acme/cold/json", listener=bar)
    assert f"exporting {report.rows:,} rows" in console.file.getvalue()


def test_a_library_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'pulsar-offload\[cli\]'"):
        ProgressBar()
