"""Verifying what lies in a tier: objects, their bytes, and what records say of them; what is wrong is a finding."""

from offload_core.verify.codes import Code
from offload_core.verify.findings import Finding
from offload_core.verify.severity import Severity
from offload_core.verify.state import VerifiedObjects
from offload_core.verify.verification import Summary, Verification

__all__ = ["Code", "Finding", "Severity", "Summary", "Verification", "VerifiedObjects"]
