"""The layer `{{ cookiecutter.name }}` for pulsar-offload: logs calls that take long.

What each hook must do is in the docstrings of `offload_hooks.TierHooks`; they are the law for a driver
under a layer as well. As it was made, this layer only watches. The comments name the points to consider,
and the conformance suite checks the result.
"""

import logging
import time
from contextlib import contextmanager

from offload_hooks import hookimpl

LOG = logging.getLogger(__name__)


class {{ cookiecutter.plugin }}:
    """Logs calls that take `slower_than_s` seconds or more."""

    # `rest` is all that is below the layer: the same hooks, called by keyword, from the first call on (not
    # here). Spell the options out; they may all be text. Calls come from many threads at once.
    def __init__(self, rest, slower_than_s=1.0):
        self._rest = rest
        self._slower_than_s = float(slower_than_s)

    # A layer that only watches or delays has wrappers: generators that yield once. The call is made there,
    # and its error is raised there. Arguments that are not needed can be left out.
    @hookimpl(wrapper=True)
    def read_range(self, key):
        with self._timed("read_range", key):
            return (yield)

    @hookimpl(wrapper=True)
    def stat(self, key):
        with self._timed("stat", key):
            return (yield)

    # Three ways to read: a layer that takes part in one of them should take part in all.
    @hookimpl(wrapper=True)
    def read_object(self, key):
        with self._timed("read_object", key):
            return (yield)

    @hookimpl(wrapper=True)
    def read_ranges(self, ranges):
        with self._timed("read_ranges", ", ".join(sorted({each.key for each in ranges}))):
            return (yield)

    # A layer that may call twice, or not at all, has plain hooks, which call `rest`; they never answer
    # None. This one could be a wrapper as well.
    @hookimpl
    def write_index(self, key, data, content_type, user_metadata, create_only):
        arguments = {"content_type": content_type, "user_metadata": user_metadata, "create_only": create_only}
        with self._timed("write_index", key):
            return self._rest.write_index(key=key, data=data, **arguments)

    # A key may be logged; options and user metadata may hold secrets.
    @contextmanager
    def _timed(self, hook, key):
        begun = time.monotonic()
        try:
            yield
        finally:
            took_s = time.monotonic() - begun
            if took_s >= self._slower_than_s:
                LOG.warning("%s of %s took %.3f s", hook, key, took_s)
