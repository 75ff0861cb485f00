"""The namespaces that a selection can name topics of: never too few."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_core.reading.scan.select import namespaces_of_names, namespaces_of_pattern

TOPICS = [
    f"persistent://{tenant}/{namespace}/{topic}"
    for tenant in ("a", "b")
    for namespace in ("x", "x-y", "xy")
    for topic in ("t", "t-partition-1", "t/u", "x", "b")
]


def test_names_of_any_form_have_their_namespace():
    names = ("a/x/t", "persistent://a/x/u", "a/xy/persistent/t%2Fu", "persistent://a/east/x/old")
    assert namespaces_of_names(names) == ("a/x", "a/xy", "a/east")


@pytest.mark.parametrize(
    ("pattern", "namespaces"),
    [
        ("a/x/.*", ("a/x",)),
        ("persistent://a/x-y/t", ("a/x-y",)),
        ("a/x/(t|u)", ("a/x",)),
        ("a/x/t|a/x/u", None),
        ("a/x/(t)|b/x/u", None),
        (r"a/x/\(t|u", None),
        ("a/x/[(]t|b/x/u", None),
        ("a/x/?y/t", None),
        ("a/x/*", None),
        ("a/x.*/t", None),
        (".*/x/t", None),
        ("(?i)a/x/t", None),
        ("a/x", None),
        ("", None),
    ],
)
def test_a_pattern_has_the_namespace_that_it_begins_with(pattern, namespaces):
    assert namespaces_of_pattern(pattern) == namespaces


PARTS = [*"abx/tu()|?*.^$", "-y", "{1}", "[^/]", "\\(", "[|]"]


@given(st.sampled_from(["", "a/x/", "(a/x/", "a/x"]), st.lists(st.sampled_from(PARTS), max_size=12))
def test_no_topic_that_a_pattern_matches_is_in_another_namespace(begin, parts):
    pattern = begin + "".join(parts)
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError):
        return
    namespaces = namespaces_of_pattern(pattern)
    for topic in TOPICS:
        name = topic.removeprefix("persistent://")
        if compiled.fullmatch(topic) or compiled.fullmatch(name):
            assert namespaces is None or "/".join(name.split("/")[:2]) in namespaces
