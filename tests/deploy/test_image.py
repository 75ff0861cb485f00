"""The image of `deploy/docker`: its commands are run here, in a folder, without Docker."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import pytest
from image import INSTALLED_AT, arguments, instructions, make_context, words
from servers.process import Child, free_port
from service import KEY
from waiting import wait_for

FINAL = dict(instructions(1))


def test_the_image_runs_without_root_and_its_user_is_known_by_number():
    assert FINAL["USER"] == "10001"
    (made,) = [rest for name, rest in instructions(1) if name == "RUN"]
    assert made.startswith("useradd --uid 10001 ")
    names = [name for name, _ in instructions(1)]
    assert names.index("USER") > names.index("RUN")
    assert FINAL["COPY"] == f"--from=build {INSTALLED_AT} {INSTALLED_AT}"
    numba = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")
    assert [arguments(0)[name] for name in numba] == [arguments(1)[name] for name in numba]


@pytest.mark.install
def test_the_build_context_is_enough_for_the_wheel_and_has_no_tests(tmp_path):
    make_context(tmp_path / "source")
    assert not (tmp_path / "source" / "tests").exists()
    assert not list((tmp_path / "source").glob("deploy"))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(tmp_path), str(tmp_path / "source")], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert any(name.endswith("offload.1") for name in zipfile.ZipFile(wheel).namelist())


@pytest.mark.nightly
@pytest.mark.install
def test_the_commands_of_the_dockerfile_make_a_service_that_is_healthy(tmp_path):
    installed, source = tmp_path / "installed", tmp_path / "source"
    make_context(source)
    python = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in (rest for name, rest in instructions(0) if name == "RUN"):
        here = command.replace(INSTALLED_AT, str(installed))
        env = os.environ | arguments(0) | python
        done = subprocess.run(["sh", "-ec", here], cwd=source, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    site = next(installed.glob("lib/python3*/site-packages"))
    assert {"numba", "s3fs", "uvicorn", "kazoo"} <= {path.name for path in site.iterdir()}
    assert not {"pyspark", "pandas", "pip", "ray"} & {path.name for path in site.iterdir()}

    kernels = {path.name for path in site.glob("offload_core/format/__pycache__/*/*")}
    assert len(kernels) > 20
    settings = arguments(1)
    path = settings.pop("PATH").replace(INSTALLED_AT, str(installed)).replace("$PATH", os.environ["PATH"])
    port = free_port()
    env = {**settings, "PATH": path, "PULSAR_OFFLOAD_SERVICE__PORT": str(port)}
    env |= {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    subprocess.run([installed / "bin" / "offload", "warm"], env=os.environ | env, check=True)
    assert {path.name for path in site.glob("offload_core/format/__pycache__/*/*")} == kernels, (
        "compiled again"
    )

    (tmp_path / "token.key").write_bytes(KEY)
    env |= {
        "PULSAR_OFFLOAD_METADATA__URL": f"sqlite:{tmp_path}/metadata.db",
        "PULSAR_OFFLOAD_METADATA__OPTIONS": '{"create": "true"}',
        "PULSAR_OFFLOAD_SERVICE__TOKENS__SECRET_KEY": str(tmp_path / "token.key"),
        "PULSAR_OFFLOAD_SERVICE__TOKENS__SUPERUSER_ROLES": '["admin"]',
    }
    program, *more = words(1, "ENTRYPOINT") + words(1, "CMD")
    child = Child([str(installed / "bin" / program), *more], tmp_path / "log", env)
    check = [word.replace(":8080/", f":{port}/") for word in words(1, "HEALTHCHECK")]

    def is_healthy():
        return subprocess.run(check, env=os.environ | env, capture_output=True).returncode == 0

    child.wait_until(is_healthy)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics")
    os.kill(child.pid, signal.SIGTERM)
    wait_for(lambda: not child.is_running, 20)
    assert not is_healthy()
