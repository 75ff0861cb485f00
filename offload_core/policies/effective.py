"""What holds for a topic: field by field what the topic says, else its namespace, else the broker, else the default.

Source: Pulsar merges the same way (`OffloadPoliciesImpl.mergeConfiguration`); docs/policies.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import SecretStr

from offload_core.policies.model import DEFAULTS, OffloadPolicies, shown_value
from offload_core.policies.read_priority import ReadPriority
from offload_hooks.errors import OptionError

Origin = Literal["topic", "namespace", "broker", "default"]

_FAMILIES = {
    "s3": "s3",
    "aws-s3": "s3",
    "S3": "s3",
    "gcs": "gcs",
    "google-cloud-storage": "gcs",
    "filesystem": "file_system",
}
"""Which fields of their own drivers have, by the names of both."""

_NOT_FOR_DRIVERS = frozenset(
    (
        "driver",
        "offloaders_directory",
        "extra_configurations",
        "max_block_size_in_bytes",
        "read_buffer_size_in_bytes",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One field as it holds: its name, value, and who says so. `None` where nobody says anything."""

    name: str
    value: Any
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectivePolicies:
    """What holds for a topic; `settings` by field name, all of them."""

    settings: Mapping[str, Setting]

    def __getitem__(self, name: str) -> Any:
        return self.settings[name].value

    @property
    def driver(self) -> str | None:
        """The driver; None: nothing is offloaded."""
        value: str | None = self["driver"]
        return value or None

    @property
    def threshold_bytes(self) -> int | None:
        """Offload the oldest sealed ledgers of a topic that holds more than this hot; None for never."""
        return _threshold(self["threshold_in_bytes"])

    @property
    def threshold_s(self) -> int | None:
        """Offload sealed ledgers older than this; None for never."""
        return _threshold(self["threshold_in_seconds"])

    @property
    def deletion_lag_s(self) -> float | None:
        """How long after the offload the hot copy is deleted; None for never."""
        lag: int = self["deletion_lag_in_millis"]
        return None if lag < 0 else lag / 1000

    @property
    def read_priority(self) -> ReadPriority:
        """Which copy is read: ours of a level counts before Pulsar's of the same or a level above."""
        ours, pulsars = self.settings["tiered_read_priority"], self.settings["offloaded_read_priority"]
        levels = ("topic", "namespace", "broker", "default")
        if ours.value is not None and levels.index(ours.origin) <= levels.index(pulsars.origin):
            priority: ReadPriority = ours.value
        else:
            priority = pulsars.value
        return priority

    @property
    def max_block_bytes(self) -> int:
        """The most bytes of a block."""
        size: int = self._of_family("max_block_size_in_bytes")
        return size

    @property
    def read_buffer_bytes(self) -> int:
        """How much is read at once where single entries are read."""
        size: int = self._of_family("read_buffer_size_in_bytes")
        return size

    @property
    def max_threads(self) -> int:
        """How many blocks are built and uploaded at a time."""
        threads: int = self["max_threads"]
        return threads

    @property
    def rate_limit_bytes_per_s(self) -> int | None:
        """The most bytes a second that an offload writes; None for no limit."""
        limit: int = self["rate_limit_in_bytes_per_second"]
        return limit or None

    @property
    def is_streamed(self) -> bool:
        """Whether entries are offloaded by segments as they arrive, not by whole ledgers."""
        streaming: bool = self["streaming"]
        return streaming

    @property
    def max_segment_bytes(self) -> int:
        """With so many bytes of payloads a segment ends."""
        size: int = self["max_segment_size_in_bytes"]
        return size

    @property
    def max_segment_age_s(self) -> int:
        """So long after its first entry a segment ends, however small."""
        age: int = self["max_segment_age_in_seconds"]
        return age

    @property
    def filter_name(self) -> str:
        """The filter of what is offloaded."""
        name: str = self["filter"]
        return name

    @property
    def filter_mode(self) -> Literal["tombstone", "gap"]:
        """What takes the place of an entry that the filter drops."""
        mode: Literal["tombstone", "gap"] = self["filter_mode"]
        return mode

    @property
    def filter_options(self) -> dict[str, str]:
        """The filter's options."""
        return dict(self["filter_options"] or {})

    @property
    def writes_checksums(self) -> bool:
        """Whether checksums of all blocks and of the index are written beside them."""
        checksums: bool = self["checksums"]
        return checksums

    def driver_options(self) -> dict[str, object]:
        """The driver's options, by Pulsar's names, which drivers know; credentials in clear.

        Raises:
            OptionError: no driver is set.
        """
        if self.driver is None:
            raise OptionError(
                "no tier is configured",
                expected="a driver",
                hint="Set managedLedgerOffloadDriver and its bucket.",
            )
        family = _FAMILIES.get(self.driver)
        options: dict[str, object] = {}
        for name, setting in self.settings.items():
            own = next((each for each in ("s3", "gcs", "file_system") if name.startswith(f"{each}_")), None)
            general = name in ("bucket", "region", "service_endpoint")
            if setting.value in (None, "") or name.removeprefix(f"{own}_") in _NOT_FOR_DRIVERS:
                continue
            if own == family if own is not None else general:
                value = setting.value
                alias = str(OffloadPolicies.model_fields[name].alias)
                options[alias] = value.get_secret_value() if isinstance(value, SecretStr) else value
        return options | dict(self["extra_configurations"] or {})

    def explain(self) -> list[tuple[str, str, Origin]]:
        """Each field that anybody says something of: Pulsar's name, value as text with credentials masked, origin."""
        rows: list[tuple[str, str, Origin]] = []
        for name, setting in self.settings.items():
            if setting.value is not None:
                alias = str(OffloadPolicies.model_fields[name].alias)
                rows.append((alias, _as_said(shown_value(setting.value)), setting.origin))
        return rows

    def _of_family(self, name: str) -> Any:
        """A size: the driver's own field and the general one, whichever a lower level sets; its own first."""
        family = _FAMILIES.get(self.driver or "")
        general, own = self.settings[name], self.settings.get(f"{family}_{name}")
        if own is None or own.value is None:
            return general.value
        levels = ("topic", "namespace", "broker", "default")
        return own.value if levels.index(own.origin) <= levels.index(general.origin) else general.value


def _as_said(value: Any) -> str:
    """A value as one would say it: `true`, `/cold`, `{"root": "/cold"}`."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def resolve_policies(
    *,
    topic: OffloadPolicies | None = None,
    namespace: OffloadPolicies | None = None,
    broker: OffloadPolicies | None = None,
) -> EffectivePolicies:
    """What holds of what the three levels say."""
    levels: tuple[tuple[Origin, OffloadPolicies | None], ...] = (
        ("topic", topic),
        ("namespace", namespace),
        ("broker", broker),
        ("default", DEFAULTS),
    )
    settings = {name: _lowest(name, levels) for name in OffloadPolicies.model_fields}
    return EffectivePolicies(settings=settings)


def _lowest(name: str, levels: Sequence[tuple[Origin, OffloadPolicies | None]]) -> Setting:
    for origin, level in levels:
        value = None if level is None else getattr(level, name)
        if value is not None:
            return Setting(name=name, value=value, origin=origin)
    return Setting(name=name, value=None, origin="default")


def _threshold(value: int) -> int | None:
    return None if value < 0 else value
