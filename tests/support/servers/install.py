"""Install the pinned servers into `.servers/`: `PYTHONPATH=tests/support python -m servers.install` does them all."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import time
from pathlib import Path

from servers.once import BuildError, Run, built_once
from servers.toolchains import ToolchainMissing, apt, go, java, javac, maven, node, npm, with_path

VERSITYGW = "1.8.0"
FAKE_GCS_SERVER = "1.56.1"  # also in gcs/go.mod
AZURITE = "3.35.0"
HADOOP = "3.4.2"  # also in hdfs/pom.xml
CHROMIUM = "chromium-headless-shell"  # Debian's newest: its archive keeps no older ones
PULSAR = "4.0.8"  # also in pulsar/pom.xml and tests/java/pom.xml

_FAKE_GCS = Path(__file__).with_name("gcs")
_HDFS_POM = Path(__file__).with_name("hdfs") / "pom.xml"
_PULSAR_POM = Path(__file__).with_name("pulsar") / "pom.xml"
_JAVA = Path(__file__).resolve().parents[2] / "java"


def versitygw() -> Path:
    """The program `versitygw`; raises `ToolchainMissing` or `BuildError`, as the others here do."""
    module = f"github.com/versity/versitygw/cmd/versitygw@v{VERSITYGW}"
    return _go_program("s3", f"versitygw-{VERSITYGW}", module) / "versitygw"


def fake_gcs_server() -> Path:
    """The program `fake-gcs-server`, with the compose request mended (`gcs/main.go` says how)."""

    def build(folder: Path, run: Run) -> None:
        run([str(go("gcs")), "build", "-C", str(_FAKE_GCS), "-o", str(folder / "fake-gcs-server"), "."], {})

    digest = _digest(_FAKE_GCS / "main.go", _FAKE_GCS / "go.sum")
    return built_once(f"fake-gcs-server-{FAKE_GCS_SERVER}-{digest}", build) / "fake-gcs-server"


def azurite() -> tuple[Path, Path]:
    """The program `node`, and the script of Azurite's blob service to run with it."""
    program = node("azure")

    def build(folder: Path, run: Run) -> None:
        arguments = ["install", "--prefix", str(folder), "--no-audit", "--no-fund", f"azurite@{AZURITE}"]
        run([*npm("azure"), *arguments], with_path(program.parent))

    folder = built_once(f"azurite-{AZURITE}", build)
    return program, folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def minihdfs() -> tuple[Path, Path]:
    """The program `java`, and the folder with the jars of Hadoop's mini cluster."""

    def build(folder: Path, run: Run) -> None:
        _copy_dependencies("hdfs", _HDFS_POM, folder, run)

    return java("hdfs"), built_once(f"hadoop-{HADOOP}-{_digest(_HDFS_POM)}", build)


def broker() -> tuple[Path, Path]:
    """The program `java`, and a folder with a broker's jars in `lib` and its offloaders in `offloaders`."""

    def build(folder: Path, run: Run) -> None:
        _copy_dependencies("broker", _PULSAR_POM, folder, run)
        (archive,) = folder.glob("pulsar-server-distribution-*.tar.gz")
        place = ["-C", str(folder), "--strip-components=1"]
        run(["tar", "-xzf", str(archive), *place, f"apache-pulsar-{PULSAR}/lib"], {})
        archive.unlink()
        (folder / "offloaders").mkdir()
        for jar in folder.glob("tiered-storage-*.jar"):
            jar.rename(folder / "offloaders" / f"{jar.stem}.nar")

    return java("broker"), built_once(f"pulsar-{PULSAR}-{_digest(_PULSAR_POM)}", build)


def oracle() -> tuple[Path, str]:
    """The program `java`, and the class path of the Java oracle (`tests/java`) with Pulsar's offloaders."""

    def build(folder: Path, run: Run) -> None:
        arguments = ["-q", "-B", "-f", str(_JAVA / "pom.xml"), f"-Dtarget={folder}"]
        javac("java")
        run([str(maven("java")), *arguments, "compile", "dependency:copy-dependencies"], {})

    program = java("java")
    digest = _digest(_JAVA / "pom.xml", *sorted((_JAVA / "src").rglob("*.java")))
    folder = built_once(f"oracle-{PULSAR}-{digest}", build)
    return program, os.pathsep.join([str(folder / "classes"), str(folder / "jars" / "*")])


def chromium() -> tuple[Path, dict[str, str]]:
    """A headless Chromium, and what its environment needs: the machine's own, or Debian's unpacked, without root.

    apt takes it, and the libraries that this machine lacks, from where apt is told to, and verifies them.
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


def main() -> int:
    """Install every server whose toolchain is here, print a line for each, and return 1 if one failed.

    Tests say themselves that a toolchain is missing, and fail or are skipped as `OFFLOAD_REQUIRE` says.
    """
    failed = []
    for install in (versitygw, fake_gcs_server, azurite, minihdfs, oracle, broker, chromium):
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


def _go_program(part: str, name: str, module: str) -> Path:
    def build(folder: Path, run: Run) -> None:
        run([str(go(part)), "install", module], {"GOBIN": str(folder)})

    return built_once(name, build)


def _copy_dependencies(part: str, pom: Path, folder: Path, run: Run) -> None:
    """Have Maven copy what `pom` lists into `folder`; a file whose checksum is wrong is an error."""
    options = ["-q", "-B", "--strict-checksums", "-f", str(pom), f"-DoutputDirectory={folder}"]
    run([str(maven(part)), *options, "dependency:copy-dependencies"], {})


def _digest(*sources: Path) -> str:
    """A part of a folder's name, so that the folder follows what it was made of."""
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:8]


if __name__ == "__main__":
    sys.exit(main())
