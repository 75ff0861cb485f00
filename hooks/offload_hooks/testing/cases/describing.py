# ruff: noqa: D102 (the names of the cases state the promises)
"""A driver's description of itself."""

from __future__ import annotations

from urllib.parse import urlsplit

from offload_hooks import HOOK_SPEC_VERSION
from offload_hooks.testing.cases.base import SuiteBase
from offload_hooks.testing.store import Store

_SECRETIVE = ("secret", "password", "passwd", "token", "credential", "signature")


class DescribingCases(SuiteBase):
    """`describe`, and what can be seen of a driver without a call."""

    def test_the_class_declares_the_version_of_the_hooks(self, store: Store) -> None:
        version = getattr(type(store.driver), "hook_spec_version", None)
        assert type(version) is int
        assert 1 <= version <= HOOK_SPEC_VERSION

    def test_every_required_hook_is_implemented(self, store: Store) -> None:
        assert store.missing_hooks() == []

    def test_list_uploads_is_implemented_if_and_only_if_stale_uploads_is_declared(self, store: Store) -> None:
        assert store.implements("list_uploads") == store.capabilities.stale_uploads

    def test_describe_names_the_driver_and_its_place(self, store: Store) -> None:
        description = store.describe()
        assert description.name
        assert urlsplit(description.location).scheme, "the location is a URL"

    def test_every_instance_describes_itself_alike(self, store: Store, other: Store) -> None:
        assert store.describe() == store.describe() == other.describe()

    def test_describe_shows_no_credentials(self, store: Store) -> None:
        description = store.describe()
        place = urlsplit(description.location)
        assert not place.username
        assert not place.password
        shown = f"{description!r} {store.driver!r} {store.driver}"
        assert not [secret for secret in self.secrets if secret in shown]

    def test_driver_metadata_is_text_without_secrets(self, store: Store) -> None:
        metadata = store.describe().driver_metadata
        assert all(isinstance(text, str) for pair in metadata.items() for text in pair)
        assert not [name for name in metadata if any(word in name.lower() for word in _SECRETIVE)]

    def test_the_limits_make_sense(self, store: Store) -> None:
        limits = store.capabilities
        assert 1 <= limits.min_block_bytes <= limits.max_block_bytes
        assert limits.max_blocks >= 1
        assert limits.range_bytes >= 1
        assert limits.ranges_ahead >= 0
        assert limits.user_metadata in ("native", "sidecar")
