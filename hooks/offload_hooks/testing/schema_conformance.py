# ruff: noqa: D102 (the names of the cases state the promises)
"""The conformance suite of schema providers: what `SchemaProvider` promises, as tests that an author subclasses.

    class TestMySchemas(SchemaProviderConformance):
        @pytest.fixture
        def make_provider(self):
            return MySchemas

        @pytest.fixture
        def options(self, registry):
            return {"url": registry.url}

        @pytest.fixture
        def histories(self):
            return {"persistent://acme/cold/orders": SchemaHistory(versions=(...,))}

See docs/conformance.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import pytest

from offload_hooks.errors import FormatError, OffloadError, StoreError
from offload_hooks.schemas import SchemaHistory, SchemaProvider, SchemaVersion
from offload_hooks.testing.plugin_suite import PluginSuiteBase
from offload_hooks.testing.threads import together

MakeSchemas = Callable[..., SchemaProvider]
Histories = Mapping[str, SchemaHistory]

_NAMESPACE = "persistent://conformance/none"
_UNUSUAL = {
    "of another tenant": f"{_NAMESPACE}/none",
    "with a slash": f"{_NAMESPACE}/a/b",
    "with an escape": f"{_NAMESPACE}/a%2Fb c",
    "of another script": f"{_NAMESPACE}/注文",
    "the parent": f"{_NAMESPACE}/..",
    "above the root": f"{_NAMESPACE}/../../../../etc/passwd",
    "with a quote": f"{_NAMESPACE}/'; drop table schemas; --",
    "with NUL": f"{_NAMESPACE}/a\0b",
    "of 1,000 characters": f"{_NAMESPACE}/{'x' * 1000}",
}


class SchemaProviderConformance(PluginSuiteBase):
    """Subclass it, with a name that begins with `Test`, and write `make_provider`, `options` and `histories`.

    The fixtures `unreachable` and `malformed`, the attribute `any_topic` and those of `PluginSuiteBase` may be given.
    """

    any_topic: ClassVar[bool] = False
    """True if the provider has the same schema for any topic."""

    @pytest.fixture
    def make_provider(self) -> MakeSchemas:
        """To be written by the author: the class or factory that the entry point names."""
        self.missing("make_provider", "the class that the entry point names")

    @pytest.fixture
    def histories(self) -> Histories:
        """To be written by the author: topics that the provider knows by its options, with their histories."""
        self.missing("histories", "topics that the provider knows, with their histories")

    @pytest.fixture
    def unreachable(self) -> Mapping[str, str] | None:
        """Options of a provider whose source does not answer; None, the default, skips the case."""
        return None

    @pytest.fixture
    def malformed(self) -> tuple[Mapping[str, str], str] | None:
        """Options, and a topic whose history is damaged there; None, the default, skips the case."""
        return None

    @pytest.fixture
    def provider(self, make_provider: MakeSchemas, options: Mapping[str, str]) -> Iterator[SchemaProvider]:
        """The provider; it is closed in the end."""
        made = self.made(make_provider, options)
        yield made
        made.close()

    def test_a_topic_that_is_known_has_its_whole_history(
        self, provider: SchemaProvider, histories: Histories
    ) -> None:
        assert histories
        for topic, history in histories.items():
            assert provider.history(topic) == history

    def test_a_history_is_complete_and_in_order(self, provider: SchemaProvider, histories: Histories) -> None:
        for topic in histories:
            history = provider.history(topic)
            assert isinstance(history, SchemaHistory)
            assert history.versions, "at least one version"
            numbers = [each.version for each in history.versions]
            assert numbers == sorted(set(numbers)), "oldest first, each once"
            for each in history.versions:
                assert isinstance(each, SchemaVersion)
                assert each.type
                assert each.type == each.type.upper(), "Pulsar's name of the type"
                assert isinstance(each.definition, str)
                assert all(isinstance(text, str) for pair in each.properties.items() for text in pair)

    @pytest.mark.parametrize("case_topic", _UNUSUAL.values(), ids=_UNUSUAL)
    def test_a_topic_that_is_not_known_has_no_history(
        self, provider: SchemaProvider, case_topic: str
    ) -> None:
        if self.any_topic:
            pytest.skip("the provider has a schema for any topic")
        try:
            found = provider.history(case_topic)
        except OffloadError as error:  # of a name that its source cannot have
            assert case_topic != _UNUSUAL["of another tenant"], (
                "a topic without a schema is None, and no error"
            )
            self.judge_error(error, OffloadError)
        else:
            assert found is None

    def test_another_one_answers_the_same(
        self, make_provider: MakeSchemas, options: Mapping[str, str], histories: Histories
    ) -> None:
        for _ in range(2):
            provider = self.made(make_provider, options)
            assert {topic: provider.history(topic) for topic in histories} == histories
            provider.close()

    def test_it_can_be_used_after_it_was_closed(self, provider: SchemaProvider, histories: Histories) -> None:
        for _ in range(2):
            provider.close()
            provider.close()
            assert {topic: provider.history(topic) for topic in histories} == histories

    def test_many_threads_may_ask_at_once(self, provider: SchemaProvider, histories: Histories) -> None:
        def ask() -> None:
            for _ in range(5):
                for topic, history in histories.items():
                    assert provider.history(topic) == history

        together([ask] * self.racers, self.deadline_s)

    def test_its_repr_shows_no_secret(self, provider: SchemaProvider, histories: Histories) -> None:
        self.judge_text(f"{provider!r} {provider}")
        for topic in histories:
            provider.history(topic)
        self.judge_text(f"{provider!r} {provider}")

    def test_a_source_that_does_not_answer_is_a_store_error(
        self, make_provider: MakeSchemas, unreachable: Mapping[str, str] | None
    ) -> None:
        if unreachable is None:
            pytest.skip("the suite was given no `unreachable` options")
        with self.refuses(StoreError):
            self.made(make_provider, unreachable).history(_UNUSUAL["of another tenant"])

    def test_a_damaged_history_is_a_format_error(
        self, make_provider: MakeSchemas, malformed: tuple[Mapping[str, str], str] | None
    ) -> None:
        if malformed is None:
            pytest.skip("the suite was given no `malformed` history")
        options, topic = malformed
        with self.refuses(FormatError) as refusal:
            self.made(make_provider, options).history(topic)
        assert refusal.error.key, "a malformed history is reported with its place"
