"""The command `offload`; it shows what the core decides."""
