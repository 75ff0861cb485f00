"""README's map is true, and the house stays within its measures: seven wings, one name for one thing."""

import ast
import re
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest
from pages.blocks import section_of

ROOT = Path(__file__).parents[2]
CORE = ROOT / "offload_core"
WINGS = ("interfaces", "maintenance", "writing", "reading", "metadata", "storage", "format")
MOST_PACKAGES, MOST_MODULES = 25, 420


MAP = section_of((ROOT / "README.md").read_text(), "Where things are")


def packages_in(folder):
    return sorted(init.parent for init in folder.glob("*/__init__.py"))


def modules():
    yield from (path for path in CORE.rglob("*.py") if "{{" not in str(path))


def repeated(names):
    """The names that several files have, and these files."""
    found = defaultdict(list)
    for name, path in names:
        found[name].append(str(path.relative_to(ROOT)))
    return {name: paths for name, paths in found.items() if len(paths) > 1}


@pytest.mark.parametrize(
    "package",
    [path for wing in packages_in(CORE) for path in (wing, *packages_in(wing))],
    ids=lambda path: path.relative_to(CORE).as_posix(),
)
def test_the_map_has_each_wing_and_package_with_its_first_line(package):
    name = package.relative_to(CORE)
    documented = import_module(".".join(["offload_core", *name.parts])).__doc__ or ""
    shown = [line for line in MAP.splitlines() if re.search(rf"`(offload_core/)?{name.as_posix()}/?`", line)]
    assert any(documented.splitlines()[0] in line for line in shown), (documented, shown)


def test_the_map_has_each_folder():
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and is_source(path)}
    assert [name for name in sorted(folders) if f"`{name}/" not in MAP] == []


def is_source(folder):
    return not folder.name.startswith(".") and any(
        path.suffix in (".py", ".md") for path in folder.rglob("*.[mp]*")
    )


def test_each_path_of_the_map_exists():
    named = re.findall(r"`([\w./-]*(?:/|\.py|\.md|\.toml)[\w/-]*)`", MAP)
    assert named
    assert [name for name in named if not any((base / name).exists() for base in (ROOT, CORE))] == []


def test_each_module_has_a_name_of_its_own():
    assert repeated((path.name, path) for path in modules() if path.name != "__init__.py") == {}


def test_each_private_class_is_defined_once():
    folders = (CORE, ROOT / "hooks" / "offload_hooks", ROOT / "drivers")
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py")) if "{{" not in str(path)]
    classes = (
        (node.name, path)
        for path in paths
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.startswith("_")
    )
    assert repeated(classes) == {}


def test_the_house_keeps_its_measures():
    assert {path.name for path in packages_in(CORE)} == set(WINGS)
    assert sum(len(packages_in(CORE / wing)) for wing in WINGS) <= MOST_PACKAGES
    assert len(list(modules())) <= MOST_MODULES
