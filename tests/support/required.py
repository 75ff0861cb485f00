"""Parts that a test needs and that not every machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from servers.toolchains import ToolchainMissing

REQUIRED = frozenset(filter(None, os.environ.get("OFFLOAD_REQUIRE", "").split(",")))


def need(part: str, there: bool, how: str) -> None:
    """Skip where `part` is missing and `OFFLOAD_REQUIRE` does not name it; fail where it does."""
    if there:
        return
    if part in REQUIRED:
        pytest.fail(f"{part} is required here and missing: {how}")
    pytest.skip(f"{part} is missing: {how}")


@contextmanager
def skipped_without_toolchain() -> Iterator[None]:
    """Skip where a toolchain is missing that the block installs something with."""
    try:
        yield
    except ToolchainMissing as missing:
        need(missing.part, False, missing.how)
        raise
