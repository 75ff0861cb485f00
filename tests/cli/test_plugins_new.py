"""`offload plugins new`: a project that works at once, and what it is refused for."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from operator import methodcaller
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commands import COMMAND, install_into
from golden import COLUMNS, assert_topic_is_as_expected
from tiers import put_broker_objects

from offload_core.interfaces.cli import plugins
from offload_core.interfaces.cli.plugins import MAX_NAME_LENGTH, TEMPLATE
from offload_core.storage.tier import open_store

NAME = "acme-tape"
FILES = {
    ".gitignore",
    "README.md",
    "pyproject.toml",
    "offload_acme_tape/__init__.py",
    "offload_acme_tape/directory.py",
    "offload_acme_tape/driver.py",
    "tests/test_conformance.py",
    "tests/test_installed.py",
}


def make(folder, name=NAME, **environment):
    """A new project, made by the command."""
    command = [str(COMMAND), "plugins", "new", name, "--directory", str(folder)]
    subprocess.run(command, env=os.environ | environment, check=True, capture_output=True, timeout=120)
    return folder / f"pulsar-offload-{name}"


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


SUPPORT = Path(__file__).parents[1] / "support"


def run_tests(project, *arguments, site=None):
    """The exit code and output of the project's own tests; the project is on the path or, with `site`, installed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    elsewhere = {
        "PYTHONPATH": os.pathsep.join([str(site or project), str(SUPPORT)]),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(project.parent / "hypothesis"),
    }
    piped = {"capture_output": True, "text": True, "timeout": 500, "check": False}
    done = subprocess.run(command, cwd=project, env=os.environ | elsewhere, **piped)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return make(tmp_path_factory.mktemp("projects"))


@pytest.fixture(scope="module")
def site(project, tmp_path_factory):
    """The project, installed into a directory."""
    target = tmp_path_factory.mktemp("site")
    install_into(target, project)
    return target


# --- what is written ---------------------------------------------------------------------------


def test_it_writes_a_project_and_says_what_to_do_next(offload, tmp_path):
    result = offload("plugins", "new", NAME, "--directory", tmp_path)
    target = tmp_path / "pulsar-offload-acme-tape"
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[:5] == [
        f"{target} is written. Next:",
        "",
        f"    cd {target}",
        "    python -m pip install --editable '.[test]'",
        "    python -m pytest",
    ]
    assert set(files(target)) == FILES
    assert "{{" not in "".join(files(target).values())
    assert "AcmeTapeDriver" in files(target)["offload_acme_tape/driver.py"]


def test_the_driver_has_some_60_lines_of_code(project):
    source = (project / "offload_acme_tape" / "driver.py").read_text()
    (driver,) = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    lines = [line.strip() for line in source.splitlines()[driver.lineno - 1 : driver.end_lineno]]
    assert len([line for line in lines if line and not line.startswith(("#", '"""'))]) <= 62


def test_without_a_directory_it_writes_here(offload, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert offload("plugins", "new", NAME).code == 0
    assert set(files(tmp_path / "pulsar-offload-acme-tape")) == FILES


def test_what_pip_compiled_of_the_template_is_not_written(offload, tmp_path, monkeypatch):
    shutil.copytree(TEMPLATE, tmp_path / "template")
    for folder in [path for path in (tmp_path / "template").rglob("*") if path.is_dir()]:
        (folder / "__pycache__").mkdir(exist_ok=True)
        (folder / "__pycache__" / "driver.cpython-311.pyc").write_bytes(b"\0")
    monkeypatch.setattr(plugins, "TEMPLATE", tmp_path / "template")
    assert offload("plugins", "new", NAME, "--directory", tmp_path / "made").code == 0
    assert list((tmp_path / "made").rglob("__pycache__")) == []


@pytest.mark.parametrize("name", ["a", "zz-9", "x" * MAX_NAME_LENGTH])
def test_what_is_written_is_clean_for_ruff(offload, tmp_path, name):
    offload("plugins", "new", name, "--directory", tmp_path)
    target = tmp_path / f"pulsar-offload-{name}"
    for command in (["check"], ["format", "--check"]):
        ruff = [COMMAND.with_name("ruff"), *command, "--no-cache", "."]
        done = subprocess.run(ruff, cwd=target, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.long
def test_the_users_configuration_of_cookiecutter_does_not_count(tmp_path, project):
    home = tmp_path / "home"
    home.mkdir()
    settings = {"default_context": {"driver": "Evil", "module": "evil"}, "replay_dir": str(home / "replay")}
    for name in (".cookiecutterrc", "named"):
        (home / name).write_text(json.dumps(settings))
    before = files(home)
    for folder, environment in (("1", {}), ("2", {"COOKIECUTTER_CONFIG": str(home / "named")})):
        made = make(tmp_path / folder, HOME=str(home), **environment)
        assert files(made) == files(project)
    assert files(home) == before


@pytest.mark.long
def test_the_template_is_one_that_cookiecutter_takes_by_itself(tmp_path):
    home = {"HOME": str(tmp_path)}
    command = [sys.executable, "-m", "cookiecutter", TEMPLATE, "--no-input", "--output-dir", tmp_path / "1"]
    subprocess.run(command, env=os.environ | home, check=True, capture_output=True)
    assert files(tmp_path / "1" / "pulsar-offload-my-store") == files(make(tmp_path / "2", "my-store"))


# --- what is refused ---------------------------------------------------------------------------


NO_NAMES = [
    *("", "Tape", "9tape", "a_b", "a-", "a--b", "../tape", "tape/x", "täpe", "a" * (MAX_NAME_LENGTH + 1))
]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        *((name, "this is no name for a driver") for name in NO_NAMES),
        ("local", "the name is taken: pulsar-offload offers the driver 'local'"),
        ("s3", "the name is taken: pulsar-offload offers the driver"),
        ("file", "the name is taken: pulsar-offload offers the URL scheme 'file'"),
        ("core", "the name is taken: a package 'offload_core' is installed"),
    ],
)
def test_what_is_no_name_or_is_taken_is_refused(offload, tmp_path, name, why):
    result = offload("plugins", "new", name, "--directory", tmp_path)
    assert (result.code, result.out) == (2, "")
    assert why in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "make", [Path.mkdir, Path.touch, methodcaller("symlink_to", "nowhere")], ids=["directory", "file", "link"]
)
def test_what_is_there_already_is_left_alone(offload, tmp_path, make):
    target = tmp_path / "pulsar-offload-acme-tape"
    make(target)
    result = offload("plugins", "new", NAME, "--directory", tmp_path)
    assert result.code == 2
    assert f"there is {target} already" in result.err
    assert list(tmp_path.rglob("*")) == [target]


# --- the project's own tests -------------------------------------------------------------------


@pytest.mark.long
def test_the_driver_passes_the_conformance_suite_at_once(project):
    code, output = run_tests(project, "-p", "effort", "tests/test_conformance.py")
    assert code == 0, output
    assert int(re.findall(r"(\d+) passed", output)[0]) > 150


@pytest.mark.long
@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("os.link(path, target)", "os.replace(path, target)"),
        (' or offset + length > facts_of(file)["size_bytes"]', ""),
        ("return self._store.drop(upload.key, upload.upload_id)", "return True"),
        ("lowered = {name.lower(): text", "lowered = {name: text"),
    ],
)
def test_the_conformance_suite_catches_a_driver_that_breaks_it(project, tmp_path, right, wrong):
    target = shutil.copytree(project, tmp_path / "project")
    changed = [path for path in target.glob("offload_acme_tape/*.py") if right in path.read_text()]
    assert len(changed) == 1
    changed[0].write_text(changed[0].read_text().replace(right, wrong))
    code, output = run_tests(target, "-x", "tests/test_conformance.py")
    assert code == 1, output
    assert "1 failed" in output


def test_the_driver_itself_imports_the_hooks_only(project):
    for path in project.glob("offload_acme_tape/*.py"):
        assert "offload_core" not in path.read_text()


# --- installed ---------------------------------------------------------------------------------


@pytest.mark.install
def test_installed_all_its_tests_pass(project, site):
    code, output = run_tests(project, "tests/test_installed.py", site=site)
    assert code == 0, output
    assert "2 passed" in output


@pytest.mark.install
def test_installed_the_doctor_finds_nothing_wrong(offload, site, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(site)
    result = offload("doctor", f"{NAME}://{tmp_path}", "--json")
    assert result.json["summary"] == {"ok": 19, "warning": 0, "failed": 0, "skipped": 0}
    assert list(tmp_path.iterdir()) == []
    assert "the name is taken" in offload("plugins", "new", NAME, "--directory", tmp_path).err


JOB = """
import os
import sys

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

name, root, columns, output = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (
    SparkSession.builder.master("local-cluster[1,1,1024]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.log.level", "ERROR")
    .getOrCreate()
)
source = spark.read.format("pulsar_offload").option("driver", name).option("storage.root", root)
pq.write_table(source.option("columns", columns).load().toArrow(), output)
spark.stop()
"""


@pytest.mark.nightly
@pytest.mark.install
@pytest.mark.spark
def test_installed_spark_reads_through_it(java, site, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(site)
    topics = ["comp-zstd", "jkv-inline", "jstring"]
    with open_store(NAME, root=str(tmp_path / "tier")) as tier:
        put_broker_objects(tier, topics)
    arguments = [NAME, str(tmp_path / "tier"), ",".join(COLUMNS), str(tmp_path / "rows.parquet")]
    done = subprocess.run(
        [sys.executable, "-c", JOB, *arguments],
        cwd=tmp_path,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = pq.read_table(tmp_path / "rows.parquet").to_pylist(maps_as_pydicts="strict")
    for topic in topics:
        of_topic = [row for row in rows if row["__topic"] == f"persistent://acme/cold/{topic}"]
        assert_topic_is_as_expected(of_topic, topic)
