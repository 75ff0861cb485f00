"""End what Spark calls with our error alone, its hint in Spark's words: Spark shows all of a trace.

What led to the error goes to the log, at its level DEBUG.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from offload_core.reading.scan.options import WORDS
from offload_hooks.errors import OffloadError

_Result = TypeVar("_Result")
_Arguments = ParamSpec("_Arguments")
_log = logging.getLogger(__name__)


def option_words(name: str, value: str | None) -> str:
    """An option as a query of Spark gives it."""
    word = WORDS[name][0] if name in WORDS else name
    return word + (f"={value}" if value else "")


def explained(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Wrap a method that Spark calls."""

    @functools.wraps(method)
    def call(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        try:
            return method(*arguments, **named)
        except OffloadError as error:
            raise _alone(error) from None

    return call


def explained_rows(
    method: Callable[_Arguments, Iterator[_Result]],
) -> Callable[_Arguments, Iterator[_Result]]:
    """Wrap a method whose answer Spark reads one by one."""

    @functools.wraps(method)
    def call(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> Iterator[_Result]:
        try:
            yield from method(*arguments, **named)
        except OffloadError as error:
            raise _alone(error) from None

    return call


def _alone(error: OffloadError) -> OffloadError:
    _log.debug("a query of Spark failed", exc_info=error)
    return error.name_options(option_words).with_traceback(None)
