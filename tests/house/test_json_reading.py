"""JSON that others wrote is read by one reader with limits: nothing else calls `json.load` or `json.loads`."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]

ALLOWED = {
    "hooks/offload_hooks/json_text.py": "it is the reader",
    "offload_core/storage/tier/urls.py": "it asks only where a value ends that has commas",
    "offload_core/format/schemas/json_reference.py": "payloads, whose numbers are read as Jackson reads them",
}
"""Where else, and why."""


def calls_of_json(source):
    """The lines in which a module names `json.load`, `json.loads` or a decoder of `json`, under whatever name."""
    tree = ast.parse(source)
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name in ("json", "orjson", "simplejson", "ujson")
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "json":
            if any(alias.name in ("load", "loads", "JSONDecoder") for alias in node.names):
                yield node.lineno
        elif (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id in names
            and node.attr in ("load", "loads", "JSONDecoder")
        ):
            yield node.lineno


def test_json_of_others_is_read_by_one_reader():
    found = []
    for folder in ("hooks", "drivers", "offload_core", "integrations"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            if "{{" in name or name in ALLOWED:
                continue  # a template of a project is no module yet
            found += [f"{name}:{line}" for line in calls_of_json(path.read_text(encoding="utf-8"))]
    assert not found, f"offload_hooks.json_text.read_json instead: {found}"


def test_no_exception_is_left_over():
    for name in ALLOWED:
        assert list(calls_of_json((ROOT / name).read_text(encoding="utf-8"))), name


def test_what_the_test_looks_for():
    assert list(calls_of_json("import json as j\nj.loads('1')\nj.dumps(1)\n")) == [2]
    assert list(calls_of_json("from json import loads\n")) == [1]
    assert list(calls_of_json("import json\njson.JSONDecoder().raw_decode('')\n")) == [2]
