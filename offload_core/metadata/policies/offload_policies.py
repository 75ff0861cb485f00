"""The policies of one level: a field that is None is not set there, and a level above counts.

Fields are Pulsar's (`OffloadPoliciesImpl` 4.0.8), with its names as aliases; ours are the rate limit, the tiered read
priority, the offload filter, checksums and streaming (PIP-76). Source of the defaults: Pulsar's
broker.conf, `OffloadPoliciesImpl` and `TieredStorageConfiguration`; docs/policies.md.

The tiered read priority chooses which copy of a ledger is read first, and what is tried when that one cannot be read:
Pulsar's `OffloadedReadPriority` has two of the four, as `bookkeeper-first` and `tiered-storage-first`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, SecretStr

from offload_core.metadata.records import ReadPriority, parse_read_priority
from offload_hooks.shown_urls import MASK, masked

_MIB = 1 << 20
MIN_BLOCK_BYTES = 5 * _MIB
"""The smallest part of an upload that S3 and its like take."""
MAX_THREADS = 1024

_SECRET_NAME = re.compile(
    "secret|password|token|credential|key|sas|proxy|connection.?string|account.?json|external.?id",
    re.IGNORECASE,
)


def _priority(value: Any) -> Any:
    return parse_read_priority(value) if isinstance(value, str) else value


Priority = Annotated[
    ReadPriority, BeforeValidator(_priority), PlainSerializer(lambda each: each.value, when_used="json")
]
PulsarPriority = Annotated[
    ReadPriority,
    BeforeValidator(_priority),
    AfterValidator(ReadPriority.check_is_pulsars),
    PlainSerializer(lambda each: each.pulsar_name, when_used="json"),
]
Secret = Annotated[SecretStr, PlainSerializer(lambda each: each.get_secret_value(), when_used="json")]
Threads = Annotated[int, Field(ge=1, le=MAX_THREADS)]
Threshold = Annotated[int, Field(ge=-1, le=2**63 - 1)]
Bytes = Annotated[int, Field(ge=1, le=2**31 - 1)]
BlockBytes = Annotated[int, Field(ge=MIN_BLOCK_BYTES, le=2**31 - 1)]
Positive = Annotated[int, Field(ge=1, le=2**63 - 1)]


class OffloadPolicies(BaseModel):
    """The offload policies of one level; sizes in bytes, times in the unit of each name.

    Thresholds: −1 never offloads by itself, 0 offloads every sealed ledger at once.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, hide_input_in_errors=True)

    driver: str | None = Field(None, alias="managedLedgerOffloadDriver")
    threshold_in_bytes: Threshold | None = Field(None, alias="managedLedgerOffloadThresholdInBytes")
    threshold_in_seconds: Threshold | None = Field(None, alias="managedLedgerOffloadThresholdInSeconds")
    deletion_lag_in_millis: Threshold | None = Field(None, alias="managedLedgerOffloadDeletionLagInMillis")
    offloaded_read_priority: PulsarPriority | None = Field(None, alias="managedLedgerOffloadedReadPriority")
    tiered_read_priority: Priority | None = Field(None, alias="tieredReadPriority")
    max_threads: Threads | None = Field(None, alias="managedLedgerOffloadMaxThreads")
    read_threads: Threads | None = Field(None, alias="managedLedgerOffloadReadThreads")
    prefetch_rounds: Threads | None = Field(None, alias="managedLedgerOffloadPrefetchRounds")
    rate_limit_in_bytes_per_second: Annotated[int, Field(ge=0)] | None = Field(
        None, alias="managedLedgerOffloadRateLimitInBytesPerSecond"
    )
    streaming: bool | None = Field(None, alias="managedLedgerOffloadStreaming")
    max_segment_size_in_bytes: Positive | None = Field(None, alias="maxOffloadSegmentSizeInBytes")
    max_segment_age_in_seconds: Positive | None = Field(None, alias="maxOffloadSegmentRolloverTimeInSeconds")
    filter: str | None = Field(None, alias="managedLedgerOffloadFilter")
    filter_mode: Literal["tombstone", "gap"] | None = Field(None, alias="managedLedgerOffloadFilterMode")
    filter_options: dict[str, str] | None = Field(None, alias="managedLedgerOffloadFilterOptions", repr=False)
    checksums: bool | None = Field(None, alias="managedLedgerOffloadChecksums")
    bucket: str | None = Field(None, alias="managedLedgerOffloadBucket")
    region: str | None = Field(None, alias="managedLedgerOffloadRegion")
    service_endpoint: str | None = Field(None, alias="managedLedgerOffloadServiceEndpoint")
    max_block_size_in_bytes: BlockBytes | None = Field(None, alias="managedLedgerOffloadMaxBlockSizeInBytes")
    read_buffer_size_in_bytes: Bytes | None = Field(None, alias="managedLedgerOffloadReadBufferSizeInBytes")
    s3_bucket: str | None = Field(None, alias="s3ManagedLedgerOffloadBucket")
    s3_region: str | None = Field(None, alias="s3ManagedLedgerOffloadRegion")
    s3_service_endpoint: str | None = Field(None, alias="s3ManagedLedgerOffloadServiceEndpoint")
    s3_max_block_size_in_bytes: BlockBytes | None = Field(
        None, alias="s3ManagedLedgerOffloadMaxBlockSizeInBytes"
    )
    s3_read_buffer_size_in_bytes: Bytes | None = Field(
        None, alias="s3ManagedLedgerOffloadReadBufferSizeInBytes"
    )
    s3_credential_id: str | None = Field(None, alias="s3ManagedLedgerOffloadCredentialId")
    s3_credential_secret: Secret | None = Field(None, alias="s3ManagedLedgerOffloadCredentialSecret")
    s3_role: str | None = Field(None, alias="s3ManagedLedgerOffloadRole")
    s3_role_session_name: str | None = Field(None, alias="s3ManagedLedgerOffloadRoleSessionName")
    gcs_bucket: str | None = Field(None, alias="gcsManagedLedgerOffloadBucket")
    gcs_region: str | None = Field(None, alias="gcsManagedLedgerOffloadRegion")
    gcs_max_block_size_in_bytes: BlockBytes | None = Field(
        None, alias="gcsManagedLedgerOffloadMaxBlockSizeInBytes"
    )
    gcs_read_buffer_size_in_bytes: Bytes | None = Field(
        None, alias="gcsManagedLedgerOffloadReadBufferSizeInBytes"
    )
    gcs_service_account_key_file: str | None = Field(
        None, alias="gcsManagedLedgerOffloadServiceAccountKeyFile"
    )
    file_system_profile_path: str | None = Field(None, alias="fileSystemProfilePath")
    file_system_uri: str | None = Field(None, alias="fileSystemURI")
    offloaders_directory: str | None = Field(None, alias="offloadersDirectory")
    extra_configurations: dict[str, str] | None = Field(
        None, alias="managedLedgerExtraConfigurations", repr=False
    )

    def to_json(self) -> dict[str, Any]:
        """The policies by Pulsar's names, with credentials: for where policies are kept."""
        fields: dict[str, Any] = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return fields

    def shown(self) -> dict[str, Any]:
        """The policies by Pulsar's names, credentials masked: for output and for answers to requests."""
        fields = {name: shown_value(value) for name, value in self.to_json().items()}
        for name, field in type(self).model_fields.items():
            if isinstance(getattr(self, name), SecretStr):
                fields[str(field.alias)] = MASK
        return fields


def is_secret_name(name: str) -> bool:
    """True if an option's name marks its value as secret."""
    return _SECRET_NAME.search(name) is not None


def shown_value(value: Any) -> Any:
    """A field's value as people may see it: as in JSON, with credentials masked.

    In mappings, values with secret names are masked; in URLs user, password, query and fragment.
    """
    if isinstance(value, SecretStr):
        return MASK
    if isinstance(value, ReadPriority):
        return value.value
    if isinstance(value, dict):
        return {name: MASK if is_secret_name(name) else shown_value(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shown_value(each) for each in value]
    return masked(value) if isinstance(value, str) else value


DEFAULTS = OffloadPolicies(
    threshold_in_bytes=-1,
    threshold_in_seconds=-1,
    deletion_lag_in_millis=4 * 3600 * 1000,
    offloaded_read_priority=ReadPriority.OFFLOADED_FIRST,
    max_threads=2,
    read_threads=2,
    prefetch_rounds=1,
    rate_limit_in_bytes_per_second=0,
    streaming=False,
    max_segment_size_in_bytes=1024 * _MIB,
    max_segment_age_in_seconds=600,
    filter="disabled",
    filter_mode="tombstone",
    checksums=False,
    max_block_size_in_bytes=64 * _MIB,
    gcs_max_block_size_in_bytes=128 * _MIB,
    read_buffer_size_in_bytes=_MIB,
)
"""The policies in force where no level sets any."""


class RetentionPolicies(BaseModel):
    """The time and size for which a consumed topic is kept: −1 for ever, 0 not at all.

    Source: Pulsar's class of this name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True)

    time_in_minutes: Annotated[int, Field(ge=-1, le=2**31 - 1)] = Field(0, alias="retentionTimeInMinutes")
    size_in_mb: Annotated[int, Field(ge=-1, le=2**63 - 1)] = Field(0, alias="retentionSizeInMB")
