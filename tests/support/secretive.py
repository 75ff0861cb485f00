"""Errors that hide a secret."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def raises_without(
    secret: str, kind: type[Exception], match: str | None = None
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Exactly this kind of error, without the secret in anything that a log would show."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert type(caught.value) is kind
    shown = (
        "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(caught.value.__cause__)
    )
    assert secret not in shown
