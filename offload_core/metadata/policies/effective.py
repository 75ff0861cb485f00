"""The policies in force for a topic: for each field that of the topic, else its namespace, the broker, the default.

Also here: offload thresholds above retention, which would delete ledgers before they are offloaded. Source: Pulsar
merges the same way (`OffloadPoliciesImpl.mergeConfiguration`); docs/policies.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import SecretStr

from offload_core.metadata.policies.offload_policies import (
    DEFAULTS,
    OffloadPolicies,
    RetentionPolicies,
    shown_value,
)
from offload_core.metadata.policies.tier_fields import (
    TIER_FIELDS,
    changed_ways,
    has_credentials,
    inherited,
    same_driver,
    tier_of,
)
from offload_core.metadata.records import ReadPriority
from offload_hooks.errors import OptionError

Origin = Literal["topic", "namespace", "broker", "default"]
_LEVELS = ("topic", "namespace", "broker", "default")

_FAMILIES = {
    "s3": "s3",
    "aws-s3": "s3",
    "S3": "s3",
    "gcs": "gcs",
    "google-cloud-storage": "gcs",
    "filesystem": "file_system",
}
"""The prefix of a driver's own fields, by its name."""

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
    """One field in force: its name, its value (None if no level sets it), and the level that sets it."""

    name: str
    value: Any
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Withheld:
    """Credentials that a level did not inherit, because it changes how the tier is reached.

    Attributes:
        names: of the fields that it changes, by Pulsar's names.
    """

    level: Origin
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectivePolicies:
    """The policies in force for a topic.

    Attributes:
        settings: all fields, by name.
        withheld: credentials of levels above that are left out; None if there are none.
        check_tier: raises `OptionError` if the tier must not be used; called before each use.
    """

    settings: Mapping[str, Setting]
    withheld: Withheld | None = None
    check_tier: Callable[[EffectivePolicies], None] | None = field(default=None, compare=False, repr=False)

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
        """The time between offload and deletion of the hot copy; None for never."""
        lag: int = self["deletion_lag_in_millis"]
        return None if lag < 0 else lag / 1000

    @property
    def read_priority(self) -> ReadPriority:
        """The tiered read priority; our field counts before Pulsar's of the same level or one above."""
        return ReadPriority(self._lower_level("tiered_read_priority", "offloaded_read_priority"))

    @property
    def max_block_bytes(self) -> int:
        """The most bytes of a block."""
        return self._size("max_block_size_in_bytes")

    @property
    def read_buffer_bytes(self) -> int:
        """The bytes that are read at once where single entries are read."""
        return self._size("read_buffer_size_in_bytes")

    @property
    def max_threads(self) -> int:
        """The number of blocks that are built and uploaded at a time."""
        return int(self["max_threads"])

    @property
    def rate_limit_bytes_per_s(self) -> int | None:
        """The most bytes a second that an offload writes; None for no limit."""
        return int(self["rate_limit_in_bytes_per_second"]) or None

    @property
    def is_streamed(self) -> bool:
        """True if entries are offloaded by segments as they arrive, not by whole ledgers."""
        return bool(self["streaming"])

    @property
    def max_segment_bytes(self) -> int:
        """The bytes of payloads with which a segment ends."""
        return int(self["max_segment_size_in_bytes"])

    @property
    def max_segment_age_s(self) -> int:
        """Time after its first entry when a segment ends, however small."""
        return int(self["max_segment_age_in_seconds"])

    @property
    def filter_name(self) -> str:
        """The offload filter."""
        return str(self["filter"])

    @property
    def filter_mode(self) -> Literal["tombstone", "gap"]:
        """The replacement of an entry that the filter drops."""
        mode: Literal["tombstone", "gap"] = self["filter_mode"]
        return mode

    @property
    def filter_options(self) -> dict[str, str]:
        """The filter's options."""
        return dict(self["filter_options"] or {})

    @property
    def writes_checksums(self) -> bool:
        """True if checksums of all blocks and of the index are written beside them."""
        return bool(self["checksums"])

    def tier(self) -> dict[str, Any]:
        """The policies of the tier, by field; credentials in clear."""
        return {name: value for name in TIER_FIELDS if (value := self[name]) not in (None, "")}

    def check_tier_may_be_used(self) -> None:
        """Refuse a tier for which a level has no credentials, or that a tenant may not name (`OptionError`)."""
        if self.withheld is not None and not has_credentials(self.tier()):
            raise OptionError(
                f"the {self.withheld.level} names another way to the tier than the levels above, whose credentials "
                "do not go there",
                expected=f"credentials at the level of the {self.withheld.level}, or anonymous=true",
                found=", ".join(self.withheld.names),
            )
        if self.check_tier is not None:
            self.check_tier(self)

    def driver_options(self) -> dict[str, object]:
        """The driver's options, by Pulsar's names, which drivers know; credentials in clear.

        Raises:
            OptionError: no driver is set, or see `check_tier_may_be_used`.
        """
        self.check_tier_may_be_used()
        return self.named_options()

    def named_options(self) -> dict[str, object]:
        """Return the same as `driver_options`, without `check_tier_may_be_used`."""
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
                secret = isinstance(value, SecretStr)
                options[_pulsar_name(name)] = value.get_secret_value() if secret else value
        return options | dict(self["extra_configurations"] or {})

    def explain(self) -> list[tuple[str, str, Origin]]:
        """Each field that has a value: Pulsar's name, the value as text with credentials masked, the origin."""
        return [
            (_pulsar_name(name), _text_of(shown_value(setting.value)), setting.origin)
            for name, setting in self.settings.items()
            if setting.value is not None
        ]

    def _size(self, name: str) -> int:
        """A size: the driver's own field or the general one."""
        return int(self._lower_level(f"{_FAMILIES.get(self.driver or '')}_{name}", name))

    def _lower_level(self, name: str, other: str) -> Any:
        """The value of the field that the lower level sets; of one level the first, which may be missing or unset."""
        first, second = self.settings.get(name), self.settings[other]
        if first is None or first.value is None:
            return second.value
        return first.value if _LEVELS.index(first.origin) <= _LEVELS.index(second.origin) else second.value


def _text_of(value: Any) -> str:
    """A value as text: `true`, `/cold`, `{"root": "/cold"}`."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def resolve_policies(
    *,
    topic: OffloadPolicies | None = None,
    namespace: OffloadPolicies | None = None,
    broker: OffloadPolicies | None = None,
) -> EffectivePolicies:
    """Resolve the policies of the three levels; credentials are inherited by the rule of `tier_fields`."""
    levels: tuple[tuple[Origin, OffloadPolicies | None], ...] = (
        ("broker", broker),
        ("namespace", namespace),
        ("topic", topic),
    )
    settings = {
        name: Setting(name=name, value=getattr(DEFAULTS, name), origin="default")
        for name in OffloadPolicies.model_fields
    }
    withheld = None
    for origin, level in levels:
        if level is None:
            continue
        before = {name: settings[name].value for name in TIER_FIELDS}
        for name in settings:
            value = getattr(level, name)
            if value is not None:
                settings[name] = Setting(name=name, value=value, origin=origin)
        after = {name: settings[name].value for name in TIER_FIELDS}
        is_other = bool(before["driver"]) and not same_driver(before["driver"], after["driver"])
        changed = changed_ways(before, after) if is_other or has_credentials(before) else []
        if changed:
            allowed = inherited(before, after, tier_of(level))
            for name in TIER_FIELDS:
                value = allowed.get(name)
                if value != after[name]:
                    known = settings[name].origin if value is not None else "default"
                    settings[name] = Setting(name=name, value=value, origin=known)
            # Credentials of another driver are of no use for this one.
            names = tuple(_pulsar_name(name) for name in changed)
            withheld = None if is_other else Withheld(level=origin, names=names)
    return EffectivePolicies(settings=settings, withheld=withheld)


def _pulsar_name(name: str) -> str:
    """Pulsar's name of a field; an option's is its own."""
    found = OffloadPolicies.model_fields.get(name)
    return name if found is None else str(found.alias)


def _threshold(value: int) -> int | None:
    return None if value < 0 else value


_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OutrunThreshold:
    """A threshold that is not below retention. Equal to another of the same values, whatever their origins.

    Attributes:
        name, value: the threshold's.
        limit: of retention, as text.
        origin: the level that sets the threshold.
    """

    name: str
    value: int
    limit: str
    origin: Origin = field(compare=False)

    def refusal(self, where: str) -> OptionError:
        """The error that refuses it; `where` names the topic or namespace."""
        return OptionError(
            f"{where}: retention would delete ledgers before they are offloaded",
            expected=f"less than {self.limit}",
            found=f"{self.name} = {self.value} ({self.origin})",
        )


def outrun_thresholds(policies: EffectivePolicies, retention: RetentionPolicies) -> list[OutrunThreshold]:
    """The thresholds that are not below retention.

    A retention of 0 is about consumed messages only, and −1 has no limit: neither is compared.
    """
    limit_s, limit_bytes = retention.time_in_minutes * 60, retention.size_in_mb * _MIB
    time_text = f"retentionTimeInMinutes = {retention.time_in_minutes} ({limit_s} s)"
    size_text = f"retentionSizeInMB = {retention.size_in_mb} ({limit_bytes} bytes)"
    return [
        OutrunThreshold(
            name=_pulsar_name(name), value=policies[name], limit=text, origin=policies.settings[name].origin
        )
        for name, limit, text in (
            ("threshold_in_seconds", limit_s, time_text),
            ("threshold_in_bytes", limit_bytes, size_text),
        )
        if 0 < limit <= policies[name]
    ]
