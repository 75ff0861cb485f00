"""The house is in order: lint, format, types, import contracts, one version, one home, a whole wheel and sdist."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pluggy
import pytest
import tomllib
import yaml

import pulsar_offload

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
DEPENDENCIES = SETTINGS["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]
HOOKS = tomllib.loads((ROOT / "hooks" / "pyproject.toml").read_text())["project"]


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


def test_the_version_stands_in_one_place():
    newest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert PROJECT["version"] == pulsar_offload.__version__ == newest[1]
    written = re.compile(r"pulsar[_-]offload[-= ]+v?\d+\.\d|__version__ = ")
    recorded = ROOT / "docs" / "gallery"  # what commands print, made anew with each version
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "CITATION.cff"]
    pages = [page for page in pages if recorded not in page.parents]
    modules = (ROOT / "pulsar_offload").rglob("*.py")
    assert [path for path in (*pages, *modules) if written.search(path.read_text())] == []


def test_the_home_stands_in_one_place_and_its_pages_exist():
    home = PROJECT["urls"]["Homepage"]
    for name, url in PROJECT["urls"].items():
        assert url.startswith(home), name
        kind, _, path = url.removeprefix(home).strip("/").partition("/")
        assert kind in ("", "issues") or (ROOT / path.partition("/")[2]).exists(), name
    others = [
        *ROOT.glob("*.*"),
        ROOT / "NOTICE",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / ".github").rglob("*.*"),
    ]
    assert [path.name for path in others if path.is_file() and home in path.read_text()] == ["pyproject.toml"]


def test_what_contributors_are_sent_to_exists():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", page)
    made = re.compile(r"crate|NAME|^\.venv/|^streamnative/|^dist/")
    assert len(named) > 20
    assert [
        path
        for path in named
        if not made.search(path) and not any((ROOT / root / path).exists() for root in ("", "offload_core"))
    ] == []
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make (\w+)", page)) <= targets


@pytest.mark.parametrize(
    ("tag", "home", "is_one"),
    [
        ("v1.2.3", "https://example.com/offload", True),
        ("v1.2.3", "https://example.org/offload", False),
        ("v1.2.4", "https://example.com/offload", False),
        ("1.2.3", "https://example.com/offload", False),
        ("", "https://example.com/offload", False),
    ],
)
def test_a_release_has_the_tag_of_its_version_and_a_home(tag, home, is_one, tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").write_text(f'version = "1.2.3"\nHomepage = "{home}"\n')
    made = subprocess.run(
        ["make", "--old-file=dist", "release", f"TAG={tag}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (made.returncode == 0) is is_one, made.stdout + made.stderr


def test_the_citation_says_what_the_project_says():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    (author,) = PROJECT["authors"]
    assert [cited["title"], cited["abstract"], cited["license"], cited["keywords"], cited["authors"]] == [
        PROJECT["name"],
        PROJECT["description"],
        PROJECT["license"],
        PROJECT["keywords"],
        [author],
    ]


def test_source_roots_are_no_packages():
    assert [
        root
        for root in ("hooks", "drivers", "proto", "integrations")
        if (ROOT / root / "__init__.py").exists()
    ] == []


@pytest.mark.parametrize("page", [*ROOT.glob("*.md")], ids=lambda path: path.stem)
def test_files_that_pages_of_the_root_name_exist(page):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_everything_is_pinned_and_the_pins_hold_here():
    from importlib.metadata import version

    pins = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    lowered = {re.sub(r"[-_.]+", "-", name).lower(): pin for name, pin in pins.items()}
    for requirement in [*DEPENDENCIES, "pyspark", "typer", "rich", "hypothesis", "mypy"]:
        name = re.split(r"[<>=\[]", requirement)[0]
        assert version(name) == lowered[re.sub(r"[-_.]+", "-", name).lower()], name


def test_the_lowest_versions_that_are_tried_are_those_of_the_project():
    text = (ROOT / "tests/support/servers/pyspark/requirements-lowest.txt").read_text()
    tried = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))
    for requirement in DEPENDENCIES:
        name, lowest = requirement.split(">=")
        assert f"{tried[name]}.".startswith(f"{lowest}."), name


def names_in_wheel(project, folder):
    """Build a project, a folder or an sdist, and list the files of its wheel."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(project)], check=True)
    (wheel,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.install
def test_the_wheel_has_everything(tmp_path):
    names = names_in_wheel(ROOT, tmp_path)
    for folder, package in (
        (".", "offload_core"),
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
    assert not [name for name in names if name.startswith("offload_hooks")]
    template = ROOT / "offload_core" / "interfaces" / "cli" / "plugin_templates"
    parts = {
        path.relative_to(ROOT).as_posix()
        for path in template.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert len(parts) >= 34
    assert parts <= names
    assets = {
        f"offload_core/maintenance/inventory/report_assets/{name}"
        for name in ("page.html", "report.css", "report.js")
    }
    assert assets | {"offload_core/maintenance/inventory/example_prices/aws-s3.toml"} <= names
    assert "offload_core/interfaces/cli/completions.tsv" in names
    assert any(name.endswith(".data/data/share/man/man1/offload.1") for name in names)
    assert {name.rpartition("/")[2] for name in names if ".dist-info/licenses/" in name} == {
        "LICENSE",
        "NOTICE",
    }
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs"))]


@pytest.mark.install
@pytest.mark.parametrize(
    ("setting", "requirement"),
    [(None, f" @ {(ROOT / 'hooks').as_uri()}"), ("==1.2.3", "==1.2.3"), ("", "")],
    ids=["checkout", "release", "editable"],
)
def test_the_hooks_are_taken_from_the_checkout_and_of_a_release_by_version(
    tmp_path, monkeypatch, setting, requirement
):
    if setting is not None:
        monkeypatch.setenv("OFFLOAD_HOOKS", setting)
    names = names_in_wheel(ROOT, tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    (metadata,) = [name for name in names if name.endswith("/METADATA")]
    lines = zipfile.ZipFile(wheel).read(metadata).decode().splitlines()
    assert f"Requires-Dist: {HOOKS['name']}{requirement}" in lines
    assert wheel.stat().st_size < 2_000_000


@pytest.mark.install
def test_the_hooks_need_pluggy_and_nothing_else(tmp_path):
    assert [re.split(r"[<>=]", each)[0] for each in HOOKS["dependencies"]] == ["pluggy"]
    names = names_in_wheel(ROOT / "hooks", tmp_path)
    package = ROOT / "hooks" / "offload_hooks"
    modules = {path.relative_to(ROOT / "hooks").as_posix() for path in package.rglob("*.py")}
    assert modules | {"offload_hooks/py.typed"} <= names
    assert {name.rpartition("/")[2] for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    (wheel,) = tmp_path.glob("*.whl")
    assert f"-{PROJECT['version']}-" in wheel.name
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (tmp_path / "site" / "pluggy").symlink_to(Path(pluggy.__file__).parent)
    run = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
    for name in modules:
        if "/testing/" not in name:
            run += f"import {name.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}\n"
    subprocess.run([sys.executable, "-I", "-S", "-c", run], check=True)


def test_an_authors_fixtures_are_not_overridden_by_the_suites_parameters():
    suites = (ROOT / "hooks" / "offload_hooks" / "testing").rglob("*.py")
    named = [
        (path, re.findall(r"parametrize\(\s*(?:\(([^)]*)\)|(\"\w+\"))", path.read_text())) for path in suites
    ]
    names = {name for _, found in named for pair in found for name in re.findall(r"\w+", "".join(pair))}
    assert len(names) > 10
    assert [name for name in names if not name.startswith("case_")] == []


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sdist")
    hatch = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(folder)]
    subprocess.run(hatch, cwd=ROOT, check=True, capture_output=True)
    (archive,) = folder.iterdir()
    return archive


@pytest.mark.install
def test_the_sdist_builds_the_wheel_that_the_source_tree_builds(sdist, tmp_path):
    assert names_in_wheel(sdist, tmp_path / "of_sdist") == names_in_wheel(ROOT, tmp_path / "of_tree")


@pytest.mark.nightly
@pytest.mark.install
@pytest.mark.timeout(3600)
def test_the_sdist_tests_itself(sdist, tmp_path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    sources = os.pathsep.join(str(tree / root) for root in (".", "hooks", "drivers", "proto", "integrations"))
    short = re.search(
        r"^check:.*\n\t\$\(PYTEST\) -m \"(.*)\"$", (tree / "Makefile").read_text(), re.MULTILINE
    )
    assert short is not None
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", short[1]],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": sources},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr
