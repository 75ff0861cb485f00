"""docs/errors.md documents every error: what else it is, when it is raised, whether it may be tried again."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from offload_hooks import errors
from offload_hooks.errors import OffloadError

TEXT = (Path(__file__).parents[2] / "docs" / "errors.md").read_text()
CLASSES = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OffloadError)
]

_ROW = re.compile(r"^\| `(\w+)` \| `(\w+)` \| (.+) \| (yes|no) \|$", re.MULTILINE)
ROWS = {match[1]: match.groups()[1:] for match in _ROW.finditer(TEXT)}


def test_exactly_the_errors_that_there_are_are_documented_in_their_order() -> None:
    assert list(ROWS) == [kind.__name__ for kind in CLASSES]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_is_documented_as_it_is(kind: type[OffloadError]) -> None:
    also, when, retryable = ROWS[kind.__name__]
    assert also in {base.__name__ for base in kind.__mro__[1:]}
    assert when.strip()
    assert retryable == ("yes" if kind.retryable else "no")


def test_every_field_of_an_error_is_documented() -> None:
    shown = set(re.findall(r"`(\w+)`", TEXT.partition("\n| Error |")[0]))
    wrong = OffloadError(
        "x", key="k", ledger_id=1, block=1, entry_id=1, offset=1, expected=1, found=2, hint="h"
    )
    assert set(wrong.fields()) <= shown
