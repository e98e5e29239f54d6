"""Batches: plan what runs, run it side by side, score it, and keep what is still true."""
