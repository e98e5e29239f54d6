"""How the page of the Python API is laid out: sections, the classes in them, and their members by task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import wtb
import wtb.langgraph
from wtb.application.batches.forecast import Forecast
from wtb.application.queries.views import CheckpointView, RunTimes, RunView, WorkflowView
from wtb.batch_results import JobResult, MatrixRow
from wtb.domain.batch import Baseline, Batch
from wtb.domain.batch_record import BatchRecord
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.diff import CheckpointDiff
from wtb.domain.events import RecordedEvent
from wtb.domain.execution import Branch, Failure, Pause
from wtb.domain.history import ExecutionHistory
from wtb.domain.replay import Difference, ReplayReport
from wtb.domain.rollback import RollbackPlan
from wtb.domain.spending import Spent
from wtb.domain.statistics.comparisons import Comparison, NeededCases, Summary
from wtb.domain.statistics.gate import Gate
from wtb.domain.statistics.verdicts import Family, Verdict
from wtb.domain.summary import RunSummary
from wtb.domain.tools import ToolCall
from wtb.gates import GateResult

START = """# Python API

<!-- Made by `make reference` of the signatures and docstrings: change those, not this page. -->

`import wtb` has all that is public, and `import wtb.langgraph` what belongs to LangGraph. Other modules may change
without notice; a public name changes only with an entry in the changelog. `help(wtb.Bench)` says the same in a
terminal.
"""


@dataclass(frozen=True, kw_only=True)
class Described:
    """A class whose members are described by task; `called` is what a program usually calls an object of it."""

    cls: type
    called: str
    groups: Mapping[str, tuple[str, ...]]
    attributes: Mapping[str, str] = field(default_factory=dict)
    """What objects have beyond what the class says, with a line each."""
    beside: tuple[str, ...] = ()
    """Members that are there for other parts of WTB, and not on the page."""
    is_made: bool = True
    """Whether a program makes objects of it, or is given them."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with a text, and below it names in a table, calls with their signatures, and classes."""

    title: str
    text: str
    names: Mapping[str, str] = field(default_factory=dict)
    """Values, or classes of which the signature says little, with what they are; an empty text: the docstring."""
    calls: tuple[str, ...] = ()
    classes: tuple[Described, ...] = ()
    results: Mapping[type, tuple[str, ...]] = field(default_factory=dict)
    """What other calls return, with the members that matter."""


_WORKFLOW = Described(
    cls=wtb.Workflow,
    called="flow",
    attributes={
        "name": "What the workflow is called.",
        "version": "Its version, as text.",
        "description": "What it is for.",
        "metadata": "Whatever you want to keep with it.",
        "break_before": "Nodes before which every run pauses.",
        "break_after": "Nodes after which every run pauses.",
        "origin": "What you wrote: the workflow itself, or the graph of another library.",
        "source": "Where it was loaded from (`file.py:flow`), for other processes; None when it was not.",
    },
    groups={
        "Nodes and edges": ("node", "add_node", "edge", "reducer", "depends_on"),
        "Variants": ("variant", "add_variant", "variants", "deactivate", "activate"),
        "Mocks": ("mocked",),
        "As data": ("to_dict", "from_dict", "definition"),
    },
    beside=("given",),
)
_CONTEXT = Described(
    cls=wtb.Context,
    called="ctx",
    is_made=False,
    attributes={"seed": "A number that is the same whenever this visit of the node is tried again."},
    groups={
        "Call and record": ("tool", "atool", "step", "astep"),
        "Files, checkpoints and people": ("workspace", "checkpoint", "ask"),
        "Report and configure": ("usage", "log", "config", "run", "rng"),
    },
    beside=(
        "answers",
        "arecorded",
        "inside",
        "is_of_graph",
        "let_calls_end",
        "pass_questions",
        "recorded",
        "saw_begin",
        "saw_end",
        "saw_failure",
    ),
)
_BENCH = Described(
    cls=wtb.Bench,
    called="bench",
    groups={
        "Run": ("run", "create", "resume"),
        "Find runs": ("get", "view", "list_runs", "list_executions", "list_workflows", "neglect"),
        "Batches": ("batch", "plan", "evaluate", "get_batch", "list_batches", "cancel_batch", "delete_batch"),
        "Baselines and gates": ("set_baseline", "list_baselines", "delete_baseline", "gate"),
        "Listen and close": ("subscribe", "events", "close"),
    },
    beside=("services",),
)
_RUN = Described(
    cls=wtb.Run,
    called="run",
    is_made=False,
    attributes={"id": "Its id, by which every process finds it."},
    groups={
        "How it stands": ("view", "status", "state", "error", "waiting", "usage", "spent", "execution"),
        "Go on, pause, stop": ("resume", "pause", "stop"),
        "What it did": (
            "at",
            "history",
            "tree",
            "branches",
            "checkpoints",
            "calls",
            "rollbacks",
            "returned",
            "diff",
            "events",
            "all_events",
            "summary",
            "replay",
        ),
        "Files": ("files", "export", "workspace"),
        "Go back and branch": (
            "rollback",
            "continue_rollback",
            "abandon_rollback",
            "redo",
            "fork",
            "forked",
            "checkpoint",
            "delete",
        ),
    },
)
_HISTORY = Described(
    cls=ExecutionHistory,
    called="run.history",
    is_made=False,
    attributes={
        "checkpoints": "Its checkpoints, of all branches; of a fork also those that lead to it.",
        "branches": "Its branches, in the order of their making.",
        "node_runs": "Every start of a node.",
    },
    groups={
        "The way it took": ("path", "visits", "completed_nodes", "boundaries", "runs"),
        "Checkpoints": (
            "latest",
            "lineage",
            "lineage_of",
            "resolve",
            "by_node",
            "by_name",
            "rollback_targets",
            "branch",
        ),
    },
    beside=("builds_on", "is_inherited", "original"),
)
_TEST = Described(cls=wtb.BatchTest, called="test", groups={"Before it runs": ("plan",)})
_RESULT = Described(
    cls=wtb.BatchResult,
    called="result",
    is_made=False,
    attributes={
        "batch": "The record of the batch: its name, workflow, what it runs, and when it was made.",
        "spent": "Money, tokens and seconds that the batch has taken, over all the times that it was run.",
    },
    groups={
        "What was run": ("id", "status", "left", "baseline", "combinations", "cases", "clusters"),
        "What was measured": ("metrics", "shown_metrics", "primary", "weights"),
        "Which is better": ("matrix", "compare", "pareto", "weighted", "notes"),
        "Case by case": ("results", "different", "table"),
        "What it took": ("sharing", "outside", "unpriced", "crowding", "measured_apart"),
        "Take it elsewhere": ("report", "rows", "to_csv", "to_pandas"),
    },
)
_SAVER = Described(
    cls=wtb.langgraph.Saver,
    called="saver",
    groups={"As any checkpointer": ("setup", "close")},
)

SECTIONS = (
    Section(
        title="Build a workflow",
        text="The guide is [Running workflows](running.md); that to variants is [Batch tests](batches.md#run-a-batch).",
        names={
            "END": "The target of an edge that ends the run.",
            "DELETE": 'A node returns `{"key": wtb.DELETE}` to remove a key.',
            "append": "",
            "merge": "",
            "add": "",
        },
        classes=(_WORKFLOW,),
        calls=("RetryPolicy",),
    ),
    Section(
        title="What a state holds",
        text="What can be in a state is told in [The store](store.md#what-a-state-can-hold).",
        calls=("serialisable", "Secret"),
    ),
    Section(
        title="Tools",
        text="The guide is [Tools](running.md#tools); what a rollback does with them is told in [Time "
        "travel](time-travel.md#rollback).",
        calls=("tool", "reversible", "workspace"),
    ),
    Section(
        title="In a node: ctx",
        text="A node that takes a second argument is given these. Calls are recorded, so that a node that is tried"
        " again, or a run that "
        "goes on after a crash, does [nothing twice](running.md#tools).",
        classes=(_CONTEXT,),
    ),
    Section(
        title="Run, look, go back",
        text="The guides are [Running workflows](running.md) and [Time travel](time-travel.md). Wherever a "
        "`target` is taken it is a step "
        "number, a node (its latest visit), `node#2` (its second visit), the name of a checkpoint, or its id "
        "or the beginning of it.",
        classes=(_BENCH, _RUN, _HISTORY),
    ),
    Section(
        title="Compare versions",
        text="The guides are [Batch tests](batches.md), [How a verdict is made](verdicts.md) and "
        "[Reports](reports.md).",
        classes=(_TEST, _RESULT),
    ),
    Section(
        title="Evaluators",
        text="Each gives a metric of its `name`. Those that take a `key` compare a value of the final state with what "
        "the case expects: `key` is a key, a path as `messages.-1.content` or a function of the context; "
        "`expected_key` finds the expected value in a mapping. [Write your own](batches.md#evaluators) as a function "
        "of the context or as a class with `evaluate(context)`; the context has `case`, `expected`, `state`, "
        "`latency_s`, `steps`, `usage` and `tool_errors`.",
        calls=("evaluator",),
        names=dict.fromkeys(
            (
                "EvaluationContext",
                "ExactMatch",
                "Contains",
                "TokenF1",
                "NumericMatch",
                "RegexMatch",
                "FitsSchema",
                "Latency",
                "Cost",
                "Tokens",
                "Steps",
                "ToolErrors",
            ),
            "",
        ),
    ),
    Section(
        title="LangGraph",
        text="In `wtb.langgraph`, which needs the extra `[langgraph]`. The guides are [LangGraph "
        "graphs](langgraph-graphs.md) and "
        "[A checkpointer for LangGraph](langgraph.md).",
        names={
            "langgraph.GraphWorkflow": "",
            "langgraph.Imported": "What came of an import: `threads`, `checkpoints`, `present`.",
        },
        calls=(
            "langgraph.workflow",
            "langgraph.context",
            "langgraph.workspace",
            "langgraph.recorded",
            "langgraph.reversible",
            "langgraph.history",
            "langgraph.import_threads",
            "langgraph.last_message",
        ),
        classes=(_SAVER,),
    ),
    Section(
        title="What you are given",
        text="Values that calls return; none of them changes any more.",
        results={
            Checkpoint: (
                "id",
                "step",
                "node",
                "visit",
                "name",
                "description",
                "trigger",
                "next_nodes",
                "created_at",
                "size_bytes",
            ),
            Branch: ("id", "name", "head_id", "forked_from_id", "created_at"),
            Pause: ("reason", "node", "question"),
            Failure: ("type", "message", "traceback", "node", "visit"),
            ToolCall: ("tool", "arguments", "status", "result", "error", "effects", "kind", "started_at", "ended_at"),
            RollbackPlan: ("target", "nodes", "checkpoints", "reverse", "irreversible", "kept", "files", "to_dict"),
            CheckpointDiff: ("old", "new", "state", "files", "calls", "counts", "to_dict"),
            ReplayReport: ("same", "differences", "steps"),
            Difference: ("step", "nodes", "aspect", "key", "recorded", "replayed", "error"),
            RunSummary: ("types", "severities", "tools", "nodes"),
            RecordedEvent: ("type", "at", "data", "position", "sequence"),
            RunView: (
                "id",
                "execution",
                "neglect",
                "branch",
                "branches",
                "head",
                "state",
                "counts",
                "files",
                "usage",
                "spent",
                "rollback",
                "notes",
                "times",
                "current_nodes",
            ),
            RunTimes: ("started_at", "paused_at", "ended_at", "duration"),
            CheckpointView: ("checkpoint", "state", "files"),
            WorkflowView: ("name", "versions", "definitions", "runs", "first_run_at", "last_run_at"),
            JobResult: (
                "combination",
                "case_id",
                "repeat",
                "status",
                "scores",
                "error",
                "latency_s",
                "usage",
                "run",
                "run_id",
                "state",
            ),
            MatrixRow: ("combination", "is_baseline", "summaries", "verdicts"),
            Summary: (
                "mean",
                "interval",
                "cases",
                "clusters",
                "repeats",
                "scored",
                "errors",
                "missing",
                "metric",
                "combination",
                "method",
            ),
            Verdict: ("finding", "reason", "comparison", "adjusted_p", "needed_cases", "family"),
            Family: ("is_primary", "metrics", "comparisons"),
            NeededCases: ("low", "about", "high"),
            Comparison: (
                "candidate",
                "baseline",
                "metric",
                "difference",
                "interval",
                "pairs",
                "dropped",
                "wins",
                "ties",
                "losses",
                "p_value",
                "effect_size",
            ),
            GateResult: ("gate", "comparison", "baseline", "lost", "apart"),
            Gate: (
                "outcome",
                "reason",
                "drop",
                "allowed",
                "is_share",
                "at_least",
                "at_most",
                "errors",
                "max_errors",
                "errors_p",
                "unfinished",
            ),
            Baseline: ("name", "combination", "batch_id", "created_at"),
            Batch: ("id", "name", "workflow_name", "status", "record", "created_at", "updated_at"),
            BatchRecord: ("combinations", "baseline", "cases", "repeats", "metrics", "weights", "primary", "workers"),
            Forecast: ("jobs", "kept", "scored", "run", "changes", "coarse", "changing", "outside"),
            Spent: ("usd", "tokens", "s"),
        },
    ),
    Section(
        title="Errors",
        text="`wtb.WTBError` catches everything that WTB raises on purpose; each message says what happened, to "
        "what, and what to do.",
        names=dict.fromkeys(
            (
                "WTBError",
                "InvalidInput",
                "InvalidWorkflow",
                "StateNotSerialisable",
                "NotFound",
                "CheckpointNotFound",
                "Conflict",
                "AlreadyExists",
                "StorageError",
                "DamagedData",
            ),
            "",
        ),
    ),
    Section(
        title="Settings and tests",
        text="`wtb.testing` has the contract suites of all ports, and fakes, for those who [write a "
        "backend](backends.md).",
        names={
            "Settings": "All settings with their values, as `wtb.Bench(…)` takes them: see [Settings](settings.md)."
        },
    ),
)
"""The whole page, in its order."""

PUBLIC: Mapping[str, Any] = {
    **{name: getattr(wtb, name) for name in wtb.__all__},
    **{f"langgraph.{name}": getattr(wtb.langgraph, name) for name in wtb.langgraph.__all__},
}
"""Every public name, as it is written after `wtb.`"""
