"""Runners: where the jobs of a batch run."""
