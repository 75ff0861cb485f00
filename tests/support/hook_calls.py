"""Calls of the hooks that ask something of a store, for tests of what comes when it does not answer well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from offload_hooks import ByteRange


def calls(driver: Any) -> dict[str, tuple[str | None, Callable[[], object]]]:
    """Every hook that asks the store, with the key that its error must name."""
    return {
        "begin_data": ("k", lambda: driver.begin_data("k", "text/plain", {})),
        "write_index": ("k", lambda: driver.write_index("k", b"x", "text/plain", {}, False)),
        "create_only": ("k", lambda: driver.write_index("k", b"x", "text/plain", {}, True)),
        "read_range": ("k", lambda: driver.read_range("k", 0, 1)),
        "read_ranges": ("k", lambda: driver.read_ranges([ByteRange(key="k", offset=0, length=1)])),
        "stat": ("k", lambda: driver.stat("k")),
        "delete": ("k", lambda: driver.delete(["k"])),
        "list_objects": (None, lambda: list(driver.list_objects("", ""))),
        "list_uploads": (None, lambda: list(driver.list_uploads(""))),
    }
