"""Runs one batch test, or goes on with it, and is killed doing so; served as `engine_worker` is.

Its nodes append to a log when they begin, and so does every commit that keeps what a node made:

    began PROCESS RUN/NODE/VISIT KEY      the key says what the result depends on
    kept RUN/NODE/VISIT
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import wtb
from tests.crash import engine_worker as engine
from wtb.domain.evaluation import EvaluationContext
from wtb.infrastructure.unit_of_work import TransactionalUnitOfWork

WORKERS = 3
CASES = 3
ROUNDS = 2

flow = wtb.Workflow("killed batch")


def began(node: str, state: Mapping[str, Any], ctx: Any, key: str = "") -> str:
    """Note that a node has begun, take a moment, and return the way that led here with the node at its end."""
    run = ctx.run
    way = f"{state['way']}>{node}"
    engine.write("log", f"began {os.getpid()} {run.execution_id}/{run.node}/{run.visit} {state['case']}:{key or way}")
    time.sleep(random.uniform(0, 0.004))
    return way


def preparing(name: str) -> Callable[..., Any]:
    def prepare(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
        way = began(name, state, ctx)
        (ctx.workspace / "notes").write_text(f"{way}\n" * 50)
        return {"way": way, "round": 0}

    return prepare


def refine(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Go round so often, and use a tool that is free of effects."""
    way = began("refine", state, ctx)
    return {"way": way, "round": ctx.step("next", lambda: state["round"] + 1), "random": ctx.rng.random()}


def side(name: str) -> Callable[..., Any]:
    def member(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
        way = began(name, state, ctx)
        (ctx.workspace / ctx.run.node).write_text(way)
        return {ctx.run.node: way}

    return member


def send(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Do what nobody may do in the place of another: each job for itself."""
    way = began("send", state, ctx, key=f"{ctx.run.execution_id}/send")
    return {"way": f"{way}({state['left']}|{state['right']})"}


def answering(name: str) -> Callable[..., Any]:
    def answer(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
        way = began(name, state, ctx)
        if name == "short" and state["case"].endswith("1") and "quick" in way:
            raise ValueError("no answer to this")
        files = {path.name: path.read_text() for path in sorted(ctx.workspace.iterdir())}
        return {"answer": way, "files": files}

    return answer


flow.add_node("prepare", preparing("careful"), start=True)
flow.add_variant("prepare", "quick", preparing("quick"))
flow.add_node("refine", refine)
flow.add_node("left", side("left"))
flow.add_variant("left", "other", side("other"))
flow.add_node("right", side("right"), reads=["case", "way"])
flow.add_node("send", send, cache=False)
flow.add_node("answer", answering("long"))
flow.add_variant("answer", "short", answering("short"))
flow.edge("prepare", "refine")
flow.edge("refine", "refine", when=f"round < {ROUNDS}")
flow.edge("refine", "fan", otherwise=True)
flow.add_node("fan", lambda state: None)
flow.edge("fan", "left")
flow.edge("fan", "right")
flow.edge(["left", "right"], "send")
flow.edge("send", "answer")


class Length:
    """Scores an answer by its length."""

    name = "length"

    def evaluate(self, context: EvaluationContext) -> float:
        return float(len(context.state["answer"]))


def batch(name: str) -> wtb.BatchTest:
    """Return the batch of a name; its cases are its own, so that it shares nothing with others."""
    ids = [f"{name}-{number}" for number in range(CASES)]
    cases = [{"id": each, "input": {"case": each, "way": ""}} for each in ids]
    return wtb.BatchTest(flow, name=name, cases=cases, evaluators=[Length(), wtb.Steps()], workers=WORKERS)


def watch() -> None:
    """Note every commit that keeps what a node made."""
    commit = TransactionalUnitOfWork.commit

    def watched(uow: TransactionalUnitOfWork) -> None:
        frame = sys._getframe(1)
        while frame.f_code.co_name == "commit" and frame.f_back is not None:
            frame = frame.f_back
        found = frame.f_locals
        match frame.f_code.co_name:
            case "step":
                runs = found["step"].runs
            case "keep_pending":
                runs = (found["run"],)
            case _:
                runs = ()
        commit(uow)
        for run in runs:
            engine.write("log", f"kept {run.execution_id}/{run.node}/{run.visit}")

    TransactionalUnitOfWork.commit = watched  # type: ignore[assignment, method-assign]


def run(job: Mapping[str, Any]) -> dict[str, Any]:
    """Run what is missing of the batch."""
    engine.effects = Path(job["effects"])
    engine.effects.mkdir(exist_ok=True)
    watch()
    started = time.perf_counter()
    with wtb.Bench(job["url"], folder=job["folder"]) as bench:
        result = bench.batch(batch(job["run"]))
        seconds = time.perf_counter() - started
        return {"status": result.status, "error": None, "seconds": seconds, "process": os.getpid()}


def wait(job: Mapping[str, Any], pid: int) -> None:
    """Let the time pass that a child has from the beginning of its first node on, if it ever gets there."""
    log = Path(job["effects"]) / "log"
    before = log.stat().st_size if log.exists() else 0
    while job["at_work"] and not engine.has_ended(pid) and (not log.exists() or log.stat().st_size == before):
        time.sleep(0.001)
    time.sleep(job["kill_after_s"])


def serve() -> None:
    """Fork a child for every job."""
    engine.run = run
    engine.wait = wait
    engine.serve()
