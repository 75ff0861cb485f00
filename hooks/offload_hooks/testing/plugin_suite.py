"""The settings that all authors of filters, schema providers and key providers give their suites."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, NoReturn, TypeVar

import pytest

from offload_hooks.errors import OffloadError

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

    @contextmanager
    def refuses(self, *kinds: type[OffloadError]) -> Iterator[pytest.ExceptionInfo[OffloadError]]:
        """Expect one of these errors of the block: one that can be pickled and shows no secret."""
        with pytest.raises(OffloadError) as caught:
            yield caught
        self.judge_error(caught.value, *kinds)

    def judge_error(self, error: OffloadError, *kinds: type[OffloadError]) -> None:
        """Fail unless the error is one of these kinds, can be pickled, and shows no secret."""
        assert isinstance(error, kinds), f"expected {' or '.join(k.__name__ for k in kinds)}, got {error!r}"
        again = pickle.loads(pickle.dumps(error))  # noqa: S301
        assert (type(again), str(again), again.fields()) == (type(error), str(error), error.fields())
        self.judge_text(f"{error} {error!r}")

    def judge_text(self, shown: str) -> None:
        """Fail if a text shows a secret."""
        assert not [secret for secret in self.secrets if secret in shown], "a secret is shown"

    def missing(self, fixture: str, what: str) -> NoReturn:
        """Fail: the author has not written a fixture."""
        who = type(self).__name__
        pytest.fail(f"{who} needs a fixture {fixture!r}: {what} (see docs/conformance.md)", pytrace=False)
