"""Examine a tier: what works, what does not, and what to do about it."""

from offload_core.maintenance.doctor.checks import DEFAULT_BYTES
from offload_core.maintenance.doctor.examine import examine
from offload_core.maintenance.doctor.results import STATUSES, CheckFinding, CheckResult, Diagnosis, Status

__all__ = ["DEFAULT_BYTES", "STATUSES", "CheckFinding", "CheckResult", "Diagnosis", "Status", "examine"]
