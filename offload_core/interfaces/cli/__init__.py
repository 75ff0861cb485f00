"""Run the command `offload`, which shows what the core decides."""
