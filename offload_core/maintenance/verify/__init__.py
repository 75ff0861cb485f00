"""Verifying what lies in a tier: objects, their bytes, and what records say of them; what is wrong is a finding."""

from offload_core.maintenance.verify.codes import Code, Severity
from offload_core.maintenance.verify.findings import Finding, Summary
from offload_core.maintenance.verify.sealing import Sealing
from offload_core.maintenance.verify.state import VerifiedObjects
from offload_core.maintenance.verify.verification import Verification

__all__ = ["Code", "Finding", "Sealing", "Severity", "Summary", "Verification", "VerifiedObjects"]
