"""The policies of one namespace or topic: the value, and its JSON record.

A namespace's record is Pulsar's `Policies`; a topic's has the names of Pulsar's `TopicPolicies`. Unknown fields stay as
they are. Source: docs/policies.md, "Where they are kept".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import ValidationError

from offload_core.metadata.policies import (
    OffloadPolicies,
    RetentionPolicies,
    parse_policies,
    pulsar_names,
    read_policies,
    read_retention,
)
from offload_core.metadata.policies.offload_policies import shown_value
from offload_core.metadata.policies.tier_fields import changed_place, tier_of
from offload_hooks.errors import MetadataError, OptionError
from offload_hooks.json_text import read_json
from offload_hooks.shown_urls import MASK

Part = Literal["offload", "retention"]
"""A part of a record that is known here."""

_VOUCHED = "pulsarOffloadVouchedTier"
"""Our field of a record: the digest of its tier's policies, if an operator set them."""

_MAPPINGS = ("managedLedgerExtraConfigurations", "managedLedgerOffloadFilterOptions")

_DERIVED = frozenset(("s3Driver", "gcsDriver", "fileSystemDriver"))
"""Fields that Pulsar writes beside the policies, and never reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of a record's parts.

    Attributes:
        older: names from before there were offload policies, by the policy; −1 and null set nothing.
    """

    offload: str
    retention: str
    older: Mapping[str, str] = field(default_factory=dict)


NAMESPACE_NAMES = Names(
    offload="offload_policies",
    retention="retention_policies",
    older={
        "managedLedgerOffloadThresholdInBytes": "offload_threshold",
        "managedLedgerOffloadThresholdInSeconds": "offload_threshold_in_seconds",
        "managedLedgerOffloadDeletionLagInMillis": "offload_deletion_lag_ms",
    },
)
TOPIC_NAMES = Names(offload="offloadPolicies", retention="retentionPolicies")


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPolicies:
    """The policies of a namespace or a topic; None where it has none.

    Attributes:
        unknown_offload: unknown fields of its offload policies, as they were given.
        others: the rest of its record.
        vouched: whether an operator set the tier's policies, not a tenant or a broker; True for a level that is made
            in this process.
    """

    offload: OffloadPolicies | None = None
    retention: RetentionPolicies | None = None
    unknown_offload: Mapping[str, Any] = field(default_factory=dict, repr=False)
    others: Mapping[str, Any] = field(default_factory=dict)
    vouched: bool = field(default=True, compare=False)

    def shown_offload(self) -> dict[str, Any] | None:
        """The offload policies with secrets masked, by Pulsar's names."""
        if self.offload is None:
            return None
        return {**shown_value(dict(self.unknown_offload)), **self.offload.shown()}

    def with_fields(self, **fields: Any) -> LevelPolicies:
        """The level with these fields of its offload policies; None unsets one.

        Raises:
            OptionError: see `parse_policies`; only these fields are checked, others may be as a broker wrote them.
        """
        checked = parse_policies(fields)
        known = parse_policies({}) if self.offload is None else self.offload
        offload = known.model_copy(update={name: getattr(checked, name) for name in fields})
        is_empty = offload == parse_policies({}) and not self.unknown_offload
        return replace(self, offload=None if is_empty else offload)


def parse_offload(given: Mapping[str, Any], where: str) -> tuple[OffloadPolicies, dict[str, Any]]:
    """Parse offload policies that are to be set, in Pulsar's JSON; also returns its unknown fields.

    Raises:
        OptionError: a value that makes no sense, by its name; `where` names the level.
    """
    known, unknown = _by_knowledge(given)
    return parse_policies(known, where), unknown


def unmasked(given: Mapping[str, Any], level: LevelPolicies) -> dict[str, Any]:
    """Replace masks in offload policies that are to be set by the secrets of the level.

    Raises:
        OptionError: the level has no secret for a mask; or a mask is given with another driver, place, proxy or filter
            than the secret was, which then must be given anew.
    """
    known = {} if level.offload is None else level.offload.to_json()
    filled = _filled(given, {**level.unknown_offload, **known})
    for name in _MAPPINGS:
        given_values = filled.get(name)
        if isinstance(given_values, dict):
            filled[name] = _filled(given_values, known.get(name, {}))
    if filled == given:
        return filled
    before = parse_policies({}) if level.offload is None else level.offload
    after, _ = parse_offload(filled, "offload policies")
    changed = changed_place(tier_of(before), tier_of(after))
    for part in ("filter", "filter_options"):
        if getattr(before, part) != getattr(after, part):
            changed.append(part)
    if changed:
        raise OptionError(
            "a masked secret is not kept where something else is asked with it",
            expected="the secret itself",
            found=f"another {', '.join(changed)}",
        )
    return filled


def _filled(given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _with_secret(name, value, known) for name, value in given.items()}


def _with_secret(name: str, value: Any, known: Mapping[str, Any]) -> Any:
    """The known value of this name if the value is its mask; else the value, which must have no mask in it."""
    if name in known and value in (MASK, shown_value(known[name])):
        return known[name]
    if name not in _MAPPINGS and MASK in json.dumps(value):
        raise OptionError(
            f"{name} is masked, and no secret is kept for it here", expected="the secret itself"
        )
    return value


def parse_retention(given: Mapping[str, Any], where: str) -> RetentionPolicies:
    """Parse retention that is to be set, in Pulsar's JSON.

    Raises:
        OptionError: a limit that is missing, unknown, or refused by Pulsar.
    """
    try:
        retention = RetentionPolicies(**given)
    except (ValidationError, TypeError) as error:
        what = "it is no mapping by names"
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise OptionError(f"{where}: this is no retention", found=what) from None
    if (retention.time_in_minutes == 0) != (retention.size_in_mb == 0):
        raise OptionError(
            f"{where}: a retention of 0 in time or size alone makes no sense",
            expected="both 0 for none, or -1 for the limit that is not to count",
            found=f"{retention.time_in_minutes} minutes, {retention.size_in_mb} MB",
        )
    return retention


def parse_level(data: bytes, names: Names) -> LevelPolicies:
    """Decode a record; values of a broker are read as Pulsar means them, see `read_policies`.

    Raises:
        MetadataError: it is no JSON object, or a value in it makes no sense.
    """
    record = _parse_record(data)
    offload, retention = record.pop(names.offload, None), record.pop(names.retention, None)
    older = {policy: record.pop(name, None) for policy, name in names.older.items()}
    older_values = {policy: value for policy, value in older.items() if value not in (None, -1)}
    vouched = record.pop(_VOUCHED, None)
    unknown: dict[str, Any] = {}
    try:
        if offload is not None or older_values:
            known, unknown = _by_knowledge(older_values | _without_none(offload or {}))
            offload = read_policies(known, "offload policies")
        if retention is not None:
            retention = read_retention(retention)
    except (OptionError, ValidationError, AttributeError) as error:
        found = error.title if isinstance(error, ValidationError) else error
        raise MetadataError("a record of policies makes no sense", found=found) from None
    return LevelPolicies(
        offload=offload,
        retention=retention,
        unknown_offload=unknown,
        others=record,
        vouched=not tier_of(offload) or vouched == _digest(offload),
    )


def level_without(data: bytes, names: Names, part: Part) -> LevelPolicies:
    """Decode a record without its offload policies or its retention, even if these cannot be read.

    If the rest makes no sense, it stays as it is; a record that is no JSON object is dropped.
    """
    try:
        record = _parse_record(data)
    except MetadataError:
        return LevelPolicies()
    for name in (names.retention,) if part == "retention" else (names.offload, *names.older.values()):
        record.pop(name, None)
    try:
        return parse_level(json.dumps(record).encode(), names)
    except MetadataError:
        return LevelPolicies(others=record)


def pack_level(level: LevelPolicies, names: Names, *, vouching: bool = False) -> bytes:
    """Encode a record; empty for a level without policies. `vouching` writes whether an operator set its tier."""
    record = dict(level.others)
    if level.offload is not None:
        record[names.offload] = {**level.unknown_offload, **level.offload.to_json()}
    if level.retention is not None:
        record[names.retention] = level.retention.model_dump(mode="json", by_alias=True)
    if vouching and level.vouched and tier_of(level.offload):
        record[_VOUCHED] = _digest(level.offload)
    return json.dumps(record, sort_keys=True).encode() if record else b""


def _digest(offload: OffloadPolicies | None) -> str:
    fields = {} if offload is None else offload.model_dump(mode="json", include=set(tier_of(offload)))
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _parse_record(data: bytes) -> dict[str, Any]:
    record = read_json(data, "a record of policies", error=MetadataError)
    if not isinstance(record, dict):
        raise MetadataError("a record of policies is no JSON object", found=f"{len(data)} bytes")
    return record


def _by_knowledge(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of offload policies that are known here, and the others."""
    known = pulsar_names()
    unknown = {name: value for name, value in given.items() if name not in known and name not in _DERIVED}
    return {name: value for name, value in given.items() if name in known}, unknown


def _without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
