"""Listings of a container: page by page, from a key on, in the order of the names' UTF-8 bytes.

Azure (seen on Azurite, and told of the service) orders names by their UTF-16 units. This differs from UTF-8's order
only where one name has a character beyond U+FFFF and another has one from U+E000 on in the same place: then those
names are held back, sorted and given on. Everything else streams.

From service version 2026-02-06 on, the store is asked to begin at a name. One that does not know this, as Azurite
3.35, begins at the prefix, and what comes before is skipped here, page after page.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

from azure.storage.blob import BlobProperties

_T = TypeVar("_T")

PAGE_BLOBS = 5000
"""The most names of one page, which is what Azure gives at once."""

START_FROM_VERSION = "2026-02-06"

_FIRST_UNLIKE = "\ue000"  # characters from here on sort differently in UTF-8 and UTF-16

Run = Callable[[Callable[[], Awaitable[_T]]], _T]


def list_blobs(
    container: Any, run: Run[list[BlobProperties] | None], prefix: str, after: str
) -> Iterator[BlobProperties]:
    """Blobs whose names begin with `prefix` and come after `after`, in order of the names' UTF-8 bytes.

    Args:
        container: the container's client.
        run: calls a coroutine function and waits for its answer; it translates errors.
        prefix: what the names begin with.
        after: a name, which need not exist.
    """
    if after > prefix and not after.startswith(prefix):
        return
    named: dict[str, Any] = {
        "name_starts_with": prefix,
        "include": ["metadata"],
        "results_per_page": PAGE_BLOBS,
    }
    start = common_start(after)
    if start > prefix and container.api_version >= START_FROM_VERSION:
        named["start_from"] = start
    pages = container.list_blobs(**named).by_page()

    async def next_page() -> list[BlobProperties] | None:
        page = await anext(pages, None)
        return None if page is None else [blob async for blob in page]

    def blobs() -> Iterator[BlobProperties]:
        while (page := run(next_page)) is not None:
            yield from page

    for blob in in_utf8_order(blobs(), lambda blob: blob.name):
        if blob.name > after:
            yield blob


def common_start(after: str) -> str:
    """A name that comes before all those that are to be listed, in the order of UTF-8 as well as UTF-16."""
    end = next((place for place, character in enumerate(after) if character >= _FIRST_UNLIKE), len(after))
    return after[:end]


def in_utf8_order(items: Iterable[_T], name_of: Callable[[_T], str]) -> Iterator[_T]:
    """Items that come in the order of their names' UTF-16 units (or UTF-8 bytes), in that of their UTF-8 bytes.

    Python compares texts by code points, which is the order of UTF-8.
    """
    held: list[_T] = []
    stem = ""
    for item in items:
        name = name_of(item)
        if held and not (name.startswith(stem) and name[len(stem) :] >= _FIRST_UNLIKE):
            yield from sorted(held, key=name_of)
            held = []
        if not held:
            far = next((place for place, character in enumerate(name) if character > "\uffff"), None)
            if far is None:
                yield item
                continue
            stem = name[:far]
        held.append(item)
    yield from sorted(held, key=name_of)
