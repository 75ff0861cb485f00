"""The policies of one namespace or topic, between value and JSON.

A namespace's record is Pulsar's `Policies`; a topic's has the names of Pulsar's `TopicPolicies`. All that is not known
here is kept as it is. Source: docs/policies.md, "Where they are kept".
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
"""What a record says that is known here."""

_VOUCHED = "pulsarOffloadVouchedTier"
"""Ours in a record: the digest of what it says of a tier, where an operator said that."""

_MAPPINGS = ("managedLedgerExtraConfigurations", "managedLedgerOffloadFilterOptions")

_DERIVED = frozenset(("s3Driver", "gcsDriver", "fileSystemDriver"))
"""What Pulsar tells beside a policy's fields, and takes from none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of a record's parts.

    Attributes:
        older: names that values had before there were offload policies, by the policy; −1 and null say nothing.
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
        unknown_offload: fields of its offload policies that are not known here, as they were given.
        others: all else that its record holds.
        vouched: whether an operator said what is said of the tier, and not a tenant or a broker; so does who makes a
            level in this process.
    """

    offload: OffloadPolicies | None = None
    retention: RetentionPolicies | None = None
    unknown_offload: Mapping[str, Any] = field(default_factory=dict, repr=False)
    others: Mapping[str, Any] = field(default_factory=dict)
    vouched: bool = field(default=True, compare=False)

    def shown_offload(self) -> dict[str, Any] | None:
        """Its offload policies for people and for answers to requests, by Pulsar's names, secrets masked."""
        if self.offload is None:
            return None
        return {**shown_value(dict(self.unknown_offload)), **self.offload.shown()}

    def saying(self, **fields: Any) -> LevelPolicies:
        """The same with these fields of its offload policies; None says nothing any more.

        Raises:
            OptionError: see `parse_policies`; of these fields alone, others may be as a broker wrote them.
        """
        checked = parse_policies(fields)
        said = parse_policies({}) if self.offload is None else self.offload
        offload = said.model_copy(update={name: getattr(checked, name) for name in fields})
        is_silent = offload == parse_policies({}) and not self.unknown_offload
        return replace(self, offload=None if is_silent else offload)


def parse_offload(given: Mapping[str, Any], where: str) -> tuple[OffloadPolicies, dict[str, Any]]:
    """Offload policies that are to be set, as Pulsar's JSON has them, and those of its fields that are not known here.

    Raises:
        OptionError: a value that makes no sense, by its name; `where` is said with it.
    """
    known, unknown = _by_knowledge(given)
    return parse_policies(known, where), unknown


def unmasked(given: Mapping[str, Any], level: LevelPolicies) -> dict[str, Any]:
    """Offload policies that are to be set, with the secrets of a level where they were given back masked.

    Raises:
        OptionError: the mask of a secret that is not kept at this level; or one beside another driver, place, proxy or
            filter than the secret was given with, where that must be given anew.
    """
    said = {} if level.offload is None else level.offload.to_json()
    kept = _filled(given, {**level.unknown_offload, **said})
    for name in _MAPPINGS:
        given_values = kept.get(name)
        if isinstance(given_values, dict):
            kept[name] = _filled(given_values, said.get(name, {}))
    if kept == given:
        return kept
    before = parse_policies({}) if level.offload is None else level.offload
    after, _ = parse_offload(kept, "offload policies")
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
    return kept


def _filled(given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _with_secret(name, value, known) for name, value in given.items()}


def _with_secret(name: str, value: Any, known: Mapping[str, Any]) -> Any:
    """The known value of this name, where a mask stands for it; else the value, which must hold no mask itself."""
    if name in known and value in (MASK, shown_value(known[name])):
        return known[name]
    if name not in _MAPPINGS and MASK in json.dumps(value):
        raise OptionError(
            f"{name} is masked, and no secret is kept for it here", expected="the secret itself"
        )
    return value


def parse_retention(given: Mapping[str, Any], where: str) -> RetentionPolicies:
    """Retention that is to be set, as Pulsar's JSON has it.

    Raises:
        OptionError: a limit that is missing, unknown, or not taken by Pulsar.
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
    """Decode a record; what a broker wrote is read as Pulsar means it, see `read_policies`.

    Raises:
        MetadataError: it is no JSON object, or a value in it makes no sense.
    """
    record = _parse_record(data)
    offload, retention = record.pop(names.offload, None), record.pop(names.retention, None)
    older = {policy: record.pop(name, None) for policy, name in names.older.items()}
    said = {policy: value for policy, value in older.items() if value not in (None, -1)}
    vouched = record.pop(_VOUCHED, None)
    unknown: dict[str, Any] = {}
    try:
        if offload is not None or said:
            known, unknown = _by_knowledge(said | _without_none(offload or {}))
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
    """A record without its offload policies or its retention, whatever these are.

    If what is left makes no sense, it stays as it is; a record that is no JSON object goes as a whole.
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
    """Encode a record; empty if it says nothing. `vouching` writes that an operator said its tier, if that is so."""
    record = dict(level.others)
    if level.offload is not None:
        record[names.offload] = {**level.unknown_offload, **level.offload.to_json()}
    if level.retention is not None:
        record[names.retention] = level.retention.model_dump(mode="json", by_alias=True)
    if vouching and level.vouched and tier_of(level.offload):
        record[_VOUCHED] = _digest(level.offload)
    return json.dumps(record, sort_keys=True).encode() if record else b""


def _digest(offload: OffloadPolicies | None) -> str:
    said = {} if offload is None else offload.model_dump(mode="json", include=set(tier_of(offload)))
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


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
