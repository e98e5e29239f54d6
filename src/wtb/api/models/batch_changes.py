"""Batches that callers start, and evaluations."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from wtb.api.models.base import AnswerModel, RequestModel
from wtb.api.models.commands import CommandAnswer
from wtb.api.models.figures import PlainText
from wtb.api.models.problems import Problem


class KeyedEvaluator(RequestModel):
    """A built-in evaluator that scores one key of the state."""

    name: str = Field(max_length=200, examples=["exact_match"])
    key: str = Field(max_length=200, examples=["answer"])


class CaseRequest(RequestModel):
    """One input and what is expected, both as tagged JSON."""

    id: str | None = Field(default=None, max_length=200, examples=["c1"])
    input: dict[str, Any]
    expected: Any = None
    tags: list[str] | None = None
    cluster: str | None = None


class BatchOptions(RequestModel):
    """How an inline batch runs; the names are those of `wtb.BatchTest`."""

    variants: str | list[dict[str, str]] | None = Field(default=None, examples=["one_at_a_time"])
    baseline: dict[str, str] | None = None
    repeats: int | None = Field(default=None, ge=1, le=1_000)
    output: str | list[str] | None = None
    weights: dict[str, float] | None = None
    primary: str | None = None
    workers: int | None = Field(default=None, ge=1, le=64)
    runner: Literal["threads", "processes"] | None = None
    budget: dict[str, float] | None = Field(default=None, examples=[{"usd": 5}])
    retries: int | None = Field(default=None, ge=0, le=100)
    job_timeout_s: float | None = Field(default=None, gt=0)
    share: bool | None = None
    seed: int | None = None
    external: Literal["run", "reverse", "refuse"] | None = None


Evaluators = list[str | KeyedEvaluator]


class BatchRequest(RequestModel):
    """A batch that the server is configured with, by its name; or cases over a served workflow."""

    batch: str | None = Field(default=None, max_length=500, description="The name of a configured batch.")
    workflow: str | None = Field(default=None, max_length=500, description="The workflow of inline cases.")
    name: str | None = Field(default=None, max_length=200, description="The name of a batch with inline cases.")
    cases: list[CaseRequest] | None = Field(default=None, max_length=10_000)
    evaluators: Evaluators | None = Field(default=None, max_length=100, examples=[["latency_s"]])
    options: BatchOptions | None = None
    only: list[str] | None = Field(default=None, description="Only these combinations.", examples=[["answer=long"]])

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        inline = (self.workflow, self.name, self.cases, self.evaluators, self.options)
        if self.batch is not None and any(each is not None for each in inline):
            raise ValueError("give either `batch`, or `workflow` with `cases`")
        if self.batch is None and (self.workflow is None or not self.cases):
            raise ValueError("give `batch`, the name of a configured batch, or `workflow` with `cases`")
        return self

    def given(self) -> dict[str, Any]:
        """Return what was asked for, as plain JSON."""
        return self.model_dump(mode="json", exclude_none=True)


class BatchTestAnswer(AnswerModel):
    """A batch that the server is configured with."""

    name: PlainText | None = Field(description="What `batch` names; null if it cannot be loaded.", examples=["nightly"])
    workflow: PlainText | None
    problem: Problem | None = Field(default=None, description="Why it cannot be loaded.")


class BatchResultRow(AnswerModel):
    """How a batch ended that a command ran."""

    id: str
    name: str
    status: str
    completed: int
    failed: int
    left: int


class BatchChange(AnswerModel):
    """The command that runs a batch, and once it has ended how the batch ended."""

    command: CommandAnswer
    batch: BatchResultRow | None = None


class NodeRunCounts(AnswerModel):
    """Node runs, counted as if every job visited every node once."""

    kept: int
    shared: int
    executed: int


class PlanRow(AnswerModel):
    """What a batch would do."""

    jobs: int
    kept: int
    scored: int
    run: int
    node_runs: NodeRunCounts
    changes: dict[str, list[str]] = Field(description="What has changed since the last run, by node: it runs again.")
    outside: dict[str, list[str]] = Field(
        default={}, description="Nodes that used the network or other programs: kept results may be outdated."
    )
    external: list[str]


class PlanAnswer(AnswerModel):
    """The command that plans a batch, and once it has ended the plan."""

    command: CommandAnswer
    plan: PlanRow | None = None


class EvaluationRequest(RequestModel):
    """Which evaluators to run over finished runs, or over all runs of a batch."""

    evaluators: Evaluators = Field(min_length=1, max_length=100, examples=[["latency_s"]])
    runs: list[str] | None = Field(default=None, min_length=1, max_length=1_000)
    batch: str | None = Field(default=None, max_length=500)
    expected: Any = Field(default=None, description="What the runs should have given, as tagged JSON.")

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.runs is None) == (self.batch is None):
            raise ValueError("give either `runs` or `batch`")
        if self.batch is not None and self.expected is not None:
            raise ValueError("the cases of a batch say what is expected; leave `expected` out")
        return self


class EvaluationAnswer(AnswerModel):
    """The command that evaluates, and once it has ended the scores by run."""

    command: CommandAnswer
    scores: dict[str, dict[str, Any]] | None = None
