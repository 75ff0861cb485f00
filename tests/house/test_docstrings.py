"""Docstrings of the public API and of the plug-in contract name each argument, or none."""

import inspect
from importlib import import_module
from pathlib import Path

import griffe
import pytest
from public_names import CONTRACT, public_names

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def source():
    """Signatures and docstrings, as the reference is made from them."""
    loader = griffe.GriffeLoader(search_paths=[ROOT, ROOT / "hooks"], docstring_parser="google")
    for package in ("pulsar_offload", "offload_hooks", "offload_core"):
        loader.load(package)
    loader.resolve_aliases(implicit=True, external=False)
    return loader.modules_collection


def described(found):
    """An object, and the public methods of a class."""
    found = found.final_target if found.is_alias else found
    yield found
    for name, member in found.members.items() if found.is_class else ():
        if not name.startswith("_") and (member.is_function or member.is_class):
            yield from described(member)


def unnamed(found):
    """The arguments that its docstring leaves out, if it names any."""
    sections = found.docstring.parse("google") if found.docstring else []
    parameters = griffe.DocstringSectionKind.parameters
    named = {
        each.name.lstrip("*") for section in sections if section.kind is parameters for each in section.value
    }
    return {each.name for each in found.parameters} - {"self", "cls"} - named if named else set()


@pytest.mark.parametrize("module", ["pulsar_offload", *CONTRACT])
def test_a_docstring_with_arguments_has_all_of_them(module, source):
    given = import_module(module)
    values = {name: getattr(given, name) for name in public_names(given)}
    places = [
        f"{each.__module__}.{each.__name__}"
        for each in values.values()
        if inspect.isroutine(each) or inspect.isclass(each)
    ]
    found = [each for place in places for each in described(source[place])]
    assert found
    assert {each.path: unnamed(each) for each in found if unnamed(each)} == {}
