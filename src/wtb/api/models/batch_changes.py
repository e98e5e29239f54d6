"""Batches that callers start, and evaluations."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from wtb.api.models.base import AnswerModel, RequestModel, example
from wtb.api.models.commands import CommandAnswer
from wtb.api.models.figures import PlainText
from wtb.api.models.problems import Problem


class KeyedEvaluator(RequestModel):
    """A built-in evaluator that scores one key of the state."""

    name: str = Field(max_length=200, description="The name of the evaluator.", examples=["exact_match"])
    key: str = Field(max_length=200, description="The key of the state that it looks at.", examples=["answer"])


class CaseRequest(RequestModel):
    """One input and what is expected, both as tagged JSON."""

    id: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Results on one id are compared. Without one, WTB makes one of the input: the same each time.",
        examples=["c1"],
    )
    input: dict[str, Any] = Field(description="What the state begins with.", examples=[{"question": "Why?"}])
    expected: Any = Field(default=None, description="What evaluators compare with.")
    tags: list[str] | None = Field(default=None, description="Results are also shown for each tag.")
    cluster: str | None = Field(default=None, description="Cases of one cluster count as one in verdicts.")


class BatchOptions(RequestModel):
    """How an inline batch runs; the names are those of `wtb.BatchTest`."""

    variants: str | list[dict[str, str]] | None = Field(
        default=None,
        description="Which combinations to run: `all`, `one_at_a_time`, `pairwise`, `random:N`, or a list of them.",
        examples=["one_at_a_time"],
    )
    baseline: dict[str, str] | None = Field(
        default=None, description="The combination to compare with; by default the workflow as it is."
    )
    repeats: int | None = Field(
        default=None, ge=1, le=1_000, description="How many times each combination runs on each case."
    )
    output: str | list[str] | None = Field(
        default=None, description="The key of the state, or the keys, to show as the answer of a run."
    )
    weights: dict[str, float] | None = Field(
        default=None, description="Weights of metrics for an overall score.", examples=[{"exact_match": 2}]
    )
    primary: str | None = Field(default=None, description="The metric that decides who wins.")
    workers: int | None = Field(default=None, ge=1, le=64, description="How many jobs run at a time.")
    runner: Literal["threads", "processes"] | None = Field(default=None, description="What runs the jobs.")
    budget: dict[str, float] | None = Field(
        default=None, description="The most to use in all, of `usd`, `tokens` and `s`.", examples=[{"usd": 5}]
    )
    retries: int | None = Field(default=None, ge=0, le=100, description="How many more times a failed job is tried.")
    job_timeout_s: float | None = Field(default=None, gt=0, description="How many seconds a job may take.")
    share: bool | None = Field(
        default=None, description="`false`: share and keep nothing; run every node of every job."
    )
    seed: int | None = Field(default=None, description="The seed of the runs and of random combinations.")
    external: Literal["run", "reverse", "refuse"] | None = Field(
        default=None,
        description="Calls of external tools are made (`run`), made and taken back (`reverse`), or fail the job "
        "(`refuse`).",
    )


Evaluators = list[str | KeyedEvaluator]


class BatchRequest(RequestModel):
    """A batch that the server is configured with, by its name; or cases over a served workflow."""

    batch: str | None = Field(default=None, max_length=500, description="The name of a configured batch.")
    workflow: str | None = Field(default=None, max_length=500, description="The workflow of inline cases.")
    name: str | None = Field(default=None, max_length=200, description="The name of a batch with inline cases.")
    cases: list[CaseRequest] | None = Field(default=None, max_length=10_000, description="The inline cases.")
    evaluators: Evaluators | None = Field(
        default=None,
        max_length=100,
        description="What to measure: names, and with a `key` those that look at one key of the state.",
        examples=[["latency_s"]],
    )
    options: BatchOptions | None = Field(default=None, description="How the inline batch runs.")
    only: list[str] | None = Field(default=None, description="Only these combinations.", examples=[["answer=long"]])

    model_config = example(
        workflow="support",
        name="nightly",
        cases=[{"id": "c1", "input": {"question": "Why?"}, "expected": "Because"}],
        evaluators=[{"name": "exact_match", "key": "answer"}],
        options={"variants": "one_at_a_time", "repeats": 3},
    )

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        inline = (self.workflow, self.name, self.cases, self.evaluators, self.options)
        if self.batch is not None and any(each is not None for each in inline):
            raise ValueError("give either `batch`, or `workflow` with `cases`")
        if self.cases == []:
            raise ValueError("`cases` is empty; give at least one case")
        if self.batch is None and (self.workflow is None or self.cases is None):
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

    evaluators: Evaluators = Field(
        min_length=1, max_length=100, description="What to measure, as in a batch.", examples=[["latency_s"]]
    )
    runs: list[str] | None = Field(default=None, min_length=1, max_length=1_000, description="The ids of the runs.")
    batch: str | None = Field(default=None, max_length=500, description="Or a batch, by its id or name.")
    expected: Any = Field(default=None, description="What the runs should have given, as tagged JSON.")

    model_config = example(evaluators=["latency_s"], runs=["nightly-42"])

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        if (self.runs is None) == (self.batch is None):
            raise ValueError("give either `runs` or `batch`")
        if self.batch is not None and self.expected is not None:
            raise ValueError("the cases of a batch say what is expected; leave `expected` out")
        return self


class EvaluatedBatch(AnswerModel):
    """A batch that was scored; `…/results` and `…/matrix` show its scores."""

    id: str
    name: str
    metrics: list[str]


class EvaluationAnswer(AnswerModel):
    """The command that evaluates, and once it has ended the scores by run, or the batch that was scored."""

    command: CommandAnswer
    scores: dict[str, dict[str, Any]] | None = None
    batch: EvaluatedBatch | None = None
