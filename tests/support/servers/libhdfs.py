"""Hadoop's libhdfs for pyarrow's HDFS client, compiled from the sources in a crate, since no package ships it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from servers import install
from servers.once import Run, built_once
from servers.toolchains import ToolchainMissing

HDFS_SYS = "0.3.1"  # also in crate/Cargo.toml
_CRATE = Path(__file__).with_name("crate")
_SOURCES = "vendor/hdfs-sys/libhdfs"
_API = "hdfs_3_3"


def libhdfs(part: str = "libhdfs") -> dict[str, str]:
    """The environment in which pyarrow finds libhdfs, Java and Hadoop's classes."""
    cargo, compiler = shutil.which("cargo"), shutil.which("cc")
    if cargo is None or compiler is None or subprocess.run([cargo, "--version"], check=False).returncode:
        raise ToolchainMissing(part, "install Rust's cargo and a C compiler")
    java, jars = install.minihdfs()
    home = java.resolve().parents[1]
    headers = home / "include"
    if not (headers / "jni.h").exists():
        raise ToolchainMissing(part, "install a JDK")

    def build(folder: Path, run: Run) -> None:
        for name in ("Cargo.toml", "Cargo.lock"):
            shutil.copyfile(_CRATE / name, folder / name)
        (folder / "lib.rs").touch()
        place = ["--manifest-path", f"{folder}/Cargo.toml", f"{folder}/vendor"]
        run([cargo, "vendor", "--quiet", "--locked", *place], {})
        sources = folder / _SOURCES
        api = sources / _API
        include = [
            headers,
            headers / "linux",
            sources,
            api,
            *api.glob("include"),
            api / "os",
            api / "os/posix",
        ]
        jvm = home / "lib" / "server"
        run(
            [
                *[compiler, "-shared", "-fPIC", "-O2", "-w", "-fcommon", "-o", f"{folder}/libhdfs.so"],
                *(f"-I{each}" for each in include),
                *(str(each) for each in api.rglob("*.c") if "windows" not in each.parts),
                *[f"-L{jvm}", "-ljvm", f"-Wl,-rpath,{jvm}", "-lpthread", "-ldl"],
            ],
            {},
        )

    folder = built_once(f"libhdfs-{HDFS_SYS}-{install.digest(_CRATE / 'Cargo.lock')}", build)
    return {
        "ARROW_LIBHDFS_DIR": str(folder),
        "JAVA_HOME": str(home),
        "CLASSPATH": os.pathsep.join(map(str, sorted(jars.glob("*.jar")))),
    }
