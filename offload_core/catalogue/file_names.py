"""Names of files and folders that are made of a topic's name, or of a part of it: percent-escaped, and never too long.

A name that would have more bytes than a file system takes keeps its beginning, and `%7E` and a digest take the place
of the rest. No text is escaped to `%7E`, so that two texts never get the same name.
"""

from __future__ import annotations

import hashlib
from urllib.parse import quote

MAX_BYTES = 241
"""Of a whole name: file systems take 255, and the drivers for files and HDFS put a sidecar beside it."""

_MARK = "%7E"
_DIGEST_CHARACTERS = 32


def name_of(text: str, *, before: str = "", after: str = "") -> str:
    """The name of a file or folder that stands for a text: `before`, the text escaped, `after`."""
    escaped = quote(text, safe="")
    room = MAX_BYTES - len(before) - len(after)
    if len(escaped) > room:
        room -= len(_MARK) + _DIGEST_CHARACTERS
        end = 0
        for character in text:
            room -= len(quote(character, safe=""))
            if room < 0:
                break
            end += 1
        digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
        escaped = f"{quote(text[:end], safe='')}{_MARK}{digest}"
    return f"{before}{escaped}{after}"
