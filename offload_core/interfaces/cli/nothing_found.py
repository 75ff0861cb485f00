"""What is said when nothing lies where it was looked for: no wrong name or place is passed over in silence.

A name that was given and does not exist is an error; a pattern, a filter or a prefix that nothing fits is a warning,
but for commands whose good end would be believed: they take `--allow-empty`. See docs/cli.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, TypeVar

import typer

from offload_core.interfaces.cli.shared import err, printable
from offload_core.maintenance.inventory import TopicPatterns
from offload_core.metadata.catalogue import TopicName, parse_topic
from offload_core.metadata.catalogue.topics import topic_selection
from offload_core.storage.tier import Tier
from offload_hooks.errors import OptionError, UnknownTopicError

AllowEmpty = Annotated[
    bool, typer.Option("--allow-empty", help="It is no error that nothing is there to be looked at.")
]

_Found = TypeVar("_Found")
_Matches = Callable[[TopicName | None], bool]


class Seen:
    """Whether anything was seen, and what was asked for and not seen so far.

    Args:
        wanted: what was asked for as it was typed, and which topics that means.
    """

    def __init__(self, wanted: Mapping[str, _Matches]) -> None:
        self.anything = False
        self._missing = dict(wanted)

    @classmethod
    def of_patterns(cls, patterns: Iterable[str] | None) -> Seen:
        """Of patterns of topics' names."""
        return cls({each: TopicPatterns((each,)) for each in patterns or ()})

    @classmethod
    def of_names(cls, topics: Iterable[str] | None, namespaces: Iterable[str] | None = None) -> Seen:
        """Of topics, or all their partitions, and of namespaces. `OptionError`: a name has another form."""
        wanted = {each: topic_selection([parse_topic(each)]) for each in topics or ()}
        wanted |= {each: topic_selection([], [each]) for each in namespaces or ()}
        return cls({name: matches for name, matches in wanted.items() if matches is not None})

    @property
    def missing(self) -> Collection[str]:
        """What was asked for, and not seen."""
        return self._missing

    def note(self, topic: TopicName | None) -> None:
        """Something of a topic is there; None of one that is not known."""
        self.anything = True
        if self._missing:
            self._missing = {name: matches for name, matches in self._missing.items() if not matches(topic)}

    def watch(
        self, found: Iterable[_Found], topic_of: Callable[[_Found], TopicName | None]
    ) -> Iterator[_Found]:
        """What is found, noted as it comes by."""
        for each in found:
            self.note(topic_of(each))
            yield each

    def require_all(self, tier: Tier) -> None:
        """Refuse names of which nothing was seen (`UnknownTopicError`)."""
        if self._missing:
            raise UnknownTopicError(
                f"nothing is known of this topic under {tier.describe().location}",
                found=", ".join(self._missing),
            )


@contextmanager
def missing_warned_of(seen: Seen, tier: Tier, prefix: str = "") -> Iterator[Seen]:
    """Warn in the end of what was asked for and not seen; of a tier where nothing was."""
    yield seen
    if seen.missing or not seen.anything:
        warn(nothing_at(tier, prefix, seen.missing))


def warn(what: str) -> None:
    """A line for people beside what was asked for."""
    err.print(printable(f"offload: {what}"), style="yellow", markup=False, highlight=False, soft_wrap=True)


def require_something(count: int, tier: Tier, prefix: str) -> None:
    """Refuse to call a place right where nothing lies (`OptionError`)."""
    if not count:
        raise OptionError(nothing_at(tier, prefix), hint="If that is as it should be: --allow-empty")


def nothing_at(tier: Tier, prefix: str, wanted: Iterable[str] = ()) -> str:
    """Where nothing was found, and of which topics."""
    place = tier.describe().location
    if prefix:
        place += f" with the prefix {prefix}"
    topics = " or ".join(wanted)
    return f"no offloaded object under {place}{f' is of {topics}' if topics else ''}"
