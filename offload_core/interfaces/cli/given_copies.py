"""What records of a running cluster got of new copies: given for commands, shown, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from offload_core.interfaces.cli.terminal import id_ranges, print_failure, print_line
from offload_core.maintenance.live import LiveReplacements, open_live_cluster
from offload_core.maintenance.live.live_copies import Given
from offload_core.metadata.catalogue import TopicName
from offload_core.metadata.catalogue.topics import is_chosen
from offload_core.storage.tier import Tier
from offload_core.writing.audit import AuditLog
from offload_core.writing.configuration import load_configuration
from offload_hooks.errors import OffloadError


@contextmanager
def open_live(config: Path | None, tiers: Sequence[Tier], log: AuditLog | None) -> Iterator[LiveReplacements]:
    """The running cluster of the settings, whose copies in these tiers are to be replaced."""
    with open_live_cluster(load_configuration(config)) as cluster:
        yield LiveReplacements(cluster, tiers, log)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCopies:
    """What became of the new copies of a topic.

    Attributes:
        error: why its record did not get them, or why brokers do not use them.
    """

    topic: TopicName
    given: Given = field(default_factory=Given)
    error: OffloadError | None = None

    @property
    def is_left(self) -> bool:
        """True if a copy is not used."""
        return self.error is not None or bool(self.given.refused)


def give_copies(live: LiveReplacements, topic: TopicName) -> TopicCopies:
    """Give the new copies of a topic to its record; an error is returned."""
    try:
        given = live.give(topic)
    except OffloadError as error:
        return TopicCopies(topic=topic, error=error)
    return TopicCopies(topic=topic, given=given, error=given.damaged)


def finish_copies(live: LiveReplacements, topics: Sequence[TopicName]) -> list[TopicCopies]:
    """Finish what processes left of these topics, or of any if there are none; the topics where that fails."""
    failed = []
    for topic in live.unfinished():
        if not is_chosen(topic, topics):
            continue
        copies = live.copies(topic)
        try:
            copies.finish(copies.policies())
        except OffloadError as error:
            failed.append(TopicCopies(topic=topic, error=error))
    return failed


def show_copies(found: Sequence[TopicCopies]) -> None:
    """Print them, a line each."""
    for each in found:
        for ledger_id, why in each.given.refused.items():
            print_failure(f"{each.topic}: its record does not name the new copy of ledger {ledger_id}: {why}")
        if each.given.used:
            ledgers = id_ranges(each.given.used)
            seen = (
                "brokers read" if each.given.is_seen else "its record names, and no broker was seen to read,"
            )
            print_line(f"{each.topic}: {seen} the new copies of ledger {ledgers}")
        if each.error is not None:
            print_failure(f"{each.topic}: {each.error}")


def copies_to_json(found: Sequence[TopicCopies]) -> list[dict[str, Any]]:
    """As reports have them; docs/relocate.md."""
    return [
        {
            "topic": str(each.topic),
            "ledgers": list(each.given.used),
            "seen": each.given.is_seen,
            "refused": {str(ledger_id): why for ledger_id, why in each.given.refused.items()},
            "error": None if each.error is None else str(each.error),
        }
        for each in found
        if each.given.used or each.is_left
    ]
