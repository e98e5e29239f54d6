"""Runs: start a run, take it from step to step, record each step, and continue after a pause or a crash."""
