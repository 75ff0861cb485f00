"""The command `offload` as tests run it, and what came of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

COMMAND = Path(sys.executable).with_name("offload")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


Offload = Callable[..., Result]
