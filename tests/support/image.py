"""The Dockerfile of `deploy/docker`, read, and its build context, for tests that run its commands without Docker."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pathspec
from commands import copy_source

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
INSTALLED_AT = "/opt/pulsar-offload"


def instructions(stage):
    """The instructions of a stage (0, 1, …), as (`RUN`, the rest of the line): lines that go on are joined."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.startswith("FROM ")]
    chosen = lines[starts[stage] : [*starts[1:], len(lines)][stage]]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in chosen)]


def arguments(stage):
    """The values of a stage's ARG and ENV, by name."""
    found = {}
    for name, rest in instructions(stage):
        if name in ("ARG", "ENV"):
            for key, quoted, plain in re.findall(r'(\w+)=(?:"(.*?)"|(\S+))', rest):
                found[key] = re.sub(r"\$\{(\w+)\}", lambda match: found[match[1]], quoted or plain)
    return found


def words(stage, name):
    """The last ENTRYPOINT, CMD or HEALTHCHECK of a stage, as a list of words."""
    rest = [rest for each, rest in instructions(stage) if each == name][-1]
    return json.loads(rest[rest.index("[") :])


def make_context(folder):
    """Copy to a folder what Docker would be sent: files of the repository that `.dockerignore` does not exclude."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    excluded = pathspec.PathSpec.from_lines("gitignore", lines)
    copy_source(folder, excluded.match_file)
