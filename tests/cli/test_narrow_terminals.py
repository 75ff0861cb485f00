"""Tables on a terminal of 80 columns: what is too wide is folded, and no key or amount is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Offload
from entries import pip17_object
from tiers import TOPIC, lay_out

from offload_core.interfaces.cli import terminal

LEDGER = pip17_object([b"some entry"], ledger_id=1234567)


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls", "--by", "segment"),
        ("verify",),
        ("repair",),
        ("history", TOPIC),
        ("cost", "--prices", "example:aws-s3"),
    ],
    ids=lambda each: each[0],
)
def test_nothing_is_cut_off(
    offload: Offload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    lay_out(tmp_path, LEDGER, attempt=1)
    lay_out(tmp_path, LEDGER, attempt=2, parts=("data",))
    monkeypatch.setattr(terminal.out, "width", 80)
    name, *rest = arguments
    result = offload(name, tmp_path, *rest)
    assert "…" not in result.out.replace("--records …", "")
    assert result.out.count("\n") > 3
