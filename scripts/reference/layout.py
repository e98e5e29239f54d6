"""The layout of the Python API page: its sections, the classes in them, and their members by task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import wtb
import wtb.langgraph
from wtb.application.batches.forecast import ExternalTool, Forecast
from wtb.application.queries.batch_data import MatrixRow
from wtb.application.queries.views import CheckpointView, RunTimes, RunView, WorkflowView
from wtb.batch_results import CaseText, FlakyCase, JobResult
from wtb.domain.batch import Baseline, Batch
from wtb.domain.batch_record import BatchRecord
from wtb.domain.checkpoint import Checkpoint
from wtb.domain.diff import CheckpointDiff
from wtb.domain.evaluation import ScoreTable
from wtb.domain.events import RecordedEvent
from wtb.domain.execution import Branch, Execution, Failure, Pause
from wtb.domain.history import ExecutionHistory
from wtb.domain.job_origin import JobOrigin
from wtb.domain.line_figures import LineFigures
from wtb.domain.parity import ParityDifference, ParityReport
from wtb.domain.replay import Difference, ReplayReport
from wtb.domain.rollback import RollbackPlan
from wtb.domain.run_scores import RunScore, RunScores
from wtb.domain.spending import Spent
from wtb.domain.statistics.agreement import Agreement
from wtb.domain.statistics.comparisons import Comparison, NeededCases, Summary
from wtb.domain.statistics.effects import VariantEffect, VariantEffects
from wtb.domain.statistics.gate import Gate
from wtb.domain.statistics.verdicts import Family, Verdict
from wtb.domain.summary import RunSummary
from wtb.domain.tools import ToolCall
from wtb.domain.tree import HistoryTree
from wtb.gates import GateResult
from wtb.streams import RunStream

START = """# Python API

<!-- `make reference` makes this page from signatures and docstrings: change those, not this page. -->

Everything public is in `wtb`; what needs LangGraph is in `wtb.langgraph`. Public names change only with an entry in the
changelog. Other modules may change without notice. In a terminal, `help(wtb.Bench)` shows the same texts.
"""


@dataclass(frozen=True, kw_only=True)
class Described:
    """A class whose members are grouped by task; `called` is the usual name of a variable that holds one."""

    cls: type
    called: str
    groups: Mapping[str, tuple[str, ...]]
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Attributes that have no docstring in the class, each with its text."""
    beside: tuple[str, ...] = ()
    """Members for other parts of WTB, which the page leaves out."""
    is_made: bool = True
    """Whether users create objects of it themselves."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading with a text, then a table of names, calls with their signatures, and classes."""

    title: str
    text: str
    names: Mapping[str, str] = field(default_factory=dict)
    """Values and classes without a signature, each with its text; an empty text stands for the docstring."""
    calls: tuple[str, ...] = ()
    classes: tuple[Described, ...] = ()
    results: Mapping[type, tuple[str, ...]] = field(default_factory=dict)
    """Classes that calls return, with the members that matter."""


_WORKFLOW = Described(
    cls=wtb.Workflow,
    called="flow",
    attributes={
        "name": "The name of the workflow.",
        "version": "Its version, as text.",
        "description": "A text about it.",
        "metadata": "Values of your own, stored with it.",
        "break_before": "Every run pauses before these nodes.",
        "break_after": "Every run pauses after these nodes.",
        "imports": "Modules to import before it is read from data: they register the tools that its nodes name.",
        "origin": "The object you wrote: this workflow, or a graph of another library.",
        "source": "Where other processes can load it (`file.py:flow`); None if it was not loaded.",
    },
    groups={
        "Nodes and edges": ("node", "add_node", "edge", "reducer", "depends_on"),
        "Variants": ("variant", "add_variant", "variants", "deactivate", "activate"),
        "Mocks": ("mocked", "mocked_tools"),
        "As data": ("to_dict", "from_dict", "definition"),
    },
    beside=("given",),
)
_CONTEXT = Described(
    cls=wtb.Context,
    called="ctx",
    is_made=False,
    attributes={"seed": "A number that stays the same whenever this visit of the node is tried again."},
    groups={
        "Call and record": ("tool", "atool", "step", "astep"),
        "Files, checkpoints and people": ("workspace", "checkpoint", "acheckpoint", "ask"),
        "Limits": ("limit",),
        "Report and configure": ("emit", "log", "usage", "config", "run", "rng"),
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
        "Run": ("run", "create", "resume", "stream"),
        "Find runs": ("get", "view", "list_runs", "list_executions", "list_workflows", "neglect"),
        "Batches": (
            "batch",
            "plan",
            "parity",
            "evaluate",
            "get_batch",
            "list_batches",
            "batch_status",
            "cancel_batch",
            "delete_batch",
        ),
        "Baselines and gates": ("set_baseline", "get_baseline", "list_baselines", "delete_baseline", "gate"),
        "Listen and close": ("subscribe", "events", "close"),
        "In async programs": ("arun", "aresume", "astream", "abatch", "aevaluate"),
    },
    beside=("services",),
)
_RUN = Described(
    cls=wtb.Run,
    called="run",
    is_made=False,
    attributes={"id": "The id of the run; every process can find the run by it."},
    groups={
        "Status and state": ("view", "status", "state", "error", "waiting", "usage", "spent", "scores", "execution"),
        "Continue, pause, stop": ("resume", "pause", "stop"),
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
_STREAM = Described(
    cls=RunStream,
    called="stream",
    is_made=False,
    attributes={"id": "The id of the run, even before it begins."},
    groups={"After the loop": ("run", "aclose")},
)
_HISTORY = Described(
    cls=ExecutionHistory,
    called="run.history",
    is_made=False,
    attributes={
        "checkpoints": "The checkpoints of all branches; for a fork, also those that lead to it.",
        "branches": "The branches, in the order they were made.",
        "node_runs": "Every start of a node.",
    },
    groups={
        "Path": ("path", "visits", "completed_nodes", "boundaries", "runs"),
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
_TEST = Described(cls=wtb.BatchTest, called="test", groups={"Check it": ("plan",)})
_RESULT = Described(
    cls=wtb.BatchResult,
    called="result",
    is_made=False,
    attributes={
        "batch": "The record of the batch: its name, workflow, plan and creation time.",
        "spent": "Money, tokens and seconds that the batch has used, over all the times it ran.",
    },
    groups={
        "Batch": ("id", "status", "left", "baseline", "combinations", "cases", "clusters"),
        "Metrics": ("metrics", "shown_metrics", "primary", "weights"),
        "Verdicts": ("matrix", "compare", "effects", "pareto", "weighted", "notes"),
        "Case by case": ("results", "dead_letters", "case_texts", "different", "spreads", "flaky", "table"),
        "Tags": ("tags", "tagged", "means_by_tag"),
        "Judges": ("agreement",),
        "Work and cost": (
            "sharing",
            "not_taken_back",
            "judging",
            "outside",
            "unpriced",
            "crowding",
            "quicker_in_processes",
            "is_short",
            "limits",
            "measured_apart",
        ),
        "Reports and export": ("report", "rows", "to_csv", "to_pandas"),
    },
    beside=("overview",),
)
_SAVER = Described(
    cls=wtb.langgraph.Saver,
    called="saver",
    groups={"Open and close": ("setup", "close")},
)

_CLIENT = Described(
    cls=wtb.Client,
    called="client",
    attributes={"url": "The address of the server."},
    groups={
        "Workflows": ("list_workflows", "workflow", "graph", "check"),
        "Run": (
            "run",
            "create",
            "start",
            "resume",
            "pause",
            "stop",
            "wait_for",
            "command",
            "cancel_command",
            "list_commands",
        ),
        "Find and read runs": (
            "list_runs",
            "get",
            "explain",
            "state",
            "history",
            "restore_points",
            "counts",
            "checkpoint_at",
            "diff",
            "diff_state",
            "files",
            "read_file",
            "branches",
            "tree",
            "timeline",
            "calls",
            "usage",
            "scores",
            "run_events",
            "variants",
        ),
        "Go back and branch": (
            "rollback",
            "redo",
            "continue_rollback",
            "abandon_rollback",
            "fork",
            "checkpoint",
            "delete",
            "delete_checkpoint",
        ),
        "Batches": (
            "batch",
            "start_batch",
            "plan",
            "resume_batch",
            "retry_batch",
            "list_batch_tests",
            "list_batches",
            "batch_status",
            "matrix",
            "grid",
            "results",
            "case",
            "compare",
            "effects",
            "pareto",
            "report",
            "cancel_batch",
            "delete_batch",
            "evaluate",
        ),
        "Baselines and gates": ("set_baseline", "get_baseline", "list_baselines", "delete_baseline", "gate"),
        "Events": ("events", "read_events", "feed_health", "audit", "audit_summary", "tool_use", "verify_log"),
        "Upkeep and webhooks": (
            "prune",
            "doctor",
            "check_store",
            "list_background_jobs",
            "run_background_job",
            "list_webhooks",
            "webhook",
            "create_webhook",
            "delete_webhook",
            "test_webhook",
            "deliveries",
            "retry_delivery",
        ),
        "The server and its tokens": (
            "version",
            "ready",
            "whoami",
            "list_tokens",
            "create_token",
            "revoke_token",
            "close",
        ),
    },
)
SECTIONS = (
    Section(
        title="Build a workflow",
        text="Guides: [Running workflows](running.md), and for variants [Batch tests](batches.md#run-a-batch).",
        names={
            "END": 'The target of an edge that ends the run: `flow.edge("answer", wtb.END)`.',
            "DELETE": 'Removes a key from the state: return `{"key": wtb.DELETE}` from a node.',
            "append": "",
            "merge": "",
            "add": "",
        },
        classes=(_WORKFLOW,),
        calls=("RetryPolicy", "EnvironmentConfig"),
    ),
    Section(
        title="What a state holds",
        text="[What a state can hold](store.md#what-a-state-can-hold) lists all types that can be stored.",
        calls=("serialisable", "Secret"),
    ),
    Section(
        title="Tools",
        text="Guides: [Tools](running.md#tools), and for undoing their calls [Time travel](time-travel.md#rollback).",
        calls=("tool", "reversible", "workspace"),
    ),
    Section(
        title="In a node: ctx",
        text="A node that takes a second argument gets a `wtb.Context`. Its calls are recorded: a node that is tried "
        "again, or a run that continues after a crash, does [nothing twice](running.md#tools).",
        classes=(_CONTEXT,),
    ),
    Section(
        title="Run, look, go back",
        text="Guides: [Running workflows](running.md), [Time travel](time-travel.md). A `target` is a checkpoint. Give "
        "a step number, a node (its latest visit), `node#2` (its second visit), the name of a checkpoint, its id, or "
        "the beginning of its id.",
        classes=(_BENCH, _RUN, _STREAM, _HISTORY),
    ),
    Section(
        title="Compare versions",
        text="Guides: [Batch tests](batches.md), [How a verdict is made](verdicts.md), [Reports](reports.md).",
        calls=("Resources", "Limit"),
        classes=(_TEST, _RESULT),
    ),
    Section(
        title="Evaluators",
        text="Each evaluator scores one metric. Those with a `key` compare a value in the final state with the one "
        "that the case expects. `key` is a key, a path such as `messages.-1.content`, or a function of the context. If "
        "the case expects a mapping, `expected_key` picks the value in it. [Write your own]"
        "(evaluators.md#write-your-own) as a function of the context, or as a class with `evaluate(context)`. The "
        "context has `case`, `expected`, `state`, `latency_s`, `steps`, `usage` and `tool_errors`.",
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
                "Judge",
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
        text="These are in `wtb.langgraph`, which needs the extra `[langgraph]`. Guides: [LangGraph "
        "graphs](langgraph-graphs.md), [A checkpointer for LangGraph](langgraph.md).",
        names={
            "langgraph.GraphWorkflow": "",
            "langgraph.Imported": "The result of an import: how many `threads` and `checkpoints` were copied, and the "
            "threads that were `present` before and stay as they are.",
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
            "langgraph.node_of",
        ),
        classes=(_SAVER,),
    ),
    Section(
        title="Returned values",
        text="Calls return these. They are snapshots: they do not change.",
        results={
            Execution: (
                "id",
                "workflow_name",
                "status",
                "failure",
                "pause",
                "degraded",
                "options",
                "metadata",
                "created_by",
                "created_at",
                "updated_at",
            ),
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
            Failure: ("type", "message", "traceback", "node", "visit", "input_checkpoint_id"),
            ToolCall: ("tool", "arguments", "status", "result", "error", "effects", "kind", "started_at", "ended_at"),
            RollbackPlan: ("target", "nodes", "checkpoints", "reverse", "irreversible", "kept", "files", "to_dict"),
            HistoryTree: ("lines", "to_dict"),
            CheckpointDiff: ("old", "new", "state", "files", "calls", "counts", "to_dict"),
            ReplayReport: ("same", "differences", "steps"),
            Difference: ("step", "nodes", "aspect", "key", "recorded", "replayed", "error"),
            RunSummary: ("line", "types", "severities", "tools", "nodes"),
            LineFigures: ("steps", "latency_s", "usage", "tool_errors"),
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
                "scores",
                "rollback",
                "notes",
                "times",
                "current_nodes",
                "origin",
                "batch_name",
            ),
            JobOrigin: ("batch_id", "combination", "case_id", "repeat", "is_fork"),
            RunScores: ("all",),
            RunScore: ("metric", "score", "error", "checkpoint_id", "fingerprint", "created_by", "created_at"),
            RunTimes: ("started_at", "paused_at", "ended_at", "duration"),
            CheckpointView: ("checkpoint", "state", "files"),
            WorkflowView: ("name", "versions", "definitions", "runs", "first_run_at", "last_run_at"),
            CaseText: ("input", "expected", "tags"),
            FlakyCase: ("case_id", "combination", "metrics", "node", "runs"),
            JobResult: (
                "combination",
                "case_id",
                "repeat",
                "status",
                "output",
                "output_size",
                "scores",
                "error",
                "latency_s",
                "usage",
                "run",
                "run_id",
                "state",
            ),
            ParityReport: ("is_equal", "differences", "jobs", "batches", "took_s"),
            ParityDifference: ("combination", "case", "repeat", "runners", "what", "detail"),
            ScoreTable: ("metric", "combinations", "cases", "clusters", "case_means", "failed"),
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
            VariantEffects: (
                "metric",
                "main",
                "interactions",
                "confounded",
                "is_complete",
                "nodes",
                "ranked",
                "of",
                "sentence",
            ),
            VariantEffect: (
                "name",
                "factors",
                "difference",
                "interval",
                "p_value",
                "is_shown",
                "gain",
                "units",
                "means",
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
            Baseline: ("name", "combination", "workflow_name", "record", "results", "batch_id", "created_at"),
            Batch: ("id", "name", "workflow_name", "status", "record", "created_at", "updated_at"),
            BatchRecord: ("combinations", "baseline", "cases", "repeats", "metrics", "weights", "primary", "workers"),
            Forecast: (
                "jobs",
                "kept",
                "scored",
                "run",
                "node_runs_kept",
                "node_runs_shared",
                "node_runs_executed",
                "changes",
                "coarse",
                "changing",
                "outside",
                "external",
            ),
            ExternalTool: ("name", "answer", "jobs", "earlier_calls", "earlier_jobs"),
            Spent: ("usd", "tokens", "s"),
            Agreement: ("scores", "unlabelled", "failed", "exact", "mean_difference", "mean_error", "kappa"),
        },
    ),
    Section(
        title="Errors",
        text="Catch `wtb.WTBError` to catch everything that WTB raises on purpose. Each message says what happened, to "
        "what, and what to do.",
        names=dict.fromkeys(
            (
                "WTBError",
                "InvalidInput",
                "InvalidWorkflow",
                "StateNotSerialisable",
                "NotFound",
                "CheckpointNotFound",
                "CircuitOpen",
                "Conflict",
                "AlreadyExists",
                "EnvironmentFailed",
                "OutOfMemory",
                "StorageError",
                "DamagedData",
            ),
            "",
        ),
    ),
    Section(
        title="Use a server",
        text="Guide: [The client](client.md). It needs the extra `client`.",
        classes=(_CLIENT,),
        calls=("AsyncClient",),
    ),
    Section(
        title="Settings and tests",
        text="To [write a backend](backends.md), use `wtb.testing`: it has the contract tests of all ports, and fakes.",
        names={"Settings": "All settings; pass them to `wtb.Bench(…)` by name. See [Settings](settings.md)."},
    ),
)
"""The whole page, in order."""

PUBLIC: Mapping[str, Any] = {
    **{name: getattr(wtb, name) for name in wtb.__all__},
    **{f"langgraph.{name}": getattr(wtb.langgraph, name) for name in wtb.langgraph.__all__},
}
"""Every public name, as it follows `wtb.`"""
