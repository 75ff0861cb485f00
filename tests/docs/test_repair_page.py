"""docs/repair.md: its example runs, its options, actions and fields are those of the program."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

from damage import DAMAGES
from entries import entry, pip17_object
from scenes.repairs import contents_of, repaired
from tiers import lay_out

from offload_core.interfaces.cli.repair import repair, to_json
from offload_core.maintenance.repair import Action

TEXT = (Path(__file__).parents[2] / "docs" / "repair.md").read_text()


def test_the_example_runs(tmp_path: Path) -> None:
    root = tmp_path / "tier"
    root.mkdir()
    key = lay_out(root, pip17_object([entry(b"a"), entry(b"b")]), parts=("data",))
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said, written = [*done.stdout.splitlines(), done.stderr][:2]
    assert said.split()[:2] == [key, "rebuild-index"]
    assert written == f"('{key}-index',)"


def test_the_options_are_documented() -> None:
    section = TEXT.partition("## Options")[2].partition("## In Python")[0]
    shared = {"--driver", "--option", "--layer", "--debug", "--url", "--keys"}
    ours = {f"--{name.replace('_', '-')}" for name in inspect.signature(repair).parameters}
    assert set(re.findall(r"`(--[\w-]+)", section)) == (ours - shared - {"--as-json"}) | {"--json"}


def test_actions_and_fields_are_documented() -> None:
    assert all(f"`{action.value}`" in TEXT for action in Action)
    scene, _ = DAMAGES["a-block-is-zeros"].make()
    tier = scene.tier()
    (planned,), _, _ = repaired(scene, tier, quarantine=True)
    report = TEXT.partition("The report has")[2].partition("## In Python")[0]
    assert set(to_json(planned, None)) <= set(re.findall(r"`(\w+)`", report))
    notes = [json.loads(data) for key, data in contents_of(tier).items() if key.endswith(".json")]
    fields = TEXT.partition("one JSON object:")[2].partition("## Options")[0]
    assert all(set(note) == set(re.findall(r"`(\w+)`", fields)) - {"failOnDataLoss"} for note in notes)
