"""Verifying what lies in a tier: objects, their bytes, and what records say of them; what is wrong is a finding."""

from offload_core.maintenance.verify.findings import Code, Finding, Severity, Summary
from offload_core.maintenance.verify.verification import Verification
from offload_core.maintenance.verify.verified_objects import Sealing, VerifiedObjects

__all__ = ["Code", "Finding", "Sealing", "Severity", "Summary", "Verification", "VerifiedObjects"]
