"""The first minutes of the pages Write a driver and Write a filter, typed into an environment as they are there."""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
MAIN = "import sys\nfrom offload_core.interfaces.cli.main import main\nsys.exit(main())\n"


def script_of(page, heading):
    """What a user types and saves under a heading of a page, as a shell script."""
    section = (DOCS / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    script = ["set -ex"]
    for language, title, code in re.findall(
        r'^```(\w+)(?: title="([^"\n]*)")?\n(.*?)^```', section, re.MULTILINE | re.DOTALL
    ):
        if language == "console":
            script += [line.removeprefix("$ ") for line in code.splitlines()]
        elif title:
            script.append(f"cat > {title} <<'END OF FILE'\n{code}END OF FILE")
    return script


DRIVER = script_of("write-a-driver.md", "In ten minutes")
FILTER = script_of("write-a-plugin.md", "A filter in twenty minutes")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment that has all that this one has; what is installed goes into it alone."""
    folder = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python = folder / "bin" / "python"
    asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    site.joinpath("all.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    command = folder / "bin" / "offload"
    command.write_text(f"#!{python}\n{MAIN}")
    command.chmod(0o755)
    return folder


@pytest.fixture
def typed(environment, tmp_path):
    """Types a script in an empty folder: all that it prints, each command after a `+`."""

    def run(script):
        # Nothing is downloaded: what the project needs is there already, also what builds it.
        text = "\n".join(script).replace("/tmp/", f"{tmp_path}/")
        text = text.replace("pip install", "pip install --no-index --no-build-isolation --no-deps")
        own = {
            "PATH": f"{environment / 'bin'}:{os.environ['PATH']}",
            "VIRTUAL_ENV": str(environment),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path / "hypothesis"),
            "COLUMNS": "200",
        }
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": 500}
        done = subprocess.run(["bash", "-c", text], cwd=tmp_path, env=os.environ | own, check=False, **piped)
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


@pytest.mark.parametrize(
    ("script", "steps"),
    [
        (DRIVER, "set offload cd python python mkdir offload offload"),
        (
            FILTER,
            "set offload cd python python offload cat patch python cat cat export python" + " offload" * 4,
        ),
    ],
    ids=["driver", "filter"],
)
def test_the_page_has_the_steps(script, steps):
    assert " ".join(command.partition(" ")[0] for command in script) == steps


@pytest.mark.nightly  # what it makes is tested in tests/cli/test_plugins_new.py, too
@pytest.mark.install
def test_a_new_users_ten_minutes_go_well(typed, tmp_path):
    printed = typed(DRIVER)
    tests, _, after = printed.partition("+ mkdir")
    assert re.search(r"\b2\d\d passed", tests), tests
    plugins, _, doctor = after.partition("+ offload doctor")
    assert len(re.findall(r"\bmy-store\b", plugins)) >= 2, plugins
    assert f"19 ok, 0 warning, 0 failed, 0 skipped; my-store at my-store://{tmp_path}/tier" in doctor, doctor
    assert list((tmp_path / "tier").iterdir()) == []


@pytest.mark.long
@pytest.mark.install
def test_the_author_of_a_filter_offloads_a_topic_through_it_after_twenty_minutes(typed):
    printed = typed(FILTER)
    first, _, rest = printed.partition("+ offload plugins\n")
    assert re.search(r"\b\d\d passed", first), first
    assert re.search(r"^filters +my-filter +pulsar-offload-my-filter +0\.1\.0 +ok", rest, re.MULTILINE), rest
    changed, _, offloaded = rest.partition("+ python produce.py")
    assert "patching file offload_my_filter/filter.py" in changed
    assert re.search(r"\b\d\d passed", changed), changed
    assert "ledger 0: offloaded" in offloaded
    layout, _, messages = offloaded.partition("+ offload cat")
    assert "tombstones for 3 of 5 entries by my-filter" in layout
    assert re.findall(r"number \d", messages) == ["number 0", "number 3"]
