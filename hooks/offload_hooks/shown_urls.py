"""URLs as they may be shown, in errors, logs and traces: without user, password, query and fragment.

A URL with credentials is refused wherever a tier, a store or records are named by one, and must not be repeated then.
`OffloadError` masks all its texts by `masked`, and so does the command line what it prints of other errors.
"""

from __future__ import annotations

import re

MASK = "********"

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://[^\s'\"<>]+")


def shown_url(url: str) -> str:
    """A URL, of whatever form, with user and password, query and fragment masked.

    What stands before the last `@` is masked whole: a password may hold any character, and a slash as well.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, separator, rest = url.partition(":")
    _, at, place = rest.rpartition("@")
    place = re.sub(r"([?#]).+", rf"\g<1>{MASK}", place, count=1, flags=re.DOTALL)
    return f"{scheme}{separator}{MASK + at if at else ''}{place}"


def holds_user(url: str) -> bool:
    """True if a URL has a user before its host, as in `s3://user:secret@bucket`, or where a host would be."""
    rest = url.partition(":")[2]
    host = rest.removeprefix("//").partition("/")[0]
    return "@" in host and (rest.startswith("//") or ":" in host)


def masked(text: str) -> str:
    """A text with all URLs in it as `shown_url` shows them."""
    return _URL.sub(lambda found: shown_url(found[0]), text) if "://" in text else text
