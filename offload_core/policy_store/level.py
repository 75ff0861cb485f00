"""What one namespace or topic says, between value and JSON.

A namespace's record is Pulsar's `Policies`; a topic's has the names of Pulsar's `TopicPolicies`. All that is not known
here is kept as it is. Source: docs/policies.md, "Where they are kept".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import ValidationError

from offload_core.policies import OffloadPolicies, RetentionPolicies, parse_policies, pulsar_names
from offload_core.policies.model import shown_value
from offload_hooks.errors import MetadataError, OptionError

_DERIVED = frozenset(("s3Driver", "gcsDriver", "fileSystemDriver"))
"""What Pulsar tells beside a policy's fields, and takes from none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """How a record calls its parts.

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
    """What a namespace or a topic says; None where it says nothing.

    Attributes:
        unknown_offload: fields of its offload policies that are not known here, as they were given.
        others: all else that its record holds.
    """

    offload: OffloadPolicies | None = None
    retention: RetentionPolicies | None = None
    unknown_offload: Mapping[str, Any] = field(default_factory=dict, repr=False)
    others: Mapping[str, Any] = field(default_factory=dict)

    def shown_offload(self) -> dict[str, Any] | None:
        """Its offload policies for people and for answers to requests, by Pulsar's names, secrets masked."""
        if self.offload is None:
            return None
        return {**shown_value(dict(self.unknown_offload)), **self.offload.shown()}

    def saying(self, **fields: Any) -> LevelPolicies:
        """The same with these fields of its offload policies; None says nothing any more.

        Raises:
            OptionError: see `parse_policies`.
        """
        said = {name: getattr(self.offload, name, None) for name in OffloadPolicies.model_fields}
        offload = parse_policies(said | fields)
        is_silent = offload == parse_policies({}) and not self.unknown_offload
        return replace(self, offload=None if is_silent else offload)


def parse_offload(given: Mapping[str, Any], where: str) -> tuple[OffloadPolicies, dict[str, Any]]:
    """Offload policies as Pulsar's JSON has them, and those of its fields that are not known here.

    Raises:
        OptionError: a value that makes no sense, by its name; `where` is said with it.
    """
    known = pulsar_names()
    policies = parse_policies({name: value for name, value in given.items() if name in known}, where)
    return policies, {k: v for k, v in given.items() if k not in known and k not in _DERIVED}


def parse_retention(given: Mapping[str, Any], where: str) -> RetentionPolicies:
    """Retention as Pulsar's JSON has it.

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
    """Decode a record.

    Raises:
        MetadataError: it is no JSON object, or a value in it makes no sense.
    """
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        record = None
    if not isinstance(record, dict):
        raise MetadataError("a record of policies is no JSON object", found=f"{len(data)} bytes")
    offload, retention = record.pop(names.offload, None), record.pop(names.retention, None)
    older = {policy: record.pop(name, None) for policy, name in names.older.items()}
    said = {policy: value for policy, value in older.items() if value not in (None, -1)}
    try:
        if offload is not None or said:
            offload, unknown = parse_offload(said | _without_none(offload or {}), "offload policies")
        else:
            unknown = {}
        if retention is not None:
            retention = parse_retention(retention, "retention")
    except (OptionError, AttributeError) as error:
        raise MetadataError("a record of policies makes no sense", found=error) from None
    return LevelPolicies(offload=offload, retention=retention, unknown_offload=unknown, others=record)


def pack_level(level: LevelPolicies, names: Names) -> bytes:
    """Encode a record; empty if it says nothing."""
    record = dict(level.others)
    if level.offload is not None:
        record[names.offload] = {**level.unknown_offload, **level.offload.to_json()}
    if level.retention is not None:
        record[names.retention] = level.retention.model_dump(mode="json", by_alias=True)
    return json.dumps(record, sort_keys=True).encode() if record else b""


def _without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
