"""Exit codes: what they mean, and those that several commands share."""

from __future__ import annotations

from collections.abc import Mapping

UNEXPECTED, USAGE = 1, 2

WORK_FAILED = 3
"""The command did its job, but the work failed: a run, a job, an evaluator, a reversal; or it was cut short."""

EXIT_CODES: Mapping[int, str] = {
    0: "Success. A run that pauses or waits for an answer also counts as success.",
    1: "Something went wrong: the name does not exist, the database cannot be reached (a batch has paused then, and "
    "the same command continues it), somebody else changed the run first, you answered no, or `wtb doctor` found "
    "faults.",
    2: "The command is not possible like this: an option is wrong, the workflow does not load, or the status of the "
    "run does not allow it.",
    3: "A run, a job or an evaluator failed, a batch used up its budget or was cancelled by somebody else, a rollback "
    "stopped half-way, or a replay differs.",
    4: "`wtb gate` found a regression.",
    5: "`wtb gate` could not tell.",
}
"""All exit codes with their meanings, for `wtb --help` and docs/commands.md."""
