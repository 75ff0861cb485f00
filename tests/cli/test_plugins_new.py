"""`offload plugins new`: a project that works at once, and what it is refused for."""

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
from offload_core.interfaces.cli.plugins import MAX_NAME_LENGTH, TEMPLATES, PluginKind
from offload_core.storage.tier import open_store

pytestmark = pytest.mark.long

NAME = "acme-tape"
KINDS = [kind.value for kind in PluginKind]


def make(folder, name=NAME, kind="driver", **environment):
    """A new project, made by the command."""
    command = [str(COMMAND), "plugins", "new", name, "--kind", kind, "--directory", str(folder)]
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
def projects(tmp_path_factory):
    """A project of each kind; that of a driver is called `acme-tape`."""
    folder = tmp_path_factory.mktemp("projects")
    return {kind: make(folder, NAME if kind == "driver" else f"acme-{kind}", kind) for kind in KINDS}


@pytest.fixture(scope="module")
def project(projects):
    return projects["driver"]


@pytest.fixture(scope="module")
def site(projects, tmp_path_factory):
    """The projects, installed into one directory."""
    target = tmp_path_factory.mktemp("site")
    install_into(target, *projects.values())
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
    assert (
        result.out.splitlines()[-1] == "Then make offload_acme_tape/driver.py your own; README.md says how."
    )
    assert "AcmeTapeDriver" in files(target)["offload_acme_tape/driver.py"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_project_has_its_plugin_its_suite_and_a_use_of_it(projects, kind):
    written = files(projects[kind])
    module = f"offload_acme_{'tape' if kind == 'driver' else kind.replace('-', '_')}"
    own = {"offload_acme_tape/directory.py"} if kind == "driver" else set()
    plugin = f"{module}/{kind.replace('-', '_')}.py"
    assert set(written) == own | {
        *(".gitignore", "README.md", "pyproject.toml", f"{module}/__init__.py", plugin),
        *("tests/test_conformance.py", "tests/test_installed.py"),
    }
    assert "{{" not in "".join(written.values())
    assert "{%" not in "".join(written.values())
    rows = re.findall(r"^\| `(\S+)` \|", written["README.md"], re.MULTILINE)
    assert set(rows) == set(written) - {".gitignore", "README.md", f"{module}/__init__.py"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_plugin_is_small(projects, kind):
    (path,) = projects[kind].glob(f"offload_acme_*/{kind.replace('-', '_')}.py")
    lines = [line.strip() for line in path.read_text().splitlines()]
    assert len([line for line in lines if line and not line.startswith(("#", '"""'))]) <= MOST_LINES.get(
        kind, 85
    )


MOST_LINES = {"driver": 120, "ledger-store": 175}


@pytest.mark.parametrize(
    ("name", "plugin"),
    [("my-filter", "MyFilter"), ("heartbeats", "HeartbeatsFilter"), ("filter", "FilterFilter")],
)
def test_a_plugin_has_a_name_that_says_its_kind_once(offload, tmp_path, name, plugin):
    offload("plugins", "new", name, "--kind", "filter", "--directory", tmp_path)
    written = files(tmp_path / f"pulsar-offload-{name}")
    assert f'= "offload_{name.replace("-", "_")}:{plugin}"\n' in written["pyproject.toml"]


def test_without_a_directory_it_writes_here(offload, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert offload("plugins", "new", NAME).code == 0
    assert (tmp_path / "pulsar-offload-acme-tape" / "pyproject.toml").is_file()


def test_what_pip_compiled_of_the_template_is_not_written(offload, tmp_path, monkeypatch):
    shutil.copytree(TEMPLATES, tmp_path / "templates")
    for folder in [path for path in (tmp_path / "templates").rglob("*") if path.is_dir()]:
        (folder / "__pycache__").mkdir(exist_ok=True)
        (folder / "__pycache__" / "driver.cpython-311.pyc").write_bytes(b"\0")
    monkeypatch.setattr(plugins, "TEMPLATES", tmp_path / "templates")
    assert offload("plugins", "new", NAME, "--directory", tmp_path / "made").code == 0
    assert list((tmp_path / "made").rglob("__pycache__")) == []


@pytest.mark.sampled(7)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["a", "zz-9", "x" * MAX_NAME_LENGTH])
def test_what_is_written_is_clean_for_ruff(offload, tmp_path, name, kind):
    offload("plugins", "new", name, "--kind", kind, "--directory", tmp_path)
    target = tmp_path / f"pulsar-offload-{name}"
    for command in (["check"], ["format", "--check"]):
        ruff = [COMMAND.with_name("ruff"), *command, "--no-cache", "."]
        done = subprocess.run(ruff, cwd=target, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_the_users_configuration_of_cookiecutter_does_not_count(tmp_path, project):
    home = tmp_path / "home"
    home.mkdir()
    settings = {"default_context": {"plugin": "Evil", "module": "evil"}, "replay_dir": str(home / "replay")}
    for name in (".cookiecutterrc", "named"):
        (home / name).write_text(json.dumps(settings))
    before = files(home)
    for folder, environment in (("1", {}), ("2", {"COOKIECUTTER_CONFIG": str(home / "named")})):
        made = make(tmp_path / folder, HOME=str(home), **environment)
        assert files(made) == files(project)
    assert files(home) == before


# --- what is refused ---------------------------------------------------------------------------


NO_NAMES = [
    *("", "Tape", "9tape", "a_b", "a-", "a--b", "../tape", "tape/x", "täpe", "a" * (MAX_NAME_LENGTH + 1))
]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        *((name, "this is no name for a plugin") for name in NO_NAMES),
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
    ("kind", "name", "why"),
    [
        ("layer", "retry", "offers the layer 'retry'"),
        ("filter", "transactions", "offers the offload filter 'transactions'"),
        ("schema-provider", "saved", "offers the schema provider 'saved'"),
        ("key-provider", "pem", "offers the key provider 'pem'"),
        ("metadata-store", "sqlite", "offers the metadata store 'sqlite'"),
        ("ledger-store", "embedded", "offers the ledger store 'embedded'"),
    ],
)
def test_a_name_is_taken_by_plugins_of_its_kind_only(offload, tmp_path, kind, name, why):
    result = offload("plugins", "new", name, "--kind", kind, "--directory", tmp_path)
    assert result.code == 2
    assert f"the name is taken: pulsar-offload {why}" in result.err
    other = "layer" if kind == "filter" else "filter"
    assert offload("plugins", "new", name, "--kind", other, "--directory", tmp_path).code == 0


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


LEAST_CASES = {"driver": 150, "layer": 150, "metadata-store": 35, "ledger-store": 80}


@pytest.mark.parametrize("kind", KINDS)
def test_the_plugin_passes_its_conformance_suite_at_once(projects, kind):
    code, output = run_tests(projects[kind], "-p", "effort", "tests/test_conformance.py")
    assert code == 0, output
    assert int(re.findall(r"(\d+) passed", output)[0]) > LEAST_CASES.get(kind, 10)


FAULTS = [
    ("driver", "os.link(path, target)", "os.replace(path, target)"),
    ("driver", ' or offset + length > facts_of(file)["size_bytes"]', ""),
    ("driver", "return self._store.drop(upload.key, upload.upload_id)", "return True"),
    ("driver", "lowered = {name.lower(): text", "lowered = {name: text"),
    ("layer", "return self._rest.write_index(key=key", 'return self._rest.write_index(key=key + "x"'),
    ("filter", "return metadata[place : place + length] if", "return metadata[place : place + 7] if"),
    ("filter", "with placed(ledger_id=ledger_id, entry_id=entry_id)", "with placed(ledger_id=ledger_id)"),
    ("schema-provider", "quote(topic.removeprefix('persistent://'), safe='')", "topic.rpartition('/')[2]"),
    ("schema-provider", "if self._directory.is_dir()", "if True"),
    ("key-provider", "except ValueError:  # whose text", "except KeyError:  # whose text"),
    ("key-provider", "if len(file) > MOST_NAME_BYTES", "if False"),
    ("metadata-store", "SET version = version + 1", "SET version = 1"),
    ("metadata-store", '"BEGIN IMMEDIATE" if writes else "BEGIN"', '"BEGIN"'),
    ("ledger-store", "SET sealed = 1, fenced = 1", "SET sealed = 1"),
    ("ledger-store", "if payloads and used > max_bytes", "if used > max_bytes"),
]
"""A line of a template, and what breaks it."""


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("kind", "right", "wrong"), FAULTS)
def test_the_conformance_suite_catches_a_plugin_that_breaks_it(projects, tmp_path, kind, right, wrong):
    target = shutil.copytree(projects[kind], tmp_path / "project")
    changed = [path for path in target.glob("offload_acme_*/*.py") if right in path.read_text()]
    assert len(changed) == 1
    changed[0].write_text(changed[0].read_text().replace(right, wrong))
    code, output = run_tests(target, "-x", "tests/test_conformance.py")
    assert code == 1, output
    assert "1 failed" in output


@pytest.mark.parametrize("kind", KINDS)
def test_the_plugin_itself_imports_the_hooks_only(projects, kind):
    for path in projects[kind].glob("offload_acme_*/*.py"):
        imported = re.findall(r"^(?:from|import) (\w+)", path.read_text(), re.MULTILINE)
        assert not {"offload_core", "pulsar_offload"} & set(imported)


# --- installed ---------------------------------------------------------------------------------


@pytest.mark.install
@pytest.mark.parametrize("kind", KINDS)
def test_installed_the_plugin_is_found_and_used(projects, site, kind):
    code, output = run_tests(projects[kind], "tests/test_installed.py", site=site)
    assert code == 0, output
    assert re.search(r"\d passed", output), output
    assert "skipped" not in output


@pytest.mark.install
def test_installed_all_are_listed_as_working(offload, projects, site, monkeypatch):
    monkeypatch.syspath_prepend(site)
    found = {
        (row["group"], row["name"]): row["status"]
        for row in offload("plugins", "--json").json
        if row["distribution"].startswith("pulsar-offload-acme-")
    }
    names = {kind: path.name.removeprefix("pulsar-offload-") for kind, path in projects.items()}
    assert found == {(group, names[kind.value]): "ok" for kind in PluginKind for group in kind.groups}


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
