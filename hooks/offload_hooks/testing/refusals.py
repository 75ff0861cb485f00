"""The errors that suites expect of a plugin: of the right kind, fit for another process, without a secret."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from offload_hooks.errors import OffloadError


@dataclass(slots=True)
class Refusal:
    """The error that `expect_refusal` caught.

    `answer` may be set to the plugin's last answer, for the failure of a block that raised nothing.
    """

    error: OffloadError
    answer: str = ""


@contextmanager
def expect_refusal(*kinds: type[OffloadError], secrets: Sequence[str] = ()) -> Iterator[Refusal]:
    """Expect one of these errors of the block, and judge it.

    Args:
        kinds: the errors that are right.
        secrets: texts that the error may not show.
    """
    refusal = Refusal(OffloadError("nothing was raised"))
    try:
        yield refusal
    except OffloadError as error:
        refusal.error = error
    else:
        shown = f"; {refusal.answer}" if refusal.answer else ""
        pytest.fail(f"expected {_names(kinds)}, and nothing was raised{shown}")
    judge_refusal(refusal.error, *kinds, secrets=secrets)


def judge_refusal(error: OffloadError, *kinds: type[OffloadError], secrets: Sequence[str] = ()) -> None:
    """Fail unless the error is one of these kinds, can be pickled, and shows no secret."""
    assert isinstance(error, kinds), f"expected {_names(kinds)}, got {error!r}"
    again = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert (type(again), str(again), again.fields()) == (type(error), str(error), error.fields())
    judge_text(f"{error} {error!r}", secrets)


def judge_text(shown: str, secrets: Sequence[str]) -> None:
    """Fail if a text shows a secret."""
    assert not [secret for secret in secrets if secret in shown], "a secret is shown"


def _names(kinds: Sequence[type[OffloadError]]) -> str:
    return " or ".join(kind.__name__ for kind in kinds)
