"""Exit codes that several commands share; docs/commands.md lists all."""

WORK_FAILED = 3
"""The command did its job, but the work failed: a run, a job, an evaluator, a reversal, or a budget that ran out."""
