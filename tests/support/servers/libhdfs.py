"""Hadoop's libhdfs, which pyarrow's HDFS client needs and nobody ships built: compiled from the sources in a crate."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from servers import install
from servers.once import Run, built_once
from servers.toolchains import ToolchainMissing

HDFS_SYS = "0.3.1"
_SOURCES = "vendor/hdfs-sys/libhdfs"
_API = "hdfs_3_3"

_MANIFEST = f"""
[package]
name = "libhdfs"
version = "0.0.0"
edition = "2021"

[lib]
path = "lib.rs"

[dependencies]
hdfs-sys = "={HDFS_SYS}"
"""


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
        (folder / "Cargo.toml").write_text(_MANIFEST)
        (folder / "lib.rs").touch()
        run([cargo, "vendor", "--quiet", "--manifest-path", f"{folder}/Cargo.toml", f"{folder}/vendor"], {})
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

    folder = built_once(f"libhdfs-{HDFS_SYS}", build)
    return {
        "ARROW_LIBHDFS_DIR": str(folder),
        "JAVA_HOME": str(home),
        "CLASSPATH": os.pathsep.join(map(str, sorted(jars.glob("*.jar")))),
    }
