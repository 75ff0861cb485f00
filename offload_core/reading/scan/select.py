"""The topics and ledgers that a scan reads, by name, pattern, ledger or cluster.

A selection also names the namespaces that its topics can be in, so that a metadata store is not asked for all. A
namespace is `tenant/name`; of Pulsar 1's `tenant/cluster/name` these are the first two parts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from offload_core.metadata.catalogue import Catalogue, Records, Topic, TopicName, parse_topic
from offload_core.metadata.records import ManagedLedgerInfo
from offload_hooks.errors import OptionError, UnknownLedgerError, UnknownTopicError

_DOMAIN = "persistent://"
_LITERAL = re.compile(r"(?:persistent://)?([A-Za-z0-9_=:-]+/[A-Za-z0-9_=:-]+)/(?![*?{+])")


def namespaces_of_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The first two parts of these topics' names, each pair once."""
    parts = [parse_topic(name).full.removeprefix(_DOMAIN).split("/") for name in names]
    return tuple(dict.fromkeys("/".join(each[:2]) for each in parts))


def namespaces_of_pattern(pattern: str) -> tuple[str, ...] | None:
    """The first two parts of the names that match a pattern; None if the pattern does not begin with literal parts."""
    literal = _LITERAL.match(pattern)
    return None if literal is None or not _all_branches_are_inside(pattern) else (literal[1],)


def _all_branches_are_inside(pattern: str) -> bool:
    """True if each `|` is in parentheses; False also where escapes make that unclear."""
    if "|" not in pattern:
        return True
    if "\\" in pattern or "[" in pattern:
        return False
    depth = 0
    for character in pattern:
        depth += (character == "(") - (character == ")")
        if character == "|" and depth <= 0:
            return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """At most one of `topics` and `topics_pattern`; `ledger_id` narrows either to one ledger. None of all: everything.

    Attributes:
        topics: names; a partitioned topic's base name stands for all its partitions.
        topics_pattern: a regular expression that the whole name (with or without `persistent://`) must match.
        ledger_id: one ledger; also of objects that name no topic.
        cluster: only what this Pulsar cluster offloaded; a bucket may be shared.
        may_be_absent: names of which nothing is here yet are passed over.
    """

    topics: tuple[str, ...] = ()
    topics_pattern: str | None = None
    ledger_id: int | None = None
    cluster: str | None = None
    may_be_absent: bool = False


def select_topics(catalogue: Catalogue, selection: Selection) -> list[Topic]:
    """The topics to read, in the catalogue's order.

    Raises:
        OptionError: names and a pattern at once, a name or pattern that is none, or a choice that means several
            clusters' topics of one name or ledgers of one id.
        UnknownTopicError, UnknownLedgerError: nothing here is called so.
    """
    if selection.topics and selection.topics_pattern is not None:
        raise OptionError("topics are asked for by name and by pattern at once", expected="one of the two")
    if selection.cluster is not None:
        of_cluster = tuple(topic for topic in catalogue.topics if topic.cluster == selection.cluster)
        catalogue = replace(catalogue, topics=of_cluster)
    topics = _by_name(catalogue, selection)
    if selection.ledger_id is not None:
        topics = _by_ledger(topics, selection.ledger_id)
    else:
        _refuse_same_names(topics)
    return topics


def select_records(records: Records, selection: Selection) -> dict[TopicName, ManagedLedgerInfo]:
    """Read the records of a selection, with the ledgers that it reads: only their copies need be looked up.

    Raises:
        OptionError, UnknownTopicError, UnknownLedgerError: as `select_topics`.
        StoreError, FormatError: the records cannot be read.
    """
    namespaces = None
    if selection.topics:
        namespaces = namespaces_of_names(selection.topics)
    elif selection.topics_pattern is not None:
        namespaces = namespaces_of_pattern(selection.topics_pattern)
    names = sorted(records.topics(namespaces))
    topics = tuple(Topic(cluster=None, name=name, ledgers=()) for name in names)
    chosen = _by_name(Catalogue(topics=topics, strays=()), selection)
    wanted = records.read(topic.name for topic in chosen if topic.name is not None)
    if selection.ledger_id is None:
        return wanted
    with_ledger = {
        name: replace(info, ledgers=found)
        for name, info in wanted.items()
        if (found := tuple(each for each in info.ledgers if each.ledger_id == selection.ledger_id))
    }
    if not with_ledger:
        raise UnknownLedgerError("no record has this ledger", ledger_id=selection.ledger_id)
    return with_ledger


def _by_name(catalogue: Catalogue, selection: Selection) -> list[Topic]:
    if selection.topics_pattern is not None:
        try:
            pattern = re.compile(selection.topics_pattern)
        except re.error as error:
            raise OptionError(
                f"the pattern of topics is not a regular expression: {error}", found=selection.topics_pattern
            ) from error
        return [
            topic for topic in catalogue.topics if topic.name is not None and _matches(pattern, topic.name)
        ]
    if not selection.topics:
        return [
            topic for topic in catalogue.topics if topic.name is not None or selection.ledger_id is not None
        ]
    chosen: list[Topic] = []
    for text in selection.topics:
        name = parse_topic(text)
        found = [
            topic for topic in catalogue.topics if topic.name is not None and name.full in _names(topic.name)
        ]
        if not found and selection.ledger_id is None and not selection.may_be_absent:
            raise UnknownTopicError(
                f"no topic {name} has offloaded data here",
                expected=f"one of {_known(catalogue)}",
                found=str(name),
            )
        chosen.extend(topic for topic in found if topic not in chosen)
    return [topic for topic in catalogue.topics if topic in chosen]


def _names(name: TopicName) -> tuple[str, str]:
    return name.full, name.base


def _matches(pattern: re.Pattern[str], name: TopicName) -> bool:
    return any(
        pattern.fullmatch(form)
        for full in _names(name)
        for form in (full, full.removeprefix("persistent://"))
    )


def _by_ledger(topics: list[Topic], ledger_id: int) -> list[Topic]:
    found = [
        replace(topic, ledgers=(ledger,))
        for topic in topics
        for ledger in topic.ledgers
        if ledger.ledger_id == ledger_id
    ]
    if not found:
        raise UnknownLedgerError("no copy of this ledger is here", ledger_id=ledger_id)
    if len(found) > 1:
        raise OptionError(
            "several ledgers have this id",
            ledger_id=ledger_id,
            found=", ".join(f"{topic.label} of cluster {topic.cluster}" for topic in found),
            hint="Name the topic or the cluster as well.",
        )
    return found


def _refuse_same_names(topics: Sequence[Topic]) -> None:
    seen: dict[str, Topic] = {}
    for topic in topics:
        other = seen.setdefault(topic.label, topic)
        if other is not topic:
            raise OptionError(
                f"two clusters have offloaded a topic {topic.label} here",
                found=f"{other.cluster}, {topic.cluster}",
                hint="Name the cluster as well.",
            )


def _known(catalogue: Catalogue) -> str:
    names = [topic.label for topic in catalogue.topics if topic.name is not None]
    shown = ", ".join(names[:10])
    return f"{shown} and {len(names) - 10} more" if len(names) > 10 else shown or "none at all"
