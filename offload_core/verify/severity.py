"""How bad a finding is."""

from __future__ import annotations

import enum


class Severity(enum.Enum):
    """How bad a finding is."""

    WARNING = "warning"
    """Nothing is lost: space is wasted, or something is told wrongly that readers can do without."""

    ERROR = "error"
    """Entries are lost or damaged, or a reader would fail, or give something wrong."""
