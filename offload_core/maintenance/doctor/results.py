"""Results of an examination of a tier: one for each check, and what to do about an error of a store.

Advice is general words for each kind of error, and for a refusal the permission that the store asks for. Permissions
are those that the stores' own documents name: Amazon S3's actions, Google Cloud's IAM permissions, Azure's data
actions (and the letters of a shared access signature), the modes of HDFS and of local directories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from offload_hooks.errors import (
    AccessDeniedError,
    BrokenPluginError,
    InvalidKeyError,
    ObjectNotFoundError,
    OffloadError,
    OptionError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
)

Status = Literal["ok", "warning", "failed", "skipped"]
STATUSES: tuple[Status, ...] = ("ok", "warning", "failed", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinding:
    """Result of a check: what was found, and a remedy, None if none is needed."""

    status: Status
    seen: str
    fix: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """A check's name, its finding, and its duration."""

    name: str
    finding: CheckFinding
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """An examination of one tier.

    Attributes:
        driver: the driver's name.
        location: the tier's root, without credentials.
        read_only: whether nothing was written.
        prefix: what the keys of all objects began with that were made.
        results: of all checks, in their order.
        left_behind: what was made and could not be removed: keys, and uploads as `key (upload id)`.
        interrupted: whether the examination was broken off.
    """

    driver: str
    location: str
    read_only: bool
    prefix: str
    results: tuple[CheckResult, ...]
    left_behind: tuple[str, ...]
    interrupted: bool

    @property
    def has_failed(self) -> bool:
        """True if any check failed, or not all of them could be made."""
        return self.interrupted or self.count("failed") > 0

    def count(self, status: Status) -> int:
        """Return how many checks ended so."""
        return Counter(result.finding.status for result in self.results)[status]


def ok(seen: str) -> CheckFinding:
    """Return the finding of a check that passed."""
    return CheckFinding(status="ok", seen=seen)


def warning(seen: str, fix: str) -> CheckFinding:
    """Return the finding of a check that passed, with advice."""
    return CheckFinding(status="warning", seen=seen, fix=fix)


def failed(seen: str, fix: str) -> CheckFinding:
    """Return the finding of a check that failed."""
    return CheckFinding(status="failed", seen=seen, fix=fix)


def skipped(why: str) -> CheckFinding:
    """Return the finding of a check that was not made."""
    return CheckFinding(status="skipped", seen=why)


REPORT_DRIVER = "Report it to the driver's authors: the driver breaks the contract of the hooks."

_ACTIONS = {
    "list_objects": "list",
    "read_range": "read",
    "read_ranges": "read",
    "read_object": "read",
    "stat": "read",
    "begin_data": "write",
    "write_block": "write",
    "commit_data": "write",
    "write_index": "write",
    "abort_data": "abort",
    "list_uploads": "list uploads",
    "delete": "delete",
}
"""The action of each hook on a store."""

_S3 = {
    "list": "s3:ListBucket on the bucket",
    "read": "s3:GetObject on the objects, and s3:ListBucket on the bucket (without it an object that is not there "
    "looks like one that is denied)",
    "write": "s3:PutObject on the objects; with KMS encryption also kms:GenerateDataKey and kms:Decrypt",
    "abort": "s3:AbortMultipartUpload on the objects",
    "list uploads": "s3:ListBucketMultipartUploads on the bucket",
    "delete": "s3:DeleteObject on the objects",
}
_GCS = {
    "list": "storage.objects.list on the bucket",
    "read": "storage.objects.get on the objects",
    "write": "storage.objects.create, and storage.objects.get and storage.objects.delete to put parts together and to "
    "replace objects (the role Storage Object User has them)",
    "abort": "storage.objects.list and storage.objects.delete, to drop parts (the role Storage Object User has them)",
    "list uploads": "storage.objects.list on the bucket",
    "delete": "storage.objects.delete on the objects",
}
_AZURE = {
    "list": "the role Storage Blob Data Contributor or Reader on the container (a SAS: l)",
    "read": "the role Storage Blob Data Contributor or Reader on the container (a SAS: r)",
    "write": "the role Storage Blob Data Contributor on the container (a SAS: c and w)",
    "abort": "the role Storage Blob Data Contributor on the container (a SAS: w and d)",
    "list uploads": "the role Storage Blob Data Contributor on the container (a SAS: l and r)",
    "delete": "the role Storage Blob Data Contributor on the container (a SAS: d)",
}
_HDFS = {
    "list": "read and execute (r-x) on the tier's directory and execute (--x) on those above it",
    "read": "read (r--) on the files and execute (--x) on the directories above them",
    "write": "write and execute (-wx) on the tier's directory; look at the quota of the directory, too",
    "abort": "write and execute (-wx) on the tier's directory .offload-uploads",
    "list uploads": "read and execute (r-x) on the tier's directory .offload-uploads",
    "delete": "write and execute (-wx) on the tier's directory (with the sticky bit: owner of the files)",
}
_LOCAL = _HDFS | {
    "write": "write and execute (-wx) on the tier's directory, on a file system that is not mounted read-only"
}
_PERMISSIONS: Mapping[str, Mapping[str, str]] = {
    "s3": _S3,
    "gcs": _GCS,
    "azure": _AZURE,
    "hdfs": _HDFS,
    "local": _LOCAL,
}

_MISSING = {
    "s3": "Create the bucket, or correct its name, region or endpoint.",
    "gcs": "Create the bucket, or correct its name.",
    "azure": "Create the container, or correct its name or the account's.",
    "hdfs": "Create the directory (hdfs dfs -mkdir -p), or correct the path.",
    "local": "Create the directory (mkdir -p), or correct the path; is something not mounted?",
}

_UPLOADS = {
    "s3": "Let a lifecycle rule of the bucket do it (AbortIncompleteMultipartUpload).",
    "gcs": "A lifecycle rule (Delete, with age and matchesPrefix) can do it.",
    "azure": "The service drops uncommitted blocks after a week.",
}


def advice(driver: str, hook: str, error: OffloadError) -> str:
    """Return what to do about an error that this hook of this driver raised; the error's own hint comes last."""
    own = error.hint
    return " ".join(part for part in (_words(driver, hook, error), own) if part)


def permission(driver: str, hook: str) -> str:
    """The permission that a hook needs of a store; in general words for a driver that is not known here."""
    action = _ACTIONS.get(hook, "reach")
    return _PERMISSIONS.get(driver, {}).get(action, f"the permission to {action}")


def stale_uploads_advice(driver: str) -> str:
    """Return how to get rid of uploads that were abandoned."""
    by_hand = "Drop them: tier.abort_data(found.upload) for each found of tier.list_uploads()."
    return " ".join(part for part in (by_hand, _UPLOADS.get(driver)) if part)


def _words(driver: str, hook: str, error: OffloadError) -> str:
    if isinstance(error, AccessDeniedError):
        return f"Check the credentials, then grant them {permission(driver, hook)}."
    if isinstance(error, ObjectNotFoundError):
        if hook == "list_objects":
            return _MISSING.get(driver, "Create the tier's root (bucket, directory), or correct its name.")
        return "It was there before. Look for another program that deletes, a lifecycle rule, a proxy or a replica."
    if isinstance(error, StoreFullError):
        return "Make room in the store, or raise its quota."
    if isinstance(error, StoreTimeoutError):
        return "The store is slow or far. Look at the network and at the driver's timeouts, then try again."
    if isinstance(error, StoreUnavailableError):
        return "Check endpoint, port, proxy, DNS and TLS certificates, and whether the store is up."
    if isinstance(error, InvalidKeyError):
        return f"The driver must take keys such as ours. {REPORT_DRIVER}"
    if isinstance(error, BrokenPluginError):
        return REPORT_DRIVER
    if isinstance(error, OptionError):
        return "Correct the driver's options."
    return "" if error.hint else "Look into the store's own log."
