"""Write topics and offload them: managed ledgers, offloads, filters, settings, the audit log."""
