"""The audit log: what is changed in a tier or in records, and why, before it is."""

from offload_core.audit.log import (
    AuditLine,
    AuditLog,
    Change,
    ChangeAction,
    Deletion,
    FileAuditLog,
    LoggedChanges,
    read_audit_log,
)

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
