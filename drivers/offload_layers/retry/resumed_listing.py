"""A listing that goes on after an error where it broke off, instead of from its beginning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from offload_hooks.errors import OffloadError
from offload_layers.retry.attempts import Attempts

_T = TypeVar("_T")


def resumed(
    attempts: Attempts, hook: str, prefix: str, reopen: Callable[[_T | None], Iterator[_T]]
) -> Iterator[_T]:
    """What `reopen(None)` lists; after an error, what `reopen(last item)` lists, which must begin after that item.

    The first call of `reopen` is made at once, not with the first item. Attempts are counted anew after each item.
    """
    first = attempts.run(hook, prefix, lambda: iter(reopen(None)))
    return _items(attempts, hook, prefix, reopen, first)


def _items(
    attempts: Attempts,
    hook: str,
    prefix: str,
    reopen: Callable[[_T | None], Iterator[_T]],
    listing: Iterator[_T],
) -> Iterator[_T]:
    last: _T | None = None
    while True:
        try:
            item = next(listing, None)
        except OffloadError as error:
            listing, item = attempts.run(hook, prefix, _again(error, reopen, last))
        if item is None:
            return
        last = item
        yield item


def _again(
    error: OffloadError, reopen: Callable[[_T | None], Iterator[_T]], last: _T | None
) -> Callable[[], tuple[Iterator[_T], _T | None]]:
    """The listing's continuation as a call whose first attempt was the one that failed with `error`."""
    failed = [error]

    def call() -> tuple[Iterator[_T], _T | None]:
        if failed:
            raise failed.pop()
        listing = iter(reopen(last))
        return listing, next(listing, None)

    return call
