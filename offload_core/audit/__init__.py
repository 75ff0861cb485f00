"""The audit log: what is changed in a tier or in records, and why, before it is."""

from offload_core.audit.changes import Change, ChangeAction, Deletion
from offload_core.audit.log import AuditLog, FileAuditLog, LoggedChanges
from offload_core.audit.reading import AuditLine, read_audit_log

__all__ = [
    "AuditLine",
    "AuditLog",
    "Change",
    "ChangeAction",
    "Deletion",
    "FileAuditLog",
    "LoggedChanges",
    "read_audit_log",
]
