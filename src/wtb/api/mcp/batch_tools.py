"""Tools about batches: plan and start one, read its verdict and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from mcp.server.mcpserver import Elicit, Resolve
from pydantic import Field

from wtb.api.mcp.answers import answer, first_that_fit, page
from wtb.api.mcp.arguments import BatchArgument, Cursor, Limit, Wait
from wtb.api.mcp.confirmation import NOTHING, Confirmation, Decision, asked, check_may_change, is_confirmed
from wtb.api.mcp.editor_access import Asking, api_of
from wtb.api.mcp.inner_api import InnerApi
from wtb.api.mcp.questions import batch_question
from wtb.domain.errors import InvalidInput

_PLAN_S = 50.0
_FEW = 10

Configured = Annotated[
    str | None, Field(description="The name of a batch that the project defines. Or give `workflow` with `cases`.")
]
Workflow = Annotated[str | None, Field(description="The workflow of inline cases.")]
Name = Annotated[str | None, Field(description="What a batch with inline cases is called.")]
Cases = Annotated[
    list[dict[str, Any]] | None,
    Field(description='Inline cases, such as {"id": "c1", "input": {"question": "Why?"}, "expected": "Because"}.'),
]
Evaluators = Annotated[
    list[str | dict[str, str]] | None,
    Field(description='For inline cases: such as "latency_s", or {"name": "exact_match", "key": "answer"}.'),
]
Options = Annotated[
    dict[str, Any] | None,
    Field(
        description='For inline cases: {"variants": "all", "repeats": 3, "budget": {"usd": 5}, "external": "refuse"}; '
        "also baseline, output, primary, workers, job_timeout_s, seed."
    ),
]
Only = Annotated[list[str] | None, Field(description='Only these combinations, such as "answer=long".')]


async def list_batches(
    *,
    ctx: Asking,
    name: Annotated[str | None, Field(description="Only batches of this name.")] = None,
    cursor: Cursor = None,
    limit: Limit = 20,
) -> str:
    """List batches that have run, newest first."""
    api = api_of(ctx)
    return await page(lambda most: api.get("batches", name=name, cursor=cursor, limit=most), limit)


async def _planned(api: InnerApi, body: Mapping[str, Any]) -> dict[str, Any]:
    found = (await api.post("batches", "plan", body=body, wait_s=_PLAN_S)).data["plan"]
    if found is None:
        raise InvalidInput("planning this batch takes long; ask again in a minute")
    plan: dict[str, Any] = found
    return plan


async def plan_batch(
    *,
    ctx: Asking,
    batch: Configured = None,
    workflow: Workflow = None,
    name: Name = None,
    cases: Cases = None,
    evaluators: Evaluators = None,
    options: Options = None,
    only: Only = None,
) -> str:
    """Show what running a batch would do, without running it: jobs kept and to run, and what changed."""
    body = {"batch": batch, "workflow": workflow, "name": name, "cases": cases}
    return answer(await _planned(api_of(ctx), {**body, "evaluators": evaluators, "options": options, "only": only}))


async def ask_batch(
    *,
    ctx: Asking,
    batch: str | None,
    workflow: str | None,
    name: str | None,
    cases: list[dict[str, Any]] | None,
    evaluators: list[str | dict[str, str]] | None,
    options: dict[str, Any] | None,
    only: list[str] | None,
) -> Confirmation | Elicit[Confirmation]:
    """Ask about a batch, with its plan and what it may cost."""
    check_may_change(ctx)
    api, called = api_of(ctx), batch or name or workflow or ""
    body = {"batch": batch, "workflow": workflow, "name": name, "cases": cases}
    plan = await _planned(api, {**body, "evaluators": evaluators, "options": options, "only": only})
    before = (await api.get("batches", name=called, limit=1))["items"]
    last = await api.get("batches", before[0]["id"]) if before else None
    return asked(ctx, batch_question(called, plan, last, (options or {}).get("budget")))


async def start_batch(
    *,
    ctx: Asking,
    decision: Annotated[Decision, Resolve(ask_batch)],
    batch: Configured = None,
    workflow: Workflow = None,
    name: Name = None,
    cases: Cases = None,
    evaluators: Evaluators = None,
    options: Options = None,
    only: Only = None,
    wait_s: Wait = 0,
) -> str:
    """Run a batch: every combination of variants over every case. Results of its last run are kept if they still fit.

    The person sees the number of jobs and what they may cost first. show_batch says how far it is, and the verdict.
    """
    if not is_confirmed(decision):
        return NOTHING
    body = {"batch": batch, "workflow": workflow, "name": name, "cases": cases, "evaluators": evaluators}
    done = await api_of(ctx).post("batches", body={**body, "options": options, "only": only}, wait_s=wait_s)
    if done.data["batch"] is not None:
        return answer({"batch": done.data["batch"]})
    note = "It goes on while this server runs; show_batch says how far it is."
    return answer({"batch": {"name": done.data["command"]["subject"]}, "note": note})


async def show_batch(
    *,
    ctx: Asking,
    batch: BatchArgument,
    skip: Annotated[int, Field(ge=0, description="Leave out so many combinations at the beginning.")] = 0,
) -> str:
    """Show how far a batch is, and its verdict: scores and intervals of each combination, and who is better or worse.

    "no evidence" means that chance is not ruled out, not that the combinations are equal. Of many combinations you see
    the first ones; `skip` shows the others. list_answers has all failures.
    """
    api = api_of(ctx)
    status = await api.get("batches", batch)
    found = await api.get("batches", status["id"], "matrix")
    counts = ("id", "name", "workflow", "status", "completed", "failed", "left", "spent", "created_at")
    more = ("baseline", "primary", "notes")
    cases = {name: found[name][:_FEW] for name in ("flaky", "failures", "evaluation_failures")}
    rows = [_row(row) for row in found["matrix"][skip:]]
    return first_that_fit({**_some(status, counts), **_some(found, more), **cases}, "combinations", rows)


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    means, verdicts = (
        ("mean", "interval", "cases", "errors"),
        ("finding", "reason", "difference", "interval", "adjusted_p"),
    )
    return {
        "combination": row["combination"],
        "is_baseline": row["is_baseline"],
        "metrics": {name: _rounded(_some(each, means)) for name, each in row["metrics"].items()},
        "verdicts": {name: _rounded(_some(each, verdicts)) for name, each in row["verdicts"].items()},
    }


def _rounded(value: Any) -> Any:
    """Return figures with four digits: a model pays for each."""
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _some(data: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: data[name] for name in names}


async def list_answers(
    *,
    ctx: Asking,
    batch: BatchArgument,
    combination: Annotated[str | None, Field(description='Only this combination, such as "answer=long".')] = None,
    failed: Annotated[bool | None, Field(description="Only jobs that failed, or only others.")] = None,
    flaky: Annotated[bool, Field(description="Only cases on which repeats of a combination disagree.")] = False,
    different: Annotated[
        str | None, Field(description="Only cases on which combinations disagree on this metric, widest first.")
    ] = None,
    cursor: Cursor = None,
    limit: Limit = 20,
) -> str:
    """List the results of a batch: case, combination, scores, output, error, and the id of the run."""
    filters = {"combination": combination, "failed": failed, "flaky": flaky, "different": different}
    api = api_of(ctx)
    names = ("case", "combination", "repeat", "status", "scores", "output", "error", "run", "latency_s")

    async def read(most: int) -> dict[str, Any]:
        found = await api.get("batches", batch, "results", **filters, cursor=cursor, limit=most)
        return {"answers": [_some(each, names) for each in found["items"]], "next": found["next"]}

    return await page(read, limit)


async def show_case(
    *, ctx: Asking, batch: BatchArgument, case: Annotated[str, Field(description="The id of a case.")]
) -> str:
    """Show a case of a batch: its input, what is expected, and the outputs and scores of all combinations."""
    found = await api_of(ctx).get("batches", batch, "cases", case)
    names = ("combination", "repeat", "status", "scores", "output", "error", "run", "latency_s")
    return answer({**found, "results": [_some(each, names) for each in found["results"]]})
