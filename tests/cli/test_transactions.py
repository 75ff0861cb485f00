"""`offload cat --isolation` and `--summaries`."""

from __future__ import annotations

from pathlib import Path

from commands import Offload
from golden import sent_in_transactions, topic_rows

ARGUMENTS = ("--topic", "acme/cold/txn", "--format", "jsonl", "--columns", "__txnState")


def test_the_isolation_says_which_messages_are_shown(offload: Offload, broker: Path, tmp_path: Path) -> None:
    committed = offload("cat", broker, *ARGUMENTS, "--summaries", tmp_path)
    assert (committed.code, committed.err) == (0, "")
    assert len(committed.out.splitlines()) == len(topic_rows("txn"))
    assert "aborted" not in committed.out
    assert len(list(tmp_path.glob("*.summary"))) == 2
    everything = offload("cat", broker, *ARGUMENTS, "--isolation", "uncommitted")
    assert len(everything.out.splitlines()) == len(sent_in_transactions())
    assert everything.out.count('"aborted"') == 1177


def test_an_isolation_that_there_is_not_is_refused(offload: Offload, broker: Path) -> None:
    assert offload("cat", broker, *ARGUMENTS, "--isolation", "serializable").code == 2
