"""Batches: plan the jobs, run them side by side, score them, and keep results that are still valid."""
