"""Parts that a test needs and that not every machine has."""

from __future__ import annotations

import os

import pytest

REQUIRED = frozenset(filter(None, os.environ.get("OFFLOAD_REQUIRE", "").split(",")))


def need(part: str, there: bool, how: str) -> None:
    """Skip where `part` is missing and `OFFLOAD_REQUIRE` does not name it; fail where it does."""
    if there:
        return
    if part in REQUIRED:
        pytest.fail(f"{part} is required here and missing: {how}")
    pytest.skip(f"{part} is missing: {how}")
