"""Look after a tier: inventory, verify, repair, recover, gc, relocate, rollback, doctor."""
