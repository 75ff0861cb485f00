"""Install the pinned servers into `.servers/`: `PYTHONPATH=tests/support python -m servers.install` does them all.

What is taken from a registry has the checksum that is checked in here: Go's modules by `go.sum`, packages of npm by a
lock file (their scripts are not run), jars by a file `jars*.sha256`, wheels by hashes. Maven's
own plugins are taken by the checksums that the repository names for them.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import time
from pathlib import Path

from servers.once import BuildError, Run, built_once
from servers.toolchains import ToolchainMissing, apt, go, java, javac, maven, node, npm, python_of, with_path

VERSITYGW = "1.8.0"  # also in s3/go.mod
FAKE_GCS_SERVER = "1.56.1"  # also in gcs/go.mod
HELM = "3.22.0"  # also in helm/go.mod
PROMTOOL = "0.316.0"  # also in promtool/go.mod
AZURITE = "3.35.0"  # also in azure/package.json
HADOOP = "3.4.2"  # also in hdfs/pom.xml
ACTIONLINT = "1.7.12"  # also in actionlint/go.mod
CHROMIUM = "chromium-headless-shell"  # Debian's newest: its archive keeps no older ones
PULSAR = "4.0.8"  # also in pulsar/pom.xml and tests/java/pom.xml
OLDER_PULSAR = "3.3.6"  # of 3.0 no whole distribution is in the registry
GRPCIO_TOOLS = "1.71.2"
OTHER_SPARKS = ("3.5.9", "4.0.4", "4.1.4", "4.2.1")  # the suite's own is in constraints.txt

_AZURITE = Path(__file__).with_name("azure")
_HDFS_POM = Path(__file__).with_name("hdfs") / "pom.xml"
_PULSAR_POM = Path(__file__).with_name("pulsar") / "pom.xml"
_JAVA = Path(__file__).resolve().parents[2] / "java"
_MAVEN = ("-q", "-B", "--strict-checksums")


def versitygw() -> Path:
    """The program `versitygw`; raises `ToolchainMissing` or `BuildError`, as the others here do."""
    package = "github.com/versity/versitygw/cmd/versitygw"
    return _go_program("s3", "versitygw", VERSITYGW, package, "go.mod")


def fake_gcs_server() -> Path:
    """The program `fake-gcs-server`, with the compose request mended by `gcs/main.go`."""
    return _go_program("gcs", "fake-gcs-server", FAKE_GCS_SERVER, ".", "main.go")


def actionlint() -> Path:
    """The program `actionlint`, which checks GitHub's workflows."""
    package = "github.com/rhysd/actionlint/cmd/actionlint"
    return _go_program("actionlint", "actionlint", ACTIONLINT, package, "go.mod")


def helm() -> Path:
    """The program `helm`, which renders charts."""
    return _go_program("helm", "helm", HELM, "helm.sh/helm/v3/cmd/helm", "go.mod")


def promtool() -> Path:
    """The program `promtool`, which checks alert rules and runs their tests; without clients of clouds."""
    package = "github.com/prometheus/prometheus/cmd/promtool"
    return _go_program("promtool", "promtool", PROMTOOL, package, "go.mod", "-tags", "remove_all_sd")


def azurite() -> tuple[Path, Path]:
    """The program `node`, and the script of Azurite's blob service to run with it."""
    program = node("azure")

    def build(folder: Path, run: Run) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copyfile(_AZURITE / name, folder / name)
        arguments = ["ci", "--ignore-scripts", "--prefix", str(folder), "--no-audit", "--no-fund"]
        run([*npm("azure"), *arguments], with_path(program.parent))

    folder = built_once(f"azurite-{AZURITE}-{digest(_AZURITE / 'package-lock.json')}", build)
    return program, folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def minihdfs() -> tuple[Path, Path]:
    """The program `java`, and the folder with the jars of Hadoop's mini cluster."""

    pinned = _HDFS_POM.with_name("jars.sha256")

    def build(folder: Path, run: Run) -> None:
        _copy_dependencies("hdfs", _HDFS_POM, pinned, folder, run)

    return java("hdfs"), built_once(f"hadoop-{HADOOP}-{digest(_HDFS_POM, pinned)}", build)


def broker(version: str = PULSAR) -> tuple[Path, Path]:
    """The program `java`, and a folder with a broker's jars in `lib` and its offloaders in `offloaders`."""
    pinned = _PULSAR_POM.with_name(f"jars-{version}.sha256")

    def build(folder: Path, run: Run) -> None:
        _copy_dependencies("broker", _PULSAR_POM, pinned, folder, run, f"-Dpulsar={version}")
        (archive,) = folder.glob("pulsar-server-distribution-*.tar.gz")
        place = ["-C", str(folder), "--strip-components=1"]
        run(["tar", "-xzf", str(archive), *place, f"apache-pulsar-{version}/lib"], {})
        archive.unlink()
        (folder / "offloaders").mkdir()
        for jar in folder.glob("tiered-storage-*.jar"):
            jar.rename(folder / "offloaders" / f"{jar.stem}.nar")

    return java("broker"), built_once(f"pulsar-{version}-{digest(_PULSAR_POM, pinned)}", build)


def oracle() -> tuple[Path, str]:
    """The program `java`, and the class path of the Java oracle (`tests/java`) with Pulsar's offloaders."""

    def build(folder: Path, run: Run) -> None:
        command = [str(maven("java")), *_MAVEN, "-f", str(_JAVA / "pom.xml"), f"-Dtarget={folder}"]
        javac("java")
        run([*command, "dependency:copy-dependencies"], {})
        check_files(folder / "jars", _JAVA / "jars.sha256")
        run([*command, "compile"], {})

    program = java("java")
    made_of = digest(_JAVA / "pom.xml", _JAVA / "jars.sha256", *sorted((_JAVA / "src").rglob("*.java")))
    folder = built_once(f"oracle-{PULSAR}-{made_of}", build)
    return program, os.pathsep.join([str(folder / "classes"), str(folder / "jars" / "*")])


def chromium() -> tuple[Path, dict[str, str]]:
    """A headless Chromium, the machine's own or Debian's unpacked without root, and its environment variables.

    apt takes it, and the libraries that this machine lacks, from its configured sources, and verifies them.
    """
    for name in (CHROMIUM, "chromium"):
        if found := shutil.which(name):
            return Path(found), {}
    apt_get, dpkg_deb = apt("chromium")

    def build(folder: Path, run: Run) -> None:
        lists, packages = folder / "lists", folder / "packages"
        for each in (lists / "partial", packages):
            each.mkdir(parents=True)
        own = [
            f"Dir::State::Lists={lists}",
            f"Dir::Cache={lists}",
            "Debug::NoLocking=1",
            "APT::Sandbox::User=root",
        ]
        get = [str(apt_get), "-q", *(word for each in own for word in ("-o", each))]
        run([*get, "update"], {})
        planned = f"{shlex.join(get)} install --simulate --no-install-recommends {CHROMIUM}"
        named = "sed -n 's/^Inst \\([^ ]*\\) .*(\\([^ ]*\\) .*/\\1=\\2/p'"
        script = f"cd {shlex.quote(str(packages))} && {shlex.join(get)} download $({planned} | {named})"
        run(["sh", "-ec", script], {})
        for package in sorted(packages.iterdir()):
            run([str(dpkg_deb), "-x", str(package), str(folder / "root")], {})
        shutil.rmtree(lists)
        shutil.rmtree(packages)

    root = built_once(CHROMIUM, build) / "root"
    libraries = sorted({path.parent for path in (root / "usr" / "lib").glob("*/**/*.so*")})
    return root / "usr" / "lib" / "chromium" / CHROMIUM, {
        "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries))
    }


def axe() -> Path:
    """The program of axe-core, which runs in a page and names what is inaccessible; a package of Python has it."""
    return _packages("axe", "axe/requirements.txt") / "axe_playwright_python" / "axe.min.js"


OLDEST_PYTHON = "3.10"


def pyspark(version: str) -> Path:
    """A folder with another PySpark, to be put before the installed one: one of `OTHER_SPARKS`."""
    return _packages(f"pyspark-{version}", f"pyspark/requirements-{version}.txt")


def daft() -> Path:
    """A folder with Daft and the PyArrow that it takes, to be put before the installed one."""
    return _packages("daft", "daft/requirements.txt")


def protoc() -> Path:
    """A folder with the grpcio-tools that makes the generated modules (ADR 0005).

    It lies apart, without what it depends on, since that is an older protobuf than others here need; protoc itself
    needs none.
    """
    name = f"grpcio-tools-{GRPCIO_TOOLS}-{sys.implementation.cache_tag}"  # it is compiled
    return _packages(name, f"grpcio-tools/requirements-{GRPCIO_TOOLS}.txt")


def _packages(name: str, requirements: str) -> Path:
    """A folder with some distributions, and nothing that they depend on."""
    pinned = Path(__file__).parent / requirements

    def build(folder: Path, run: Run) -> None:
        options = ["--quiet", "--no-deps", "--require-hashes", "--target", str(folder)]
        run([sys.executable, "-m", "pip", "install", *options, "--requirement", str(pinned)], {})

    return built_once(f"{name}-{digest(pinned)}", build)


def lowest() -> Path:
    """A Python of the oldest version, with the lowest versions of what it takes to read from Spark: its program."""
    python = python_of(OLDEST_PYTHON)
    pinned = Path(__file__).with_name("pyspark") / "requirements-lowest.txt"

    def build(folder: Path, run: Run) -> None:
        run([str(python), "-m", "venv", str(folder)], {})
        options = ["--quiet", "--no-deps", "--require-hashes", "--requirement", str(pinned)]
        run([str(folder / "bin" / "python"), "-m", "pip", "install", *options], {})

    return built_once(f"python-{OLDEST_PYTHON}-{digest(pinned)}", build) / "bin" / "python"


def main() -> int:
    """Install every server whose toolchain is here, print a line for each, and return 1 if one failed.

    Tests report a missing toolchain themselves, and fail or are skipped by `OFFLOAD_REQUIRE`.
    """
    failed = []
    for install in (
        protoc,
        versitygw,
        fake_gcs_server,
        azurite,
        minihdfs,
        oracle,
        broker,
        chromium,
        axe,
        actionlint,
    ):
        begun = time.monotonic()
        try:
            install()
        except ToolchainMissing as missing:
            print(f"{install.__name__}: left out: {missing}", flush=True)
        except BuildError as error:
            failed.append(install.__name__)
            print(f"{install.__name__}: failed: {error}", flush=True)
        else:
            print(f"{install.__name__}: there ({time.monotonic() - begun:.1f} s)", flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _go_program(part: str, name: str, version: str, package: str, source: str, *flags: str) -> Path:
    """Have Go build a package by a module's `go.mod` and `go.sum`; other versions or checksums are an error."""
    module = Path(__file__).with_name(part)

    def build(folder: Path, run: Run) -> None:
        options = ["-C", str(module), "-mod=readonly", *flags, "-o", str(folder / name)]
        run([str(go(part)), "build", *options, package], {})

    made_of = digest(module / source, module / "go.sum")
    return built_once(f"{name}-{version}-{made_of}", build) / name


def _copy_dependencies(part: str, pom: Path, pinned: Path, folder: Path, run: Run, *properties: str) -> None:
    """Have Maven copy what `pom` lists with these properties into `folder`: just the files that are pinned."""
    options = [*_MAVEN, "-f", str(pom), f"-DoutputDirectory={folder}", *properties]
    run([str(maven(part)), *options, "dependency:copy-dependencies"], {})
    check_files(folder, pinned)


def check_files(folder: Path, pinned: Path) -> None:
    """Compare all files of a folder with what `sha256sum` wrote of them; `BuildError` names those that are others."""
    expected = {name: checksum for checksum, name in map(str.split, pinned.read_text().splitlines())}
    found = {}
    for path in folder.iterdir():
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    others = sorted(name for name in expected | found if expected.get(name) != found.get(name))
    if others:
        raise BuildError(f"other files than {pinned.parent.name}/{pinned.name} has: {', '.join(others)}")


def digest(*sources: Path) -> str:
    """A part of a folder's name, so that the folder follows what it was made of."""
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:8]


if __name__ == "__main__":
    sys.exit(main())
