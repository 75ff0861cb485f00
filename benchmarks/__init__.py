"""Benchmarks: `make bench`. Each prints ratios against a peer that runs side by side with it, in the same run."""
