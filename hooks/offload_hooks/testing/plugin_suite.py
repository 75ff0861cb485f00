"""The settings that all authors of filters, schema providers and key providers give their suites."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import ClassVar, NoReturn, TypeVar

import pytest

from offload_hooks.errors import OffloadError
from offload_hooks.testing.refusals import Refusal, expect_refusal, judge_refusal, judge_text

T = TypeVar("T")


class PluginSuiteBase:
    """The fixture `options`, attributes that an author may set, and what the cases share."""

    secrets: ClassVar[tuple[str, ...]] = ()
    """Texts that must never be seen in a repr or error: passwords among the options, for instance."""

    racers: ClassVar[int] = 8
    """Threads that do the same thing at once."""

    deadline_s: ClassVar[float] = 60.0
    """After how many seconds concurrent calls, or another process, count as hanging."""

    @pytest.fixture
    def options(self) -> Mapping[str, str]:
        """The plugin's options as a configuration has them, by name, all of them text; none by default."""
        return {}

    def made(self, make: Callable[..., T], options: Mapping[str, str]) -> T:
        """Make the plugin, as the program does."""
        assert all(isinstance(value, str) for value in options.values()), "options may all be text"
        return make(**options)

    def refuses(self, *kinds: type[OffloadError]) -> AbstractContextManager[Refusal]:
        """Expect one of these errors of the block: one that can be pickled and shows no secret."""
        return expect_refusal(*kinds, secrets=self.secrets)

    def judge_error(self, error: OffloadError, *kinds: type[OffloadError]) -> None:
        """Fail unless the error is one of these kinds, can be pickled, and shows no secret."""
        judge_refusal(error, *kinds, secrets=self.secrets)

    def judge_text(self, shown: str) -> None:
        """Fail if a text shows a secret."""
        judge_text(shown, self.secrets)

    def missing(self, fixture: str, what: str) -> NoReturn:
        """Fail: the author has not written a fixture."""
        who = type(self).__name__
        pytest.fail(f"{who} needs a fixture {fixture!r}: {what} (see docs/conformance.md)", pytrace=False)
