"""Ledgers of a real BookKeeper, and our stores that read them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest


@pytest.fixture
def open_store(bookkeeper):
    """Open stores, by options, that are closed in the end."""
    with ExitStack() as opened:

        def open_one(**options):
            store = bookkeeper.store(**options)
            opened.callback(store.close)
            return store

        yield open_one


@pytest.fixture
def store(open_store):
    """A store by its defaults."""
    return open_store()
