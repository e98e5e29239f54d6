"""EvaluationEngine: scores runs. If an evaluator raises or returns no finite number, that is recorded as a failure."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from wtb.application.dependencies.fingerprint import Fingerprint
from wtb.application.dependencies.walk import fingerprint
from wtb.application.judgements import Judgements
from wtb.application.runs.callers_loop import LoopGone
from wtb.application.runs.function_caller import NodeTimeout
from wtb.application.runs.run_figures import measured_history
from wtb.application.runs.run_limits import BATCH_LIMITS, LimitBlock, RunLimits
from wtb.application.runs.tracebacks import own_place
from wtb.domain.cases import Case, raise_faults
from wtb.domain.engine import Runs
from wtb.domain.errors import DatabaseAway, InvalidInput
from wtb.domain.evaluation import EvaluationContext, Evaluator, RunUsage, metric_of
from wtb.domain.figures import NOTHING, Price, Usage
from wtb.domain.ids import CheckpointId, ExecutionId
from wtb.domain.job_output import JobOutput, output_of
from wtb.domain.line_figures import LineFigures
from wtb.domain.model_endpoint import NO_ENDPOINT, ModelEndpoint
from wtb.domain.ports import Storage
from wtb.domain.secrets import Masker, text_of

_LONGEST = 100
"""The most characters that an error quotes of a value that is no score."""


Restore = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Returns a stored state with the objects that the nodes of its workflow see."""


class OutputReader(Protocol):
    """Reads the output of a run as the batch's `output=` says."""

    def read(self, context: EvaluationContext) -> Any:
        """Return the output. It raises whatever the user's function raises."""
        ...


@dataclass(frozen=True, kw_only=True)
class Scored:
    """The scores of a run by evaluator, `{"error": …}` for one that failed, and the names of those that gave a bool."""

    scores: Mapping[str, Any]
    bools: tuple[str, ...] = ()
    spent: Usage = NOTHING
    """What the evaluators themselves used; a stored score costs nothing."""
    paid: tuple[str, ...] = ()
    """The evaluators that reported usage."""

    @property
    def as_given(self) -> dict[str, Any]:
        """The scores as the evaluators gave them, with True and False instead of numbers."""
        return {name: bool(score) if name in self.bools else score for name, score in self.scores.items()}


class EvaluationEngine:
    """Reads what a run did, and lets evaluators score it.

    `restore` builds the objects of a stored state if the workflow that knows them is not at hand.
    """

    def __init__(
        self,
        storage: Storage,
        masker: Masker,
        runs: Runs,
        restore: Restore,
        *,
        judgements: Judgements,
        price: Price,
        endpoint: ModelEndpoint = NO_ENDPOINT,
        limits: RunLimits,
    ) -> None:
        self._limits = limits
        self._judgements = judgements
        self._price = price
        self._endpoint = endpoint
        self._storage = storage
        self._masker = masker
        self._runs = runs
        self.restore = restore

    def context(self, execution_id: ExecutionId, case: Case, restore: Restore | None = None) -> EvaluationContext:
        """Return the context of a run for evaluators, with the state as its nodes see it."""
        return self.head_context(execution_id, case, restore)[1]

    def head_context(
        self, execution_id: ExecutionId, case: Case, restore: Restore | None = None
    ) -> tuple[CheckpointId, EvaluationContext]:
        """Return the head of a run, and the context for evaluators there."""
        with self._storage.unit_of_work(readonly=True) as uow:
            history = measured_history(uow, execution_id)
            head_id = history.branch().head_id
            assert head_id is not None
            state = uow.checkpoints.load(head_id).state
        line = LineFigures.of(history)
        return head_id, EvaluationContext(
            case=case,
            state=(restore or self.restore)(state),
            latency_s=line.latency_s,
            steps=line.steps,
            usage=RunUsage({} if line.usage is NOTHING else line.usage.totals()),
            tool_errors=line.tool_errors,
            unpriced=line.usage.unpriced,
            endpoint=self._endpoint,
            limit=partial(LimitBlock, BATCH_LIMITS.get() or self._limits),
        )

    def with_input(self, case: Case, execution_id: ExecutionId, restore: Restore | None = None) -> Case:
        """Return a case with the input that its run began with, since a batch does not store inputs."""
        if case.input:
            return case
        with self._storage.unit_of_work(readonly=True) as uow:
            first = uow.checkpoints.list_infos(execution_id)[:1]
            begun = [uow.checkpoints.load(checkpoint.id).state for checkpoint in first if checkpoint.step == 0]
        return replace(case, input=(restore or self.restore)(begun[0])) if begun else case

    def scored(
        self, context: EvaluationContext, evaluators: Sequence[Evaluator], timeout_s: float | None = None
    ) -> Scored:
        """Return the score of each evaluator by its name; `{"error": …}` for one that failed or took too long."""
        used: dict[str, list[Usage]] = {}

        def given_by(evaluator: Evaluator) -> float | bool | dict[str, str]:
            def report(**reported: Any) -> None:
                used.setdefault(evaluator.name, []).append(Usage.reported(self._price, **reported))

            return self._given(replace(context, usage=RunUsage(context.usage, report)), evaluator, timeout_s)

        given = {evaluator.name: given_by(evaluator) for evaluator in evaluators}
        return Scored(
            scores={name: float(score) if isinstance(score, bool) else score for name, score in given.items()},
            bools=tuple(name for name, score in given.items() if isinstance(score, bool)),
            spent=sum((each for usages in used.values() for each in usages), NOTHING),
            paid=tuple(used),
        )

    def output(self, context: EvaluationContext, reader: OutputReader, made_by: str) -> JobOutput:
        """Return the output of a run as text, or the reason why it cannot be read; only an outage raises."""
        try:
            return output_of(reader.read(context), self._masker, made_by)
        except DatabaseAway:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  whatever the user's function raises is recorded
            text = f"no output: {type(error).__qualname__}: {text_of(error)}"
            return replace(output_of(text, self._masker, made_by), is_error=True)

    def _given(
        self, context: EvaluationContext, evaluator: Evaluator, timeout_s: float | None
    ) -> float | bool | dict[str, str]:
        """Return an evaluator's score: a finite number or a bool; or its error."""
        try:
            asked = getattr(evaluator, "asked", None)
            if asked is None:
                return self._evaluated(context, evaluator, timeout_s)
            made = partial(self._evaluated, context, evaluator, timeout_s)
            return self._judgements.made_once(evaluator, context.case.id, asked(context), made)
        except _NoScore as error:
            text = str(error)
        except DatabaseAway:  # it says nothing about the run
            raise
        except (Exception, SystemExit, LoopGone) as error:  # noqa: BLE001  whatever the user's evaluator raises is recorded
            place = own_place(error)
            text = self._masker.error(error) + (f" ({place})" if place else "")
        return {"error": self._masker.text(f"evaluator {evaluator.name}: {text}")}

    def _evaluated(self, context: EvaluationContext, evaluator: Evaluator, timeout_s: float | None) -> float | bool:
        run = partial(self._runs.run, evaluator.name, timeout_s=timeout_s)
        try:
            score = run(partial(evaluator.evaluate, context))
            if inspect.isawaitable(score):
                score = run(partial(_awaited, score))
        except NodeTimeout as error:
            raise _NoScore(f"it took longer than {timeout_s:g} s, the limit of job_timeout_s") from error
        return _checked(score)


class _NoScore(Exception):
    """An evaluator gave something that is no score."""


def _checked(score: Any) -> float | bool:
    if isinstance(score, bool) or type(score).__name__ in ("bool", "bool_"):  # numpy's bool
        return bool(score)
    try:
        number = float(score)
    except (TypeError, ValueError):
        raise _NoScore(f"it gave {_shortened(repr(score))}; return a number, True or False") from None
    if not math.isfinite(number):
        raise _NoScore(f"it gave {number}, which is not a score; return a finite number")
    return number


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def digests(evaluators: Sequence[Evaluator]) -> dict[str, str]:
    """Return a digest of each evaluator's code and settings, by name: with another digest it may score differently."""
    return {name: each.digest for name, each in fingerprints(evaluators).items()}


def fingerprints(evaluators: Sequence[Evaluator]) -> dict[str, Fingerprint]:
    """Return what the scores of each evaluator depend on beside the run, by name."""
    return {each.name: fingerprint(each.evaluate) for each in evaluators}


async def _awaited(score: Any) -> Any:
    return await score


def check_evaluators(evaluators: Sequence[Any]) -> None:
    """Raise InvalidInput with everything that is wrong with a list of evaluators, before anything runs."""
    faults: list[str] = []
    names: set[str] = set()
    for evaluator in evaluators:
        label = type(evaluator).__qualname__
        if getattr(evaluator, "__name__", None) == "<lambda>":
            faults.append(
                "a lambda has no name for its metric; write a function, as `def is_short(context): return …`, "
                "or name it: wtb.evaluator(name='is_short')(lambda context: …)"
            )
            continue
        if isinstance(evaluator, type):
            faults.append(f"{evaluator.__qualname__} is a class; make one: {evaluator.__qualname__}(…)")
            continue
        if not isinstance(getattr(evaluator, "name", None), str) or not callable(getattr(evaluator, "evaluate", None)):
            faults.append(f"{label} is not an evaluator: it needs a name and evaluate(context)")
            continue
        metric_of(evaluator)
        if evaluator.name in names:
            faults.append(f"two evaluators are called {evaluator.name!r}; give one of them name=…")
        names.add(evaluator.name)
    if faults:
        raise InvalidInput("; ".join(faults))


def check_cases(evaluators: Sequence[Any], cases: Sequence[Case]) -> None:
    """Raise InvalidInput, naming the cases that an evaluator's `check_case` refuses."""
    faults: list[str] = []
    for evaluator in evaluators:
        check = getattr(evaluator, "check_case", lambda case: None)
        for case in cases:
            try:
                check(case)
            except InvalidInput as error:
                faults.append(f"{case.place} ({case.id}): {error}")
    raise_faults(faults)


def error_of(score: Any) -> str | None:
    """Return why there is no score; None if there is one."""
    return str(score["error"]) if isinstance(score, Mapping) else None
