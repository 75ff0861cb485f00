"""The audit log: what is changed in a tier or in records, and why, before it is."""

from offload_core.audit.changes import Change, ChangeAction, Deletion
from offload_core.audit.log import AuditLog, FileAuditLog, LoggedChanges

__all__ = [
    "AuditLog",
    "Change",
    "ChangeAction",
    "Deletion",
    "FileAuditLog",
    "LoggedChanges",
]
