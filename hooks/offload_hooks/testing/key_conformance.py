# ruff: noqa: D102 (the names of the cases state the promises)
"""The conformance suite of key providers: what `KeyProvider` promises, as tests that an author subclasses.

    class TestMyKeys(KeyProviderConformance):
        @pytest.fixture
        def make_provider(self):
            return MyKeys

        @pytest.fixture
        def options(self, service):
            return {"url": service.url, "token": "hunter2"}

        @pytest.fixture
        def data_keys(self, service):
            return {"orders": (service.encrypt("orders", b"k" * 32), b"k" * 32)}

See docs/conformance.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar

import pytest

from offload_hooks.errors import DecryptionError, OptionError, StoreError
from offload_hooks.key_providers import KeyProvider
from offload_hooks.testing.content import content
from offload_hooks.testing.plugin_suite import PluginSuiteBase
from offload_hooks.testing.threads import together

MakeKeys = Callable[..., KeyProvider]
DataKeys = Mapping[str, tuple[bytes, bytes]]

_UNUSUAL = {
    "unknown": "no-key-of-this-name",
    "empty": "",
    "the parent": "..",
    "above the root": "../../../etc/passwd",
    "absolute": "/etc/passwd",
    "of another script": "鍵",
    "with NUL": "a\0b",
    "with line breaks": "a\r\nX-Token: b",
    "of 1,000 characters": "x" * 1000,
}


class KeyProviderConformance(PluginSuiteBase):
    """Subclass it, with a name that begins with `Test`, and write `make_provider`, `options` and `data_keys`.

    The fixtures `metadata` and `unreachable`, the attribute `any_name` and those of `PluginSuiteBase` may be given.
    """

    any_name: ClassVar[bool] = False
    """True if the provider has a key for any name."""

    @pytest.fixture
    def make_provider(self) -> MakeKeys:
        """To be written by the author: the class or factory that the entry point names."""
        self.missing("make_provider", "the class that the entry point names")

    @pytest.fixture
    def data_keys(self) -> DataKeys:
        """To be written by the author: by the name of a key, a data key as it is encrypted for it, and in plain."""
        self.missing("data_keys", "by the name of a key, a data key as it is encrypted for it, and in plain")

    @pytest.fixture
    def metadata(self) -> Mapping[str, str]:
        """Notes of the producer's key reader that come with each data key; none by default."""
        return {}

    @pytest.fixture
    def unreachable(self) -> Mapping[str, str] | None:
        """Options of a provider whose keys cannot be read now; None, the default, skips the case."""
        return None

    @pytest.fixture
    def provider(self, make_provider: MakeKeys, options: Mapping[str, str]) -> KeyProvider:
        """The provider."""
        return self.made(make_provider, options)

    def test_a_data_key_is_decrypted_by_the_key_of_its_name(
        self, provider: KeyProvider, data_keys: DataKeys, metadata: Mapping[str, str]
    ) -> None:
        assert data_keys
        for _ in range(2):
            for name, (encrypted, plain) in data_keys.items():
                assert provider.decrypt_data_key(name, encrypted, metadata) == plain

    def test_another_one_decrypts_the_same(
        self,
        make_provider: MakeKeys,
        options: Mapping[str, str],
        data_keys: DataKeys,
        metadata: Mapping[str, str],
    ) -> None:
        for name, (encrypted, plain) in data_keys.items():
            assert self.made(make_provider, options).decrypt_data_key(name, encrypted, metadata) == plain

    def test_any_thread_may_ask(
        self, provider: KeyProvider, data_keys: DataKeys, metadata: Mapping[str, str]
    ) -> None:
        for name, (encrypted, plain) in data_keys.items():
            ask = partial(provider.decrypt_data_key, name, encrypted, metadata)
            for _ in range(3):
                assert together([ask], self.deadline_s) == [plain]

    @pytest.mark.parametrize("case_name", _UNUSUAL.values(), ids=_UNUSUAL)
    def test_a_name_without_a_key_gives_none(
        self, provider: KeyProvider, data_keys: DataKeys, metadata: Mapping[str, str], case_name: str
    ) -> None:
        if self.any_name:
            pytest.skip("the provider has a key for any name")
        for encrypted, _ in data_keys.values():
            try:
                found = provider.decrypt_data_key(case_name, encrypted, metadata)
            except OptionError as error:  # of a name that no key can have
                assert case_name != _UNUSUAL["unknown"], "no key of a name is None, and no error"
                self.judge_error(error, OptionError)
            else:
                assert found is None

    def test_what_a_key_does_not_decrypt_is_an_error(
        self, provider: KeyProvider, data_keys: DataKeys, metadata: Mapping[str, str]
    ) -> None:
        for name, (encrypted, plain) in data_keys.items():
            others = [each for other, (each, _) in data_keys.items() if other != name and not self.any_name]
            for wrong in (
                b"",
                b"\0",
                encrypted[:-1],
                encrypted + b"\0",
                _flipped(encrypted),
                content(1000),
                *others,
            ):
                with self.refuses(DecryptionError) as refusal:
                    provider.decrypt_data_key(name, wrong, metadata)
                _judge_no_key(f"{refusal.error} {refusal.error!r}", plain)

    def test_its_repr_shows_neither_secrets_nor_data_keys(
        self, provider: KeyProvider, data_keys: DataKeys, metadata: Mapping[str, str]
    ) -> None:
        for name, (encrypted, plain) in data_keys.items():
            provider.decrypt_data_key(name, encrypted, metadata)
            self.judge_text(f"{provider!r} {provider}")
            _judge_no_key(f"{provider!r} {provider}", plain)

    def test_keys_that_cannot_be_read_now_are_an_error(
        self,
        make_provider: MakeKeys,
        data_keys: DataKeys,
        metadata: Mapping[str, str],
        unreachable: Mapping[str, str] | None,
    ) -> None:
        if unreachable is None:
            pytest.skip("the suite was given no `unreachable` options")
        for name, (encrypted, _) in data_keys.items():
            with self.refuses(StoreError, OptionError):
                self.made(make_provider, unreachable).decrypt_data_key(name, encrypted, metadata)


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def _judge_no_key(shown: str, plain: bytes) -> None:
    for form in (repr(plain)[2:-1], plain.hex()):
        assert form not in shown, "a data key is shown"
