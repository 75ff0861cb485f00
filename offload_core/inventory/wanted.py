"""Which topics are meant by patterns as people type them: `acme/cold/*`, `acme`, `acme/cold/orders`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from offload_core.catalogue import TopicName

_DOMAIN = "persistent://"


@dataclass(frozen=True, slots=True)
class TopicPatterns:
    """Patterns of topics' names, with `*`, `?` and `[…]`; none of them are all topics.

    A pattern also means all partitions of a topic that it matches; a tenant or a namespace, all that is in it.
    """

    patterns: Sequence[str]

    def __call__(self, topic: TopicName | None) -> bool:
        """Whether a topic is meant; None are objects that name none, which only no pattern means."""
        if not self.patterns:
            return True
        if topic is None:
            return False
        names = [name.removeprefix(_DOMAIN) for name in (topic.full, topic.base)]
        return any(_matches(name, each.removeprefix(_DOMAIN)) for each in self.patterns for name in names)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern.rstrip('/')}/*")
