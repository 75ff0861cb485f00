"""Opens a metadata store by its URL, to be written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from offload_core.tier import registry
from offload_hooks.errors import OptionError
from offload_hooks.metadata_stores import WritableMetadataStore


def open_metadata_store(url: str, options: Mapping[str, object] | None = None) -> WritableMetadataStore:
    """The metadata store of a URL, with its options by name; whoever opens it closes it.

    Raises:
        OptionError: no URL, a wrong option, or a store that only reads. PluginError: see `registry.make_driver`.
        StoreError, FormatError: the store's own.
    """
    scheme, colon, _ = url.partition(":")
    if not colon or "/" in scheme:
        raise OptionError("a URL begins with the name of a metadata store", expected="sqlite:/folder/file.db")
    store = registry.make_metadata_store(scheme, url, options or {})
    if not callable(getattr(store, "put", None)):
        store.close()
        raise OptionError(f"the metadata store {scheme!r} only reads")
    return cast("WritableMetadataStore", store)
