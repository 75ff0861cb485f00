"""Which namespaces a selection can name topics of, so that a metadata store need not be asked for all.

A namespace is `tenant/name`. In Pulsar 1 it was `tenant/cluster/name`: of that these are the first two parts.
"""

from __future__ import annotations

import re

from offload_core.metadata.catalogue import parse_topic

_DOMAIN = "persistent://"
_LITERAL = re.compile(r"(?:persistent://)?([A-Za-z0-9_=:-]+/[A-Za-z0-9_=:-]+)/(?![*?{+])")


def namespaces_of_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The first two parts of these topics' names, each pair once."""
    parts = [parse_topic(name).full.removeprefix(_DOMAIN).split("/") for name in names]
    return tuple(dict.fromkeys("/".join(each[:2]) for each in parts))


def namespaces_of_pattern(pattern: str) -> tuple[str, ...] | None:
    """The same of all topics whose whole name matches a pattern; None where it does not begin with them as they are."""
    literal = _LITERAL.match(pattern)
    return None if literal is None or not _all_branches_are_inside(pattern) else (literal[1],)


def _all_branches_are_inside(pattern: str) -> bool:
    """Whether each `|` stands in parentheses; False as well where escapes make that hard to say."""
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
