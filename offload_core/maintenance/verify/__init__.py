"""Verification of a tier: its objects, their bytes, and their records; each error is a finding."""

from offload_core.maintenance.verify.findings import Code, Finding, Severity, Summary
from offload_core.maintenance.verify.verification import Verification
from offload_core.maintenance.verify.verified_objects import Sealing, VerifiedObjects

__all__ = ["Code", "Finding", "Sealing", "Severity", "Summary", "Verification", "VerifiedObjects"]
