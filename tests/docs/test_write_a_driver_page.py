"""docs/write-a-driver.md: its ten minutes, typed as they are there into an environment of their own."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "write-a-driver.md"
TEN_MINUTES = PAGE.read_text().partition("## In ten minutes")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```console\n(.*?)^```", TEN_MINUTES, re.MULTILINE | re.DOTALL)
COMMANDS = [line.removeprefix("$ ") for block in BLOCKS for line in block.splitlines()]
MAIN = "import sys\nfrom offload_core.interfaces.cli.main import main\nsys.exit(main())\n"


@pytest.fixture
def environment(tmp_path):
    """A virtual environment that has all that this one has; what is installed goes into it alone."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    site.joinpath("all.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    command = folder / "bin" / "offload"
    command.write_text(f"#!{python}\n{MAIN}")
    command.chmod(0o755)
    return folder


def test_the_page_has_the_steps():
    steps = " ".join(command.partition(" ")[0] for command in COMMANDS)
    assert steps == "offload cd python python mkdir offload offload"


@pytest.mark.nightly  # what it makes is tested in tests/cli/test_plugins_new.py, too
@pytest.mark.install
def test_a_new_users_ten_minutes_go_well(environment, tmp_path):
    # Nothing is downloaded: what the project needs is there already, also what builds it.
    script = "\n".join(["set -ex", *COMMANDS]).replace("/tmp/tier", str(tmp_path / "tier"))
    script = script.replace("pip install", "pip install --no-index --no-build-isolation --no-deps")
    own = {
        "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
        "VIRTUAL_ENV": str(environment),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "hypothesis"),
        "COLUMNS": "200",
    }
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": 500}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=os.environ | own, check=False, **piped)
    assert done.returncode == 0, done.stdout
    tests, _, after = done.stdout.partition("+ mkdir")
    assert re.search(r"\b2\d\d passed", tests), tests
    plugins, _, doctor = after.partition("+ offload doctor")
    assert len(re.findall(r"\bmy-store\b", plugins)) >= 2, plugins
    assert f"19 ok, 0 warning, 0 failed, 0 skipped; my-store at my-store://{tmp_path}/tier" in doctor, doctor
    assert list((tmp_path / "tier").iterdir()) == []
