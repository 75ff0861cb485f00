"""A page of Markdown to its sections, and to its fenced code blocks, in order, also those indented in a list."""

from __future__ import annotations

import re
from dataclasses import dataclass
from textwrap import dedent

NOT_RUN_HERE = "Not run here: "
"""The prefix of the title of a block that no test can run, such as for a cloud platform. Readers see it, too."""

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\S*)(?P<more>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$", re.M | re.S
)
_TITLE = re.compile(r'\btitle="([^"]*)"')
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A code block: its language, its title if it has one, the heading that it stands under, and where it is."""

    page: str
    line: int
    heading: str
    language: str
    title: str
    code: str

    def __str__(self):
        return f"{self.page}:{self.line}"


def section_of(text, title):
    """What stands below a heading of the second level; empty if there is none."""
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks_of(path, root):
    """All of a page."""
    text = path.read_text()
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        outside = _FENCE.sub("", before)
        title = _TITLE.search(match["more"])
        headings = _HEADING.findall(outside)
        found.append(
            Block(
                page=path.relative_to(root).as_posix(),
                line=before.count("\n") + 1,
                heading=headings[-1] if headings else "",
                language=match["language"],
                title=title[1] if title else "",
                code=dedent(match["code"]),
            )
        )
    return found


def title_says_not_run(block):
    """Return whether the title states that this is not run, and why."""
    return block.title.startswith(NOT_RUN_HERE) and len(block.title) > len(NOT_RUN_HERE)
