"""Baselines, and gates that compare with them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Self

from pydantic import Field

from wtb.api.models.base import AnswerModel, RequestModel, example
from wtb.api.models.figures import Number, PlainText
from wtb.domain.batch import Baseline

if TYPE_CHECKING:
    from wtb.gates import GateResult


class BaselineAnswer(AnswerModel):
    """Saved scores of one combination."""

    name: PlainText = Field(examples=["main"])
    workflow: PlainText
    combination: PlainText
    batches: list[PlainText] = Field(description="The batches whose results it holds.")
    copies: list[PlainText] = Field(description="Batches that executed nothing and only repeat another one's results.")
    cases: int
    repeats: int
    results: int
    metrics: list[PlainText]
    created_at: datetime

    @classmethod
    def of(cls, baseline: Baseline) -> Self:
        """Return a baseline as an answer."""
        record = baseline.record
        return cls(
            name=baseline.name,
            workflow=baseline.workflow_name,
            combination=baseline.combination,
            batches=list(record.pooled),
            copies=list(record.copies),
            cases=len(record.cases),
            repeats=record.repeats,
            results=baseline.results,
            metrics=record.metric_names,
            created_at=baseline.created_at,
        )


class BaselineRequest(RequestModel):
    """Which results to save under a name."""

    name: str = Field(min_length=1, max_length=200, description="The name of the baseline.", examples=["main"])
    batches: list[str] = Field(
        min_length=1, max_length=100, description="Batches by id or name; their runs of a case count as its repeats."
    )
    combination: str | None = Field(
        default=None, max_length=500, description="By default the baseline of the batch.", examples=["answer=long"]
    )

    model_config = example(name="main", batches=["nightly"])


class GateRequest(RequestModel):
    """What to compare, and how much worse it may be."""

    batch: str = Field(
        min_length=1, max_length=500, description="The id of a batch, or its name.", examples=["support_qa"]
    )
    baseline: str = Field(min_length=1, max_length=500, description="The name of a baseline.", examples=["main"])
    metric: str = Field(min_length=1, max_length=500, description="A metric of both.", examples=["token_f1"])
    combination: str | None = Field(default=None, max_length=500, description="By default the batch's baseline.")
    max_drop: float | str = Field(
        default=0.0, description="In units of the metric, or in percent of the baseline.", examples=[0.02, "10%"]
    )
    max_errors: int = Field(default=0, ge=0, description="How many cases may fail that do not with the baseline.")
    non_inferior: bool = Field(default=False, description="Pass only with proof that the drop is smaller.")

    model_config = example(batch="nightly", baseline="main", metric="exact_match", max_drop=0.02)


class GateErrors(AnswerModel):
    """The cases that fail on one side or on both."""

    candidate_only: int
    baseline_only: int
    both: int
    allowed: int
    p_value: Number


class GateAnswer(AnswerModel):
    """Whether a combination has become worse than a baseline."""

    outcome: str = Field(description="`fine`, `regression` or `inconclusive`.", examples=["fine"])
    reason: str = Field(examples=["no_drop_shown"])
    text: PlainText = Field(description="The outcome, the reason and the figures in words, as `wtb gate` prints them.")
    baseline: PlainText
    candidate: PlainText
    metric: PlainText
    drop: Number
    allowed: Number
    is_share: bool = Field(description="Whether drops are shares of the baseline's score.")
    at_least: Number = Field(description="The true drop is at least this (95 %).")
    at_most: Number
    difference: Number
    cases: int
    dropped: int
    unfinished: int
    wins: int
    ties: int
    losses: int
    worse_on: list[PlainText] = Field(description="The cases that lost, largest loss first.")
    measured_apart: PlainText | None
    errors: GateErrors

    @classmethod
    def of(cls, found: GateResult) -> Self:
        """Return the result of a gate as an answer."""
        from wtb.gate_text import said  # with numpy and scipy behind it

        gate, compared = found.gate, found.comparison
        return cls(
            outcome=gate.outcome.value,
            reason=gate.reason.value,
            text=said(found),
            baseline=found.baseline.name,
            candidate=compared.candidate,
            metric=compared.metric.name,
            drop=gate.drop,
            allowed=gate.allowed,
            is_share=gate.is_share,
            at_least=gate.at_least,
            at_most=gate.at_most,
            difference=compared.difference,
            cases=compared.pairs,
            dropped=compared.dropped,
            unfinished=gate.unfinished,
            wins=compared.wins,
            ties=compared.ties,
            losses=compared.losses,
            worse_on=list(found.lost),
            measured_apart=found.apart,
            errors=GateErrors(
                candidate_only=gate.errors.candidate_only,
                baseline_only=gate.errors.baseline_only,
                both=gate.errors.both,
                allowed=gate.max_errors,
                p_value=gate.errors_p,
            ),
        )
