"""GitHub's workflows call the Makefile alone, require what the tests know, and have no fault that actionlint finds."""

import os
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest
import tomllib
import yaml
from required import skipped_without_toolchain
from servers import install

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (GITHUB / "workflows").iterdir()}
JOBS = {f"{stem} {name}": job for stem, flow in WORKFLOWS.items() for name, job in flow["jobs"].items()}
STEPS = [(name, step) for name, job in JOBS.items() for step in job.get("steps", [])]
TRUSTED = ("actions/*", "pypa/gh-action-pypi-publish@*")


def test_the_makefile_is_all_that_they_call():
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony is not None
    called = {step["run"] for _, step in STEPS if "run" in step}
    assert called == {
        f"make {target}" for target in ("check", "test", "nightly", "sparks", "docs", "release")
    }
    assert {each.removeprefix("make ") for each in called} <= set(phony[1].split())


def test_actions_are_those_of_github_and_of_pypi():
    used = {step["uses"] for _, step in STEPS if "uses" in step}
    assert [each for each in used if not any(fnmatch(each, pattern) for pattern in TRUSTED)] == []


def test_they_may_read_only_and_one_job_each_publishes():
    assert all(flow["permissions"] == {"contents": "read"} for flow in WORKFLOWS.values())
    assert {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job} == {
        "docs publish": {"pages": "write", "id-token": "write"},
        "release publish": {"id-token": "write"},
    }
    for name, step in STEPS:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"] == {"persist-credentials": False}, name


def test_each_job_ends_in_time():
    assert [name for name, job in JOBS.items() if "uses" not in job and "timeout-minutes" not in job] == []


def test_what_they_require_is_what_tests_ask_for():
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    asked = set(re.findall(r'(?:need\(|\bpart = |_go_program\()"(\w+)"', tests))
    asked |= {f"python{version}" for version in ("3.10", "3.12", "3.13", "3.14")}
    assert "s3" in asked
    for name, job in JOBS.items():
        required = job.get("env", {}).get("OFFLOAD_REQUIRE", "")
        assert set(filter(None, required.split(","))) <= asked, name


def test_the_matrix_has_each_python_that_the_project_names():
    tried = JOBS["matrix python"]["strategy"]["matrix"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line}
    assert named - {"3.10"} <= set(
        tried["python"]
    )  # the suite needs 3.11; reading by 3.10 is tested in `matrix spark`
    assert {"ubuntu-latest", "ubuntu-24.04-arm", "macos-latest"} == set(tried["os"])


def test_updates_look_where_dependencies_are():
    files = {
        "github-actions": ".github/workflows",
        "pip": "constraints.txt",
        "gomod": "go.mod",
        "npm": "package.json",
    }
    for update in yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]:
        for folder in update.get("directories", [update.get("directory")]):
            assert (ROOT / folder.strip("/") / files[update["package-ecosystem"]]).exists(), folder


def checked(*paths):
    with skipped_without_toolchain():
        program = install.actionlint()
    command = [str(program), "-no-color", "-shellcheck=", "-pyflakes=", *map(str, paths)]
    return subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)


@pytest.mark.install
def test_actionlint_finds_no_fault():
    done = checked(*(GITHUB / "workflows").iterdir())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.install
def test_actionlint_finds_one_that_is_there(tmp_path):
    fault = tmp_path / "fault.yml"
    fault.write_text(
        (GITHUB / "workflows" / "release.yml").read_text().replace("needs: build", "needs: built")
    )
    done = checked(fault)
    assert 'job "built"' in done.stdout
