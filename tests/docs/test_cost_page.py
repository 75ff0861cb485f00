"""docs/cost.md: its code runs, its prices load, its options and fields are there."""

from __future__ import annotations

import dataclasses
import inspect
import re
import subprocess
import sys
from pathlib import Path

from tiers import lay_out_broker_objects

from offload_core.interfaces.cli.cost import cost
from offload_core.maintenance.inventory.prices import load_prices
from offload_core.reading.scan import ScanEstimate

TEXT = (Path(__file__).parents[2] / "docs" / "cost.md").read_text()


def test_the_code_runs(tmp_path: Path) -> None:
    lay_out_broker_objects(tmp_path, {"json"})
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 3
    code = "\n".join(blocks).replace("s3://bucket/prefix", str(tmp_path)).replace("cold/orders", "cold/json")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    partitions, *_ = done.stdout.split()
    assert partitions == "1"
    assert "persistent://acme/cold/json" in done.stdout


def test_the_file_of_prices_loads(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "ours.toml"
    path.write_text(text)
    assert load_prices(path).currency == "EUR"


def test_its_options_and_fields_are_there() -> None:
    options = {f"--{name.replace('_', '-')}" for name in inspect.signature(cost).parameters}
    options |= {"--class", "--no-scan", "--egress", "--json"}
    assert set(re.findall(r"(?<![-\w])--[a-z][a-z-]*", TEXT)) <= options
    for field in dataclasses.fields(ScanEstimate):
        assert f"`{field.name}`" in TEXT
