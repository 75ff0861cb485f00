"""What a running broker offloaded to a directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sent_topics import TOPICS


def stored_ledgers(root: Path, topic: str) -> dict[str, set[str]]:
    """The folders `<ledger>-<uuid>` of a topic or partition, and the files in each."""
    namespace, _, name = topic.removeprefix("persistent://").rpartition("/")
    folder = root / namespace / "persistent" / name
    return {ledger.name: {file.name for file in ledger.iterdir()} for ledger in folder.iterdir()}


@pytest.mark.parametrize("topic", TOPICS)
def test_every_ledger_that_the_broker_calls_offloaded_is_there(
    filesystem_tier: tuple[Path, dict[str, Any]], topic: str
) -> None:
    root, topics = filesystem_tier
    for name, ledgers in topics[topic].ledgers.items():
        files = {"data", "index", ".data.crc", ".index.crc"}
        assert stored_ledgers(root, name) == {
            f"{ledger.ledger_id}-{ledger.uuid}": files for ledger in ledgers
        }
