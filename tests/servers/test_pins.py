"""Servers are installed as pinned: by checksum, without scripts, from any registry."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from servers import install, toolchains
from servers.once import BuildError

PINS = Path(install.__file__).parent
JARS = [
    PINS / "hdfs" / "jars.sha256",
    *sorted((PINS / "pulsar").glob("jars-*.sha256")),
    PINS.parents[1] / "java" / "jars.sha256",
]


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """The commands of builds; none is run."""
    seen: list[list[str]] = []

    def run(command, env, lock):
        seen.append(command)
        raise BuildError("not run")

    monkeypatch.setenv("OFFLOAD_SERVERS", str(tmp_path / "servers"))
    monkeypatch.setattr("servers.once._run", run)
    for name in ("go", "node", "maven", "java", "javac"):
        monkeypatch.setattr(install, name, lambda _, name=name: Path(f"/bin/{name}"))
    monkeypatch.setattr(install, "npm", lambda _: ["/bin/npm"])
    return seen


def files(folder, contents):
    folder.mkdir()
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize(
    ("found", "others"),
    [
        ({"a.jar": b"a", "b.jar": b"b"}, None),
        ({"a.jar": b"a", "b.jar": b"x"}, "b.jar"),
        ({"a.jar": b"a"}, "b.jar"),
        ({"a.jar": b"a", "b.jar": b"b", "c.jar": b"c"}, "c.jar"),
    ],
)
def test_jars_are_those_that_are_pinned_and_no_others(found, others, tmp_path):
    pinned = tmp_path / "jars.sha256"
    pinned.write_text("".join(f"{hashlib.sha256(each.encode()).hexdigest()}  {each}.jar\n" for each in "ab"))
    folder = files(tmp_path / "jars", found)
    if others is None:
        install.check_files(folder, pinned)
    else:
        with pytest.raises(BuildError, match=rf"jars.sha256 has: {others}$"):
            install.check_files(folder, pinned)


@pytest.mark.parametrize("pinned", JARS, ids=lambda path: path.parent.name)
def test_every_jar_has_a_sha_256(pinned):
    lines = pinned.read_text().splitlines()
    assert lines
    assert all(re.fullmatch(r"[0-9a-f]{64}  [\w.+-]+\.(jar|tar\.gz)", line) for line in lines)


@pytest.mark.parametrize("build", [install.minihdfs, install.broker, install.oracle])
def test_maven_takes_no_wrong_checksum(build, commands):
    with pytest.raises(BuildError, match="not run"):
        build()
    ((program, *arguments),) = commands
    assert program == "/bin/maven"
    assert "--strict-checksums" in arguments
    assert (
        arguments[-1] == "dependency:copy-dependencies"
    )  # nothing is compiled with jars before they are checked


def test_npm_installs_by_the_lock_file_and_runs_no_scripts(commands):
    with pytest.raises(BuildError, match="not run"):
        install.azurite()
    ((program, first, *arguments),) = commands
    assert (program, first) == ("/bin/npm", "ci")
    assert "--ignore-scripts" in arguments
    packages = json.loads((PINS / "azure" / "package-lock.json").read_text())["packages"]
    assert packages["node_modules/azurite"]["version"] == install.AZURITE
    for name, package in packages.items():
        assert "resolved" not in package
        assert not name or package["integrity"].startswith("sha512-")


@pytest.mark.parametrize(
    "build", [install.versitygw, install.fake_gcs_server, install.actionlint, install.helm, install.promtool]
)
def test_go_builds_by_go_sum_only(build, commands):
    with pytest.raises(BuildError, match="not run"):
        build()
    ((program, first, *arguments),) = commands
    assert (program, first) == ("/bin/go", "build")
    assert "-mod=readonly" in arguments
    module = Path(arguments[arguments.index("-C") + 1])
    assert (module / "go.sum").stat().st_size > 1000


def test_go_s_modules_are_of_the_versions_that_folders_are_named_by():
    assert f"github.com/versity/versitygw v{install.VERSITYGW}" in (PINS / "s3" / "go.mod").read_text()
    assert f"fake-gcs-server v{install.FAKE_GCS_SERVER}" in (PINS / "gcs" / "go.mod").read_text()
    assert f"rhysd/actionlint v{install.ACTIONLINT}" in (PINS / "actionlint" / "go.mod").read_text()
    assert f"helm.sh/helm/v3 v{install.HELM}" in (PINS / "helm" / "go.mod").read_text()
    assert f"prometheus/prometheus v{install.PROMTOOL}" in (PINS / "promtool" / "go.mod").read_text()


@pytest.mark.parametrize("pinned", [toolchains.GO_WHEEL, toolchains.NODE_WHEEL], ids=lambda path: path.stem)
def test_wheels_of_toolchains_are_taken_by_hash(pinned, commands):
    requirement, *hashes = pinned.read_text().replace("\\\n", " ").split()
    assert "==" in requirement
    assert len(hashes) == 4  # Linux and macOS, two processors
    assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes)
    with pytest.raises(
        toolchains.ToolchainMissing, match=re.escape(f"let pip install {requirement}: not run")
    ):
        toolchains._wheel("part", pinned, "install it")
    ((_, *arguments),) = commands
    assert "--require-hashes" in arguments
    assert str(pinned) in arguments


def test_no_pin_names_a_registry_but_the_public_one():
    for path in [*PINS.rglob("go.*"), *PINS.rglob("*.json"), *PINS.rglob("*.txt"), *JARS]:
        hosts = set(re.findall(r"https?://([^/\"\s]+)", path.read_text()))
        registries = {
            host for host in hosts if re.search(r"registry|proxy|npm|pypi|maven|^[\d.:]+$|localhost", host)
        }
        assert registries <= {"registry.npmjs.org"}, path
