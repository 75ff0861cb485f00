"""What Python shows of tiers, topics and scans at a prompt: a few lines of text, or a table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Protocol

MOST_LINES = 20
"""Lines of topics, or columns, that are shown of more."""

_UNITS = ("byte", "kB", "MB", "GB", "TB", "PB")


def bytes_text(count: int) -> str:
    """Bytes in a unit that people read, a power of 1000, as `197.6 kB`."""
    amount, unit = float(count), 0
    while amount >= 1000 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1000, unit + 1
    return count_text(count, "byte") if not unit else f"{amount:,.1f} {_UNITS[unit]}"


def count_text(count: int, what: str) -> str:
    """A number of things, as `1 topic`, `2,000 topics` or `2 entries`."""
    if count != 1:
        what = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{count:,} {what}"


class Summed(Protocol):
    """A topic that tells what is shown of it: its name, its ledgers, entries and size."""

    def facts(self) -> tuple[str, str, str, str]: ...  # noqa: D102 - see the class


def topic_text(topic: Summed) -> str:
    """A topic in one line."""
    name, *facts = topic.facts()
    return f"{name}: {', '.join(facts)}"


def lines_of(heading: str, topics: Sequence[Summed]) -> str:
    """A heading, and a line for each of the first topics."""
    more = [f"  … {len(topics) - MOST_LINES:,} more"] if len(topics) > MOST_LINES else []
    return "\n".join([heading, *(f"  {topic_text(each)}" for each in topics[:MOST_LINES]), *more])


def table_of(heading: str, topics: Sequence[Summed]) -> str:
    """The same as a table in HTML."""
    rows = [each.facts() for each in topics[:MOST_LINES]]
    more = [(f"… {len(topics) - MOST_LINES:,} more", "", "", "")] if len(topics) > MOST_LINES else []
    return html_table(heading, ("topic", "ledgers", "entries", "size"), [*rows, *more])


def html_table(heading: str, names: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in HTML."""
    return "".join(_html(heading, names, rows))


def _html(heading: str, names: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield f"<table><caption>{escape(heading)}</caption><thead><tr>"
    yield from (f"<th>{escape(name)}</th>" for name in names)
    yield "</tr></thead><tbody>"
    for row in rows:
        yield "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>"
    yield "</tbody></table>"
