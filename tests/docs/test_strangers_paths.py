"""A stranger's paths: the pages' commands, typed as they are there, where nothing of this project is installed.

Each begins in a clone, with an empty home, an empty environment and nothing in pip's cache, and counts the time.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import copy_source
from pages.blocks import section_of

ROOT = Path(__file__).parents[2]
PYTHON = Path(sys.base_prefix) / "bin"
OWN = ("PYTHON", "VIRTUAL_ENV", "PULSAR_OFFLOAD", "OFFLOAD_", "HYPOTHESIS", "COVERAGE")

FIRST_DATAFRAME = ROOT / "docs" / "tutorials" / "first-dataframe.md"
WRITE_A_DRIVER = ROOT / "docs" / "write-a-driver.md"
WRITE_A_PLUGIN = ROOT / "docs" / "write-a-plugin.md"


def script_of(text):
    """What a user types and saves in a page's text, as lines of a shell script."""
    script = []
    blocks = re.findall(r'^```(\w+)(?: title="([^"\n]*)")?\n(.*?)^```', text, re.MULTILINE | re.DOTALL)
    for language, title, code in blocks:
        if language == "console":
            script += re.findall(r"^\$ (.*)", code.replace("\\\n", " "), re.MULTILINE)
        elif title:
            script.append(f"cat > {title} <<'END OF FILE'\n{code}END OF FILE")
    return script


DATAFRAME, SPARK, ONWARD = FIRST_DATAFRAME.read_text().partition("\n## 5. Spark")
DRIVER = script_of(section_of(WRITE_A_DRIVER.read_text(), "In ten minutes"))
FILTER = script_of(section_of(WRITE_A_PLUGIN.read_text(), "A filter in twenty minutes"))


SLOWER = 3
"""The limits are those of a machine that does nothing else; here other tests run beside."""


class Stranger:
    """A user with a clone and a shell; `minutes` counts what waiting for commands took."""

    def __init__(self, folder):
        self.clone = folder / "pulsar-offload"
        self.home = folder / "home"
        self.home.mkdir()
        self.minutes = 0.0
        copy_source(self.clone)

    def types(self, *lines):
        """Type the lines into one shell; returns all that it prints."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
        env |= {
            "HOME": str(self.home),
            "PATH": f"{PYTHON}:/usr/local/bin:/usr/bin:/bin",
            "PIP_CACHE_DIR": str(self.home / "pip"),
            "COLUMNS": "200",
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        began = time.monotonic()
        script = "\n".join(["set -ex", *lines])
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.clone,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-20_000:]
        self.minutes += (time.monotonic() - began) / 60
        return done.stdout


@pytest.fixture
def stranger(tmp_path, capsys, request):
    stranger = Stranger(tmp_path)
    yield stranger
    with capsys.disabled():
        print(f"\n{request.node.name}: {stranger.minutes:.1f} minutes")


def test_the_readme_leads_to_them():
    text = (ROOT / "README.md").read_text()
    for page in (FIRST_DATAFRAME, WRITE_A_DRIVER, WRITE_A_PLUGIN):
        assert f"]({page.relative_to(ROOT)})" in text, page.name


@pytest.mark.parametrize(
    ("script", "steps"),
    [
        (script_of(DATAFRAME), "python3 . pip python offload offload offload"),
        (DRIVER, "offload cd python python mkdir offload offload python offload offload offload"),
        (FILTER, "offload cd python python offload cat patch python cat cat export python" + " offload" * 4),
    ],
    ids=["dataframe", "driver", "filter"],
)
def test_a_page_has_the_steps(script, steps):
    assert " ".join(command.partition(" ")[0] for command in script) == steps


def at_a_prompt(stranger, page, text):
    """The command that types the page's Python at a prompt, and compares what it prints."""
    blocks = re.findall(r"^```pycon\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (stranger.home / page).write_text("\n".join(blocks))
    return f"python -m doctest -o ELLIPSIS -o NORMALIZE_WHITESPACE {stranger.home}/{page}"


@pytest.mark.nightly
@pytest.mark.install
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_from_the_readme_to_a_dataframe_in_five_minutes(stranger, java):
    printed = stranger.types(*script_of(DATAFRAME), at_a_prompt(stranger, "arrow.md", DATAFRAME))
    assert "acme/cold/json" in printed
    assert stranger.minutes <= 5 * SLOWER
    stranger.types(". .venv/bin/activate", at_a_prompt(stranger, "spark.md", SPARK + ONWARD))
    assert stranger.minutes <= 6 * SLOWER


INSTALLED = ["python3 -m venv .venv", ". .venv/bin/activate", "pip install -c constraints.txt '.[cli]'"]
"""What the pages of plugins begin with: the command line is installed."""


@pytest.mark.nightly
@pytest.mark.install
@pytest.mark.timeout(1800)
def test_a_driver_is_made_tested_and_used_by_its_page_alone(stranger):
    tier = stranger.home / "tier"
    printed = stranger.types(*INSTALLED, *[line.replace("/tmp/", f"{stranger.home}/") for line in DRIVER])
    tests, _, after = printed.partition("+ mkdir")
    assert re.search(r"\b2\d\d passed", tests), tests
    plugins, _, doctor = after.partition("+ offload doctor")
    assert len(re.findall(r"\bmy-store\b", plugins)) >= 2, plugins
    assert f"19 ok, 0 warning, 0 failed, 0 skipped; my-store at my-store://{tier}" in doctor, doctor
    assert "23 pairs of objects: 23 copied" in doctor, doctor
    listed, _, messages = doctor.partition("+ offload ls")[2].partition("+ offload cat")
    assert re.search(r"^acme/cold/json +2 +1,260 ", listed, re.MULTILINE), listed
    assert r"n\u00e4-1" in messages, messages
    assert len(list(tier.iterdir())) > 40
    assert stranger.minutes <= 10 * SLOWER  # of twenty: the rest is for reading and writing


@pytest.mark.nightly
@pytest.mark.install
@pytest.mark.timeout(1800)
def test_a_filter_is_made_tested_and_used_by_its_page_alone(stranger):
    printed = stranger.types(*INSTALLED, *[line.replace("/tmp/", f"{stranger.home}/") for line in FILTER])
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
    assert stranger.minutes <= 10 * SLOWER
