"""Tables on a terminal of 80 columns lose no key or amount; ids that follow one another are shown in short."""

import pytest
from entries import pip17_object
from tiers import TOPIC, lay_out

from offload_core.interfaces.cli import terminal
from offload_core.interfaces.cli.terminal import id_ranges

LEDGER = pip17_object([b"some entry"], ledger_id=1234567)


@pytest.mark.parametrize(
    "command", ["ls --by segment", "verify", "repair", f"history {TOPIC}", "cost --prices example:aws-s3"]
)
def test_nothing_is_cut_off(offload, tmp_path, monkeypatch, command):
    lay_out(tmp_path, LEDGER, attempt=1)
    lay_out(tmp_path, LEDGER, attempt=2, parts=("data",))
    monkeypatch.setattr(terminal.out, "width", 80)
    name, *rest = command.split()
    result = offload(name, tmp_path, *rest)
    assert "…" not in result.out.replace("--records …", "")
    assert result.out.count("\n") > 3


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([], ""),
        ([7], "7"),
        ([1, 2], "1–2"),
        ([1, 3], "1, 3"),
        ([0, 1, 2, 5, 7, 8, 1 << 40], "0–2, 5, 7–8, 1099511627776"),
    ],
)
def test_ids_that_follow_one_another_are_told_by_first_and_last(ids, text):
    assert id_ranges(ids) == text
