"""The house is in order: lint, format, types, import contracts, one version everywhere, and a wheel that has it all."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import tomllib

import pulsar_offload

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(
    "command",
    [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"], ["lint-imports"]],
    ids=lambda command: " ".join(command),
)
def test_checks_pass(command):
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_version_is_the_same_everywhere():
    newest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert PROJECT["version"] == pulsar_offload.__version__ == newest[1]


def test_source_roots_are_no_packages():
    assert [
        root
        for root in ("hooks", "drivers", "proto", "integrations")
        if (ROOT / root / "__init__.py").exists()
    ] == []


def test_pages_that_the_readme_names_exist():
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_everything_is_pinned_and_the_pins_hold_here():
    from importlib.metadata import version

    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    lowered = {re.sub(r"[-_.]+", "-", name).lower(): pin for name, pin in pins.items()}
    for requirement in [*PROJECT["dependencies"], "pyspark", "typer", "rich", "hypothesis", "mypy"]:
        name = re.split(r"[<>=\[]", requirement)[0]
        assert version(name) == lowered[re.sub(r"[-_.]+", "-", name).lower()], name


def test_the_lowest_versions_that_are_tried_are_those_of_the_project():
    text = (ROOT / "tests/support/servers/pyspark/requirements-lowest.txt").read_text()
    tried = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
    for requirement in PROJECT["dependencies"]:
        name, lowest = requirement.split(">=")
        assert f"{tried[name]}.".startswith(f"{lowest}."), name


@pytest.mark.install
def test_the_wheel_has_everything(tmp_path):
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, package in (
        (".", "offload_core"),
        ("hooks", "offload_hooks"),
        ("drivers", "offload_drivers"),
        ("drivers", "offload_layers"),
        ("proto", "offload_proto"),
        ("integrations", "airflow_provider_pulsar_offload"),
        ("integrations", "pyspark_pulsar_offload"),
    ):
        here = ROOT / folder / package
        wanted = {path.relative_to(ROOT / folder).as_posix() for path in here.rglob("*.py")}
        assert wanted <= names
        assert package == "pyspark_pulsar_offload" or f"{package}/py.typed" in names
    template = ROOT / "offload_core" / "interfaces" / "cli" / "driver_template"
    parts = {
        path.relative_to(ROOT).as_posix()
        for path in template.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert len(parts) >= 9
    assert parts <= names
    assets = {
        f"offload_core/maintenance/inventory/report_assets/{name}"
        for name in ("page.html", "report.css", "report.js")
    }
    assert assets | {"offload_core/maintenance/inventory/example_prices/aws-s3.toml"} <= names
    assert any(name.endswith("LICENSE") for name in names)
    assert "offload_core/interfaces/cli/completions.tsv" in names
    assert any(name.endswith(".data/data/share/man/man1/offload.1") for name in names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs"))]
