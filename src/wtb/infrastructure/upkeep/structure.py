"""Structure: finds references to things that are missing or have changed.

It queries a ledger of all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wtb.domain.ids import ExecutionId
from wtb.domain.integrity import Fault, FaultKind
from wtb.infrastructure.upkeep.ledger import Ledger

_LOST_PARENTS = """
SELECT child.parent_id, child.execution_id
FROM checkpoint AS child LEFT JOIN checkpoint AS parent ON parent.id = child.parent_id
WHERE child.parent_id IS NOT NULL AND parent.id IS NULL ORDER BY child.parent_id
"""
_BROKEN_LINKS = """
SELECT child.id, child.parent_id FROM checkpoint AS child JOIN checkpoint AS parent ON parent.id = child.parent_id
WHERE parent.hash <> child.parent_hash
UNION SELECT id, NULL FROM checkpoint WHERE parent_id IS NULL AND length(parent_hash) > 0
"""
_LOST_CONTENT = """
SELECT child.id FROM checkpoint AS child LEFT JOIN checkpoint AS parent ON parent.id = child.parent_id
WHERE child.deleted = 0 AND child.parent_id IS NOT NULL AND (parent.id IS NULL OR parent.deleted)
AND NOT EXISTS (SELECT 1 FROM keyframe WHERE checkpoint_id = child.id)
"""
_LOST_COMMITS = """
SELECT commit_id FROM living WHERE NOT EXISTS (SELECT 1 FROM file_commit WHERE id = commit_id)
"""
_LOST_HEADS = """
SELECT branch.id, branch.execution_id, branch.head_id FROM branch LEFT JOIN checkpoint ON checkpoint.id = head_id
WHERE head_id IS NOT NULL AND (checkpoint.id IS NULL OR deleted)
"""
_FOREIGN_HEADS = """
SELECT branch.id, branch.execution_id, head_id FROM branch
JOIN checkpoint ON checkpoint.id = head_id JOIN execution ON execution.id = branch.execution_id
WHERE checkpoint.execution_id <> branch.execution_id AND NOT is_thread AND head_id NOT IN (
    WITH RECURSIVE line (id) AS (
        SELECT branch.forked_from_id
        UNION SELECT parent_id FROM line JOIN checkpoint USING (id) WHERE parent_id IS NOT NULL
    )
    SELECT id FROM line WHERE id IS NOT NULL
)
"""
"""The head of a fork is in another run only at the checkpoint where it left that run, or earlier after a rollback."""
_HEADS_GONE_BACK = """
SELECT branch.id, branch.execution_id, head_id, min(child.id) FROM branch
JOIN execution ON execution.id = branch.execution_id AND NOT is_thread
JOIN checkpoint AS child ON child.parent_id = head_id AND child.branch_id = branch.id
WHERE NOT child.deleted AND NOT child.is_system
AND NOT EXISTS (SELECT 1 FROM rollback WHERE rollback.branch_id = branch.id AND target_id = head_id)
GROUP BY branch.id
"""
"""Only a rollback or redo moves a head before another checkpoint of its branch, and each is recorded. Safety
checkpoints, which keep the run as it was before a rollback, were never on its line."""
_UNTOLD_STEPS = """
SELECT execution_id, min(checkpoint_id) FROM completed
WHERE NOT EXISTS (SELECT 1 FROM told WHERE stream = execution_id AND told.checkpoint_id = completed.checkpoint_id)
AND NOT EXISTS (SELECT 1 FROM stream_end WHERE stream = execution_id AND NOT is_whole)
GROUP BY execution_id
"""
"""If an event in the middle is damaged or missing, that event may have recorded the step."""
_UNTOLD_ENDS = """
SELECT execution.id, status FROM execution LEFT JOIN stream_end ON stream = execution.id
WHERE is_sealed AND NOT is_thread AND status IN ('completed', 'failed', 'cancelled')
AND (turn IS NULL OR turn <> 'execution.' || status) AND coalesce(is_whole, 1)
"""
_LOST_STEPS = """
SELECT DISTINCT node_run.id, node_run.execution_id, checkpoint_id FROM node_run
LEFT JOIN checkpoint ON checkpoint.id = checkpoint_id WHERE checkpoint.id IS NULL
"""
_LOST_BRANCHES = """
SELECT execution.id, branch_id FROM execution WHERE NOT EXISTS (SELECT 1 FROM branch WHERE branch.id = branch_id)
"""
_LOST_RUNS = """
SELECT DISTINCT execution_id FROM checkpoint
WHERE deleted = 0 AND NOT EXISTS (SELECT 1 FROM execution WHERE execution.id = execution_id)
"""


def fault(kind: FaultKind, what: str, problem: str, runs: Sequence[str], remedy: str | None = None) -> Fault:
    """Return a fault that affects these runs."""
    return Fault(kind=kind, what=what, problem=problem, runs=tuple(map(ExecutionId, runs)), remedy=remedy)


def event_fault(stream: str, sequence: int, problem: str) -> Fault:
    """Return a fault of an event, or of all events from it on."""
    return fault(FaultKind.EVENT, f"{stream}/{sequence}", problem, (stream,))


def structure(ledger: Ledger) -> Iterator[Fault]:
    """Yield references to things that are missing or have changed."""
    lost: dict[str, list[str]] = {}
    for parent_id, run in ledger.rows(_LOST_PARENTS):
        lost.setdefault(parent_id, []).append(run)
    for id, runs in lost.items():
        problem = f"checkpoint {id!r} is missing, and others follow it"
        yield fault(FaultKind.CHECKPOINT, id, problem, ledger.with_forks(runs))
    for id, parent_id in list(ledger.rows(_BROKEN_LINKS)):
        problem = f"checkpoint {id!r} does not follow the present checkpoint {parent_id!r}"
        yield fault(FaultKind.CHAIN, id, problem, ledger.runs_of_checkpoint(id))
    for (id,) in list(ledger.rows(_LOST_CONTENT)):
        problem = f"checkpoint {id!r} has lost its content: the checkpoints that it builds on and its keyframe are gone"
        yield fault(FaultKind.DELTA, id, problem, ledger.runs_of_checkpoint(id))
    for (id,) in list(ledger.rows(_LOST_COMMITS)):
        yield fault(FaultKind.FILE_COMMIT, id, f"file commit {id!r} is missing", ledger.runs_of_commit(id))
    for id, run, head_id in ledger.rows(_LOST_HEADS):
        yield fault(FaultKind.BRANCH, id, f"branch {id!r} points at checkpoint {head_id!r}, which is gone", (run,))
    for id, run, head_id in ledger.rows(_FOREIGN_HEADS):
        problem = f"branch {id!r} points at checkpoint {head_id!r} of another run, from which it was not forked"
        yield fault(FaultKind.BRANCH, id, problem, (run,))
    for id, run, head_id, child_id in ledger.rows(_HEADS_GONE_BACK):
        problem = (
            f"branch {id!r} points at checkpoint {head_id!r}, but {child_id!r} follows it and there was no rollback"
        )
        yield fault(FaultKind.BRANCH, id, problem, (run,))
    for id, run, checkpoint_id in ledger.rows(_LOST_STEPS):
        problem = f"node run {id!r} refers to checkpoint {checkpoint_id!r}, which is missing"
        yield fault(FaultKind.NODE_RUN, id, problem, (run,))
    for run, branch_id in ledger.rows(_LOST_BRANCHES):
        yield fault(FaultKind.BRANCH, branch_id, f"branch {branch_id!r} of run {run!r} is missing", (run,))
    for (run,) in ledger.rows(_LOST_RUNS):
        yield fault(FaultKind.RUN, run, f"run {run!r} is missing, but its checkpoints exist", (run,))


def cut_streams(ledger: Ledger) -> Iterator[Fault]:
    """Yield streams that are cut off: the rows of the run hold more than its events record."""
    cut = {
        run: f"no event records its step to checkpoint {checkpoint_id!r}"
        for run, checkpoint_id in ledger.rows(_UNTOLD_STEPS)
    }
    cut |= {run: f"no event records that it is {status}" for run, status in ledger.rows(_UNTOLD_ENDS) if run not in cut}
    for run, why in cut.items():
        (last,) = next(ledger.rows("SELECT sequence FROM stream_end WHERE stream = ?", run), (0,))
        after = last + 1
        yield event_fault(run, after, f"the last events of {run!r} are missing, from event {after}: {why}")
