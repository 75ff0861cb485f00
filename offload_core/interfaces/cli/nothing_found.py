"""Messages about names and places where nothing was found: none is passed over in silence.

A name that was given and does not exist is an error; a pattern, a filter or a prefix that nothing fits is a warning,
except for commands whose success would mislead: they take `--allow-empty`. See docs/cli.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from offload_core.interfaces.cli.command_options import RecordsOpener
from offload_core.interfaces.cli.terminal import warn
from offload_core.maintenance.inventory import TopicPatterns
from offload_core.metadata.catalogue import TierReader, TopicName, parse_topic
from offload_core.metadata.catalogue.topics import topic_selection
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError, UnknownTopicError

_Found = TypeVar("_Found")
_Matches = Callable[[TopicName | None], bool]


class FoundTopics:
    """The topics that a user named, and those of them that were not found so far.

    Args:
        wanted: names as they were typed, and the topics that each matches.
    """

    def __init__(self, wanted: Mapping[str, _Matches]) -> None:
        self.anything = False
        self._missing = dict(wanted)

    @classmethod
    def of(cls, topics: Iterable[str] | None, namespaces: Iterable[str] | None = None) -> FoundTopics:
        """Of `--topic` and `--namespace`. `OptionError`: a namespace has another form."""
        wanted: dict[str, _Matches] = {each: TopicPatterns((each,)) for each in topics or ()}
        for each in namespaces or ():
            matches = topic_selection([], [each])
            assert matches is not None
            wanted[each] = matches
        return cls(wanted)

    @property
    def missing(self) -> Collection[str]:
        """The names of which nothing was found."""
        return self._missing

    def note(self, topic: TopicName | None) -> None:
        """Note that something of a topic was found; None for a topic that is not known."""
        self.anything = True
        if self._missing:
            self._missing = {name: matches for name, matches in self._missing.items() if not matches(topic)}

    def watch(
        self, found: Iterable[_Found], topic_of: Callable[[_Found], TopicName | None]
    ) -> Iterator[_Found]:
        """Yield what was found, and note its topic."""
        for each in found:
            self.note(topic_of(each))
            yield each

    def require_all(self, tier: Tier) -> None:
        """Refuse names of which nothing was found (`UnknownTopicError`)."""
        if self._missing:
            raise UnknownTopicError(
                f"nothing is known of this topic under {tier.describe().location}",
                found=", ".join(self._missing),
            )


def topic_filter(topics: Sequence[str] | None, namespaces: Sequence[str] | None = None) -> _Matches | None:
    """Return what `--topic` and `--namespace` choose; None for all. `OptionError`: a namespace has another form."""
    in_namespaces = topic_selection([], namespaces or ())
    if not topics:
        return in_namespaces
    patterns = TopicPatterns(tuple(topics))
    if in_namespaces is None:
        return patterns
    return lambda topic: patterns(topic) and in_namespaces(topic)


def is_name(topic: str) -> bool:
    """Return whether this is one topic's name, and no pattern, namespace or tenant."""
    return topic.removeprefix("persistent://").count("/") >= _SLASHES and not set("*?[") & set(topic)


_SLASHES = 2


def chosen_topics(
    tier: TierReader, topics: Sequence[str] | None, records: RecordsOpener | None = None
) -> list[TopicName]:
    """Return the topics that `--topic` names; those that patterns match, of records or, without any, of the tier.

    Raises:
        UnknownTopicError: no topic matches a pattern. StoreError: a listing for patterns fails.
    """
    names = [parse_topic(each) for each in topics or () if is_name(each)]
    patterns = [each for each in topics or () if not is_name(each)]
    if not patterns:
        return names
    if records is None:
        known = [parse_topic(each) for each in tier.topics()]
    else:
        with records() as opened:
            known = opened.topics()
    seen = FoundTopics.of(patterns)
    for each in known:
        seen.note(each)
    seen.require_all(tier.store)
    wants = TopicPatterns(tuple(patterns))
    return list(dict.fromkeys([*names, *(each for each in known if wants(each))]))


@contextmanager
def missing_warned_of(seen: FoundTopics, tier: Tier, prefix: str = "") -> Iterator[FoundTopics]:
    """Warn in the end of names of which nothing was found, or of a tier without objects."""
    yield seen
    if seen.missing or not seen.anything:
        warn(nothing_at(tier, prefix, seen.missing))


def require_something(count: int, tier: Tier, prefix: str) -> None:
    """Refuse a place without objects (`OptionError`)."""
    if not count:
        raise OptionError(nothing_at(tier, prefix), hint="If that is right: --allow-empty")


def nothing_at(tier: Tier, prefix: str, wanted: Iterable[str] = ()) -> str:
    """Return a line about the place, and the topics, where nothing was found."""
    place = tier.describe().location
    if prefix:
        place += f" with the prefix {prefix}"
    topics = " or ".join(wanted)
    return f"no offloaded object under {place}{f' is of {topics}' if topics else ''}"
