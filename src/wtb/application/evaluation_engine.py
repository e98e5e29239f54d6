"""EvaluationEngine: scores runs. An evaluator that raises, or gives no finite number, is a recorded failure."""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from wtb.application.dependencies.fingerprint import Fingerprint, fingerprint
from wtb.domain.batch import Case, raise_faults
from wtb.domain.engine import Runs
from wtb.domain.errors import InvalidInput
from wtb.domain.evaluation import EvaluationContext, Evaluator, metric_of
from wtb.domain.events import EventType
from wtb.domain.ids import ExecutionId
from wtb.domain.ports import Storage
from wtb.domain.secrets import Masker

_MEASURED = (EventType.NODE_COMPLETED, EventType.TOOL_FAILED)


class EvaluationEngine:
    """Reads what a run did, and asks evaluators what it is worth."""

    def __init__(self, storage: Storage, masker: Masker, runs: Runs) -> None:
        self._storage = storage
        self._masker = masker
        self._runs = runs

    def context(self, execution_id: ExecutionId, case: Case) -> EvaluationContext:
        """Return what evaluators may look at of a run."""
        with self._storage.unit_of_work(readonly=True) as uow:
            execution = uow.executions.get(execution_id)
            head_id = uow.branches.get(execution.branch_id).head_id
            assert head_id is not None
            state = uow.checkpoints.load(head_id).state
            events = uow.events.list_events(stream=execution_id, types=_MEASURED, limit=1_000_000)
        slowest: dict[str, float] = defaultdict(float)
        usage: dict[str, float] = defaultdict(float)
        unpriced: set[str] = set()
        tool_errors = sum(event.type is EventType.TOOL_FAILED for event in events)
        for event in events:
            if event.type is EventType.NODE_COMPLETED:
                step = str(event.data["checkpoint"])
                slowest[step] = max(slowest[step], event.data["ms"])
                unpriced.update(event.data.get("usage", {}).get("unpriced", ()))
                tool_errors += event.data.get("tool_errors", 0)
                for name, figure in event.data.get("usage", {}).items():
                    if isinstance(figure, int | float):
                        usage[name] += figure
        return EvaluationContext(
            case=case,
            state=dict(state),
            latency_s=sum(slowest.values()) / 1e3,
            steps=len(slowest),
            usage=dict(usage),
            tool_errors=tool_errors,
            unpriced=tuple(sorted(unpriced)),
        )

    def scores(self, context: EvaluationContext, evaluators: Sequence[Evaluator]) -> dict[str, Any]:
        """Return the score of each evaluator by its name; `{"error": …}` for one that failed."""
        return {evaluator.name: self._score(context, evaluator) for evaluator in evaluators}

    def _score(self, context: EvaluationContext, evaluator: Evaluator) -> float | dict[str, str]:
        try:
            score = evaluator.evaluate(context)
            if inspect.isawaitable(score):
                score = self._runs.run(evaluator.name, partial(_awaited, score), None)
            number = float(score)
        except Exception as error:  # noqa: BLE001  whatever an evaluator of the user's raises is recorded
            return {"error": self._masker.text(f"{type(error).__qualname__}: {error}")}
        if not math.isfinite(number):
            return {"error": f"it gave {number}, which is no score"}
        return number


def digests(evaluators: Sequence[Evaluator]) -> dict[str, str]:
    """Return a digest of each evaluator, its code and its settings, by name: another one may score differently."""
    return {name: print_.digest for name, print_ in prints(evaluators).items()}


def prints(evaluators: Sequence[Evaluator]) -> dict[str, Fingerprint]:
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
        if isinstance(evaluator, type):
            faults.append(f"{evaluator.__qualname__} is a class; make one: {evaluator.__qualname__}(…)")
            continue
        if not isinstance(getattr(evaluator, "name", None), str) or not callable(getattr(evaluator, "evaluate", None)):
            faults.append(f"{label} is no evaluator: it needs a name and evaluate(context)")
            continue
        metric_of(evaluator)
        if evaluator.name in names:
            faults.append(f"two evaluators are called {evaluator.name!r}; give one of them name=…")
        names.add(evaluator.name)
    if faults:
        raise InvalidInput("; ".join(faults))


def check_cases(evaluators: Sequence[Any], cases: Sequence[Case]) -> None:
    """Raise InvalidInput that names the cases which an evaluator could not score, as its `check_case` says."""
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
    """Return why there is no score; None when there is one."""
    return str(score["error"]) if isinstance(score, Mapping) else None
