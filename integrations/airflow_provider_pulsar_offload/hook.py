"""A connection of Airflow to what it names: a tier, who has the records, and whose admin REST is asked to offload.

All of it is in the connection's extra, a JSON object (docs/airflow.md). Secrets are masked in logs before anything is
opened with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from offload_core.metadata.catalogue import Records, TopicName, open_records, parse_topic
from offload_core.metadata.records import ManagedLedgerInfo
from offload_core.storage.pulsar_admin import AdminPlugin, PulsarAdminClient
from offload_hooks.errors import OptionError, UnknownTopicError
from pulsar_offload import TierReader, open_tier

DEFAULT_CONNECTION = "pulsar_offload_default"

_SECRET = re.compile(
    r"key|secret|token|password|passwd|credential|connection_string|digest|sas", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings in a connection's extra.

    Attributes:
        url: the tier's URL; `driver`, `options` and `layers` as of `open_tier`.
        records: where managed ledgers' records are: a metadata store's URL, or a path; `records_options` its options.
        admin: the URL of a broker's admin REST, or of `offload serve`; `admin_options` its options.
    """

    url: str | None = None
    driver: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    layers: tuple[str, ...] | None = None
    records: str | None = None
    records_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    admin: str | None = None
    admin_options: Mapping[str, Any] = field(default_factory=dict, repr=False)


class OffloadHook(BaseHook):  # type: ignore[misc]  # untyped here
    """Hook of the connection `offload_conn_id`."""

    conn_name_attr = "offload_conn_id"
    default_conn_name = DEFAULT_CONNECTION
    conn_type = "pulsar_offload"
    hook_name = "Pulsar offload"

    def __init__(self, offload_conn_id: str = DEFAULT_CONNECTION) -> None:
        super().__init__()
        self.offload_conn_id = offload_conn_id

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """The form has the extra only."""
        return {
            "hidden_fields": ["host", "schema", "login", "password", "port"],
            "relabeling": {},
            "placeholders": {"extra": '{"url": "s3://bucket/prefix", "options": {"region": "eu-west-1"}}'},
        }

    def settings(self) -> Settings:
        """Return the settings of the connection; its secrets are masked from now on.

        Raises:
            OptionError: a name that there is not.
        """
        said = dict(self.get_connection(self.offload_conn_id).extra_dejson)
        unknown = said.keys() - Settings.__dataclass_fields__.keys()
        if unknown:
            raise OptionError(
                f"the connection {self.offload_conn_id!r} has other settings",
                expected=", ".join(Settings.__dataclass_fields__),
                found=", ".join(sorted(unknown)),
            )
        for options in ("options", "records_options", "admin_options"):
            for name, value in said.get(options, {}).items():
                if _SECRET.search(name) and isinstance(value, str) and not name.endswith("_file"):
                    mask_secret(value)
        if said.get("layers") is not None:
            said["layers"] = tuple(said["layers"])
        return Settings(**said)

    @contextmanager
    def open_tier(self) -> Iterator[TierReader]:
        """The tier, open until the block ends."""
        settings = self.settings()
        url = self._needed(settings.url, "url")
        with open_tier(url, driver=settings.driver, layers=settings.layers, **settings.options) as tier:
            yield tier

    @contextmanager
    def open_records(self) -> Iterator[Records]:
        """Managed ledgers' records, to be asked until the block ends."""
        settings = self.settings()
        source = self._needed(settings.records or settings.admin, "records")
        options = settings.records_options if settings.records else settings.admin_options
        with (
            open_tier(
                settings.url or ".", driver=settings.driver, layers=settings.layers, **settings.options
            ) as tier,
            open_records(source, tier.store, tier.options, options) as records,
        ):
            yield records

    def read_topic(self, topic: str) -> dict[TopicName, ManagedLedgerInfo]:
        """The record of a topic, or those of all its partitions.

        Raises:
            UnknownTopicError: there is none.
        """
        name = parse_topic(topic)
        namespace = "/".join(name.full.removeprefix("persistent://").split("/")[:2])
        with self.open_records() as records:
            found = records.read(
                [each for each in records.topics([namespace]) if name.full in (each.full, each.base)]
            )
        if not found:
            raise UnknownTopicError("no record is of this topic", found=topic)
        return found

    @contextmanager
    def admin_client(self) -> Iterator[PulsarAdminClient]:
        """A client of the admin REST, until the block ends."""
        settings = self.settings()
        plugin = AdminPlugin(self._needed(settings.admin, "admin"), **settings.admin_options)
        with closing(plugin):
            yield plugin.client

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the tier can be listed, for Airflow's form."""
        try:
            with self.open_tier() as tier:
                next(iter(tier.store.list_objects()), None)
                return True, f"{tier.store.describe().location} can be listed"
        except Exception as error:
            return False, str(error)

    def _needed(self, value: str | None, name: str) -> str:
        if value is None:
            raise OptionError(
                f"the connection {self.offload_conn_id!r} does not say it", expected=f"{name} in its extra"
            )
        return value
