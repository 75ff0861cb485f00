"""The operator's toolbox on a broker's objects: verify, damage, repair, collect garbage, tell costs, make a report."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

Offload = Callable[..., None]
"""Runs a command with these arguments and shows it; `code` is the exit code that it is to end with, 0 if not given."""

Say = Callable[[str], None]

NO_GRACE = ("--grace", "0", "--accept-short-grace", "--clock-skew", "0")
"""For what was written a moment ago, where nothing else is at work. A day is the default."""


def run(tier: Path, folder: Path, offload: Offload, say: Say) -> None:
    """Look after a tier; what is damaged is a copy in the folder, which gets an audit log and the report as well."""
    log = ("--yes", "--audit-log", str(folder / "audit.jsonl"))
    say("Is every byte right?")
    offload("verify", str(tier), "--deep")

    damaged = folder / "damaged"
    shutil.copytree(tier, damaged)
    index = cut_off_an_index(damaged)
    say(
        f"Half of an index of a copy is lost ({index.name}): it is found, and made anew from its data object."
    )
    offload("verify", str(damaged), code=1)
    offload("repair", str(damaged), *log)
    offload("verify", str(damaged))

    say("What it costs in a month, and to read it all once, at example prices.")
    offload("cost", str(tier), "--prices", "example:aws-s3", "--topic", "acme/cold/json")
    offload("report", str(tier), "--output", str(folder / "report.html"))


def find_garbage(tier: Path, records: str, offload: Offload, say: Say) -> None:
    """Show what no record needs in a tier; nothing is deleted."""
    say("What is left of a deleted topic: a dry run, which ends with 1 as long as there is something.")
    offload("gc", str(tier), "--records", records, "--not-shared", *NO_GRACE, code=1)


def cut_off_an_index(tier: Path) -> Path:
    """Damage an index of a tier in a directory, as a copy that was broken off."""
    index = min(tier.glob("*-index"))
    data = index.read_bytes()
    index.write_bytes(data[: len(data) // 2])
    return index
