"""Opens what the configuration names: the metadata store, and the policies in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from offload_core.configuration import Configuration
from offload_core.metadata import open_metadata_store
from offload_core.policy_store.store import PolicyStore
from offload_core.policy_store.tenant_places import TenantPlaces
from offload_hooks.errors import OptionError
from offload_hooks.metadata_stores import WritableMetadataStore


@contextmanager
def open_policies(configuration: Configuration) -> Iterator[tuple[WritableMetadataStore, PolicyStore]]:
    """The metadata store, open until the block ends, and the policies that it keeps.

    Raises:
        OptionError: no store is named, or the broker's policies make no sense. Others: see `open_metadata_store`.
    """
    metadata = configuration.metadata
    if metadata.url is None:
        raise OptionError(
            "where is the metadata?",
            expected="the URL of a metadata store",
            hint="Set metadata.url, or --metadata: sqlite:/var/lib/offload.db, zk://host:2181/offload.",
        )
    options = {name: value.get_secret_value() for name, value in metadata.options.items()}
    with closing(open_metadata_store(metadata.url, options)) as store:
        broker, retention, service = configuration.policies, configuration.retention, configuration.service
        places = TenantPlaces(
            service.tenant_places,
            filters=service.tenant_filters,
            has_tenants=any(service.tokens.tenant_admin_roles.values()),
        )
        yield store, PolicyStore(store, broker=broker, broker_retention=retention, places=places)
