"""Names of files that are made of topics' names: never too long, never two topics' the same, short ones as ever."""

from __future__ import annotations

import hashlib
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offload_core.metadata.catalogue.topics import MAX_BYTES, name_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)
NEARLY_ALIKE = st.tuples(
    st.sampled_from("a漢/%~"), st.integers(0, 300), st.sampled_from(["", "x", "漢", "%7E"])
).map(lambda drawn: drawn[0] * drawn[1] + drawn[2])


def test_names_that_fit_are_escaped_and_nothing_else():
    assert (
        name_of("persistent://a/b/c d~é", before="topic=") == "topic=persistent%3A%2F%2Fa%2Fb%2Fc%20d~%C3%A9"
    )
    longest = "x" * (MAX_BYTES - len(".json"))
    assert name_of(longest, after=".json") == f"{longest}.json"


def test_a_name_that_does_not_fit_ends_with_a_digest():
    topic = "persistent://public/default/" + "漢" * 26
    digest = hashlib.sha256(topic.encode()).hexdigest()[:32]
    name = name_of(topic, before="topic=")
    assert name.startswith("topic=persistent%3A%2F%2Fpublic%2Fdefault%2F%E6%BC%A2")
    assert name.endswith(f"%E6%BC%A2%7E{digest}")
    assert unquote(name) == f"topic={topic[: len(topic) - 8]}~{digest}"  # whole characters only


@given(
    text=TEXTS | NEARLY_ALIKE,
    before=st.sampled_from(["", "topic="]),
    after=st.sampled_from(["", ".schemas.json"]),
)
def test_every_name_fits_and_is_ascii_without_a_slash(text, before, after):
    name = name_of(text, before=before, after=after)
    assert len(name.encode("ascii")) <= MAX_BYTES
    assert "/" not in name
    assert name.startswith(before)
    assert name.endswith(after)


@given(texts=st.lists(TEXTS | NEARLY_ALIKE, unique=True, max_size=5))
def test_different_texts_have_different_names(texts):
    names = [name_of(text) for text in texts]
    again = [name_of(unquote(name)) for name in names]  # topics that are called as others' folders
    assert len(set(names)) == len(texts)
    for text, name, other in zip(texts, names, again, strict=True):
        assert (name == other) == (text == unquote(name))


@pytest.mark.parametrize("text", ["x" * 241, "x" * 242, "漢" * 26, "漢" * 27, "%" * 80, "%" * 81])
def test_at_the_limit_nothing_is_lost(text):
    name = name_of(text)
    assert (unquote(name) == text) == (len(name) <= MAX_BYTES and "%7E" not in name)
