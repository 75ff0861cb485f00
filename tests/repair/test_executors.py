"""Repairs that processes verify, judge and count for: the same plan as with threads."""

from __future__ import annotations

from pathlib import Path

from scenes.repairs import lay_out_damage, planned

from offload_core.maintenance.repair import Action
from offload_core.storage.executors import ProcessExecutor, ThreadExecutor


def test_processes_plan_what_threads_plan(tmp_path: Path) -> None:
    lay_out_damage(tmp_path)
    by_threads = planned(tmp_path, ThreadExecutor(2))
    actions = {each.choice.action for each in by_threads}
    others = {Action.OFFLOAD_AGAIN, Action.NOT_SAVABLE, Action.REWRITE_CHECKSUMS, Action.KEEP_HOT}
    assert actions == set(Action) - others
    assert planned(tmp_path, ProcessExecutor(1)) == by_threads
