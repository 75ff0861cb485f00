"""An examination of a tier: what works, what does not, and what to do about it."""

from offload_core.doctor.examine import examine
from offload_core.doctor.findings import STATUSES, CheckResult, Diagnosis, Finding, Status
from offload_core.doctor.measuring import DEFAULT_BYTES

__all__ = ["DEFAULT_BYTES", "STATUSES", "CheckResult", "Diagnosis", "Finding", "Status", "examine"]
