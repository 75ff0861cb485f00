"""Keep and fetch bytes: cold tiers, the hot tier, plug-ins, executors, the memory budget."""
