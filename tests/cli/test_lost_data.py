"""`offload cat` and `export` of a topic whose data object is gone, and whose index is left: no success."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Offload
from entries import LedgerPart, WrittenObject, entry, pip17_object, streaming_object
from tiers import TOPIC, lay_out

PAYLOADS = [entry(b"%04d" % i) for i in range(3)]


def as_pip17() -> WrittenObject:
    return pip17_object(PAYLOADS, ledger_id=5)


def as_segment() -> WrittenObject:
    return streaming_object([LedgerPart(ledger_id=5, blocks=[PAYLOADS])])


@pytest.mark.parametrize("make", [as_pip17, as_segment])
def test_what_is_lost_is_no_success_unless_it_is_accepted(
    offload: Offload, tmp_path: Path, make: Callable[[], WrittenObject], caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "tier"
    root.mkdir()
    lay_out(root, make(), parts=["index"])
    commands = (["cat", root, "--topic", TOPIC], ["export", root, "--to", tmp_path / "out", "--topic", TOPIC])
    for command in commands:
        result = offload(*command)
        assert result.code != 0
        assert "no data object" in result.err
        assert "ledger 5" in result.err
    result = offload("cat", root, "--topic", TOPIC, "--no-fail-on-data-loss")
    assert (result.code, len(result.out.splitlines())) == (0, 1)  # no more than the header
    assert any("no data object" in message for message in caplog.messages)
