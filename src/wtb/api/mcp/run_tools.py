"""Tools that change runs. Each shows the person what it would do, and does it once they have confirmed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from mcp.server.mcpserver import Elicit, Resolve
from pydantic import Field

from wtb.api.mcp.answers import answer
from wtb.api.mcp.arguments import Checkpoint, RunArgument, Update, Variants, Wait, state_edit
from wtb.api.mcp.confirmation import (
    NOTHING,
    Confirmation,
    Decision,
    asked,
    check_may_change,
    is_confirmed,
)
from wtb.api.mcp.editor_access import Asking, api_of
from wtb.api.mcp.inner_api import InnerApi, RouteAnswer
from wtb.api.mcp.questions import fork_question, resume_question, rollback_question, start_question
from wtb.domain.errors import InvalidInput

_RUNS = "executions"
_ENDED = {"completed", "cancelled"}
_LONG_S = 50.0
"""How long what usually takes a moment may take before the answer says that it goes on."""

Tools = Annotated[bool, Field(description="Undo the effects of tools.")]
Files = Annotated[bool, Field(description="Put the files back.")]
Shared = Annotated[
    Literal["keep", "reverse"], Field(description="What happens to calls that another branch builds on, too.")
]
Irreversible = Annotated[bool, Field(description="Go back even if some calls cannot be undone; their effects stay.")]
Options = Annotated[
    dict[str, Any] | None,
    Field(
        description='Options such as {"break_before": ["answer"], "variants": {"answer": "short"}, "max_steps": 20}; '
        "also break_after, timeout_s, seed."
    ),
]


async def _plan(api: InnerApi, run: str, scope: dict[str, Any]) -> RouteAnswer:
    found = await api.post(_RUNS, run, "rollback", "plan", body=scope, wait_s=_LONG_S)
    if found.data["plan"] is None:
        raise InvalidInput(f"planning the rollback of run {run!r} takes long; ask again in a minute")
    return found


async def plan_rollback(
    *, ctx: Asking, run: RunArgument, to: Checkpoint, tools: Tools = True, files: Files = True, shared: Shared = "keep"
) -> str:
    """Show what rolling a run back would do, without doing it: nodes undone, calls reversed, files changed.

    `irreversible` has the calls that cannot be undone.
    """
    scope = {"target": to, "tools": tools, "files": files, "shared": shared}
    return answer((await _plan(api_of(ctx), run, scope)).data["plan"])


async def shown_plan(
    *, ctx: Asking, run: str, to: int | str, tools: bool, files: bool, shared: str, allow_irreversible: bool
) -> RouteAnswer:
    """Return the plan that the person is asked about, and that is carried out: its ETag names it."""
    check_may_change(ctx)
    found = await _plan(api_of(ctx), run, {"target": to, "tools": tools, "files": files, "shared": shared})
    calls = found.data["plan"]["irreversible"]
    if calls and not allow_irreversible:
        names = ", ".join(call["tool"] for call in calls)
        raise InvalidInput(
            f"{len(calls)} calls cannot be undone, so nothing was changed: {names}; with allow_irreversible the run "
            "goes back, and the effects of such calls stay"
        )
    return found


def ask_rollback(
    *, ctx: Asking, run: str, plan: Annotated[RouteAnswer, Resolve(shown_plan)]
) -> Confirmation | Elicit[Confirmation]:
    """Ask about a rollback, with its plan."""
    return asked(ctx, rollback_question(run, plan.data["plan"]))


async def rollback(
    *,
    ctx: Asking,
    run: RunArgument,
    to: Checkpoint,
    plan: Annotated[RouteAnswer, Resolve(shown_plan)],
    decision: Annotated[Decision, Resolve(ask_rollback)],
    tools: Tools = True,
    files: Files = True,
    shared: Shared = "keep",
    allow_irreversible: Irreversible = False,
) -> str:
    """Roll a run back to a checkpoint: state, files and effects of tools together. The person sees the plan first.

    Afterwards the run is paused there, and `resume` continues it.
    """
    if not is_confirmed(decision):
        return NOTHING
    scope = {"target": to, "tools": tools, "files": files, "shared": shared}
    body = {**scope, "allow_irreversible": allow_irreversible}
    done = await api_of(ctx).post(_RUNS, run, "rollback", body=body, if_match=plan.etag, wait_s=_LONG_S)
    return answer({**_changed(done), "plan": plan.data["plan"]})


def ask_fork(
    *,
    ctx: Asking,
    run: str,
    at: int | str | None,
    update: dict[str, Any] | None,
    input: dict[str, Any] | None,
    variants: dict[str, str] | None,
) -> Confirmation | Elicit[Confirmation]:
    """Ask about a fork."""
    return asked(ctx, fork_question(run, at, values=update, input=input, variants=variants))


async def fork(
    *,
    ctx: Asking,
    run: RunArgument,
    decision: Annotated[Decision, Resolve(ask_fork)],
    at: Annotated[Checkpoint | None, Field(description="Where it begins; without it at the last checkpoint.")] = None,
    update: Update = None,
    input: Annotated[
        dict[str, Any] | None, Field(description="Begin anew with this input instead; then leave `at` out.")
    ] = None,
    variants: Variants = None,
) -> str:
    """Make a new run from a checkpoint of another one, with other values or variants. `resume` then runs it."""
    if not is_confirmed(decision):
        return NOTHING
    body = {"target": at, "update": state_edit(update), "input": input, "variants": variants}
    return answer(_changed(await api_of(ctx).post(_RUNS, run, "fork", body=body, wait_s=_LONG_S)))


async def shown_run(*, ctx: Asking, run: str) -> RouteAnswer:
    """Return the run that the person is asked about; its version is the one that is changed."""
    check_may_change(ctx)
    found = await api_of(ctx).get(_RUNS, run)
    if found["status"] in _ENDED:
        raise InvalidInput(f"run {run!r} is {found['status']}; fork it or roll it back to continue")
    return RouteAnswer(data=found, etag=f'"{found["version"]}"')


def ask_resume(
    *,
    ctx: Asking,
    found: Annotated[RouteAnswer, Resolve(shown_run)],
    answer: Any,
    update: dict[str, Any] | None,
    rerun_node: bool,
    options: dict[str, Any] | None,
) -> Confirmation | Elicit[Confirmation]:
    """Ask about going on with a run."""
    again = rerun_node or None
    changes = {"the answer": answer, "new values": update, "the node started over": again, "options": options}
    return asked(ctx, resume_question(found.data, changes))


async def resume(
    *,
    ctx: Asking,
    run: RunArgument,
    found: Annotated[RouteAnswer, Resolve(shown_run)],
    decision: Annotated[Decision, Resolve(ask_resume)],
    answer: Annotated[Any, Field(description="The answer to the question that the run asks.")] = None,
    update: Update = None,
    rerun_node: Annotated[
        bool, Field(description="Undo what can be undone of the unfinished node, and start it over.")
    ] = False,
    options: Options = None,
    wait_s: Wait = 30,
) -> str:
    """Continue a run that is paused, has failed or has not begun, or answer its question.

    It runs with the code as it is now.
    """
    if not is_confirmed(decision):
        return NOTHING
    body = {"answer": answer, "update": state_edit(update), "rerun_node": rerun_node, "options": options}
    done = await api_of(ctx).post(_RUNS, run, "resume", body=body, if_match=found.etag, wait_s=wait_s)
    return _told(done)


async def ask_start(
    *, ctx: Asking, workflow: str, input: dict[str, Any] | None, options: dict[str, Any] | None
) -> Confirmation | Elicit[Confirmation]:
    """Ask about a new run; raise why the workflow cannot be run, if nobody here knows it."""
    check_may_change(ctx)
    api = api_of(ctx)
    if all(each["name"] != workflow for each in (await api.get("workflows"))["items"]):
        await api.get("workflows", workflow)
    return asked(ctx, start_question(workflow, input, options))


async def start_run(
    *,
    ctx: Asking,
    workflow: Annotated[str, Field(description="The name of a served workflow, as list_workflows shows it.")],
    decision: Annotated[Decision, Resolve(ask_start)],
    input: Annotated[dict[str, Any] | None, Field(description="What the state begins with.")] = None,
    options: Options = None,
    wait_s: Wait = 30,
) -> str:
    """Start a run of a workflow, and wait until it ends or pauses. It runs with the code as it is now."""
    if not is_confirmed(decision):
        return NOTHING
    body = {"workflow": workflow, "input": input, "options": options}
    return _told(await api_of(ctx).post(_RUNS, body=body, wait_s=wait_s))


def _told(done: RouteAnswer) -> str:
    return answer(_changed(done))


def _changed(done: RouteAnswer) -> dict[str, Any]:
    """Return what a change gave, or that it goes on."""
    data: dict[str, Any] = done.data
    told = {key: data[key] for key in ("run", "forked_from") if data.get(key) is not None}
    if told:
        return told
    command = data["command"]
    return {"run": {"id": command["subject"]}, "note": "It has not ended yet and goes on; show_run says how far it is."}
