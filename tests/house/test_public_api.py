"""`pulsar_offload` gives what it lists, costs nothing to import, and is all that documentation and examples use."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pulsar_offload

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *(path for folder in (".", "how-to", "tutorials") for path in (DOCS / folder).glob("*.md")),
]
OF_PLUGINS = "conformance.md"
"""Its code is that of an author of plug-ins."""


def typed_places():
    """The module of each name, as type checkers read it."""
    tree = ast.parse(Path(pulsar_offload.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        each.name: node.module or "" for node in imports for each in node.names if each.asname == each.name
    }


def test_each_name_is_what_type_checkers_are_told():
    places = typed_places()
    assert sorted(pulsar_offload.__all__) == sorted([*places, "__version__"])
    for name, module in places.items():
        assert getattr(pulsar_offload, name) is getattr(import_module(module), name), name


def test_importing_it_imports_nothing_else():
    program = "import sys, pulsar_offload; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert not re.findall(r"\b(?:offload_\w+|numpy|pyarrow|numba)\b", shown)


def test_documentation_and_examples_use_nothing_else():
    examples = {path: path.read_text() for path in (ROOT / "examples").glob("*.py")}
    blocks = {
        path: "\n".join(re.findall(r"```py(?:thon|con)[^\n]*\n(.*?)```", path.read_text(), re.DOTALL))
        for path in PAGES
        if path.name != OF_PLUGINS
    }
    used = {
        (path.name, line)
        for path, text in (examples | blocks).items()
        for line in re.findall(r"^(?: |>>>)*(?:from|import) offload_core.*$", text, re.MULTILINE)
    }
    assert used == set()
