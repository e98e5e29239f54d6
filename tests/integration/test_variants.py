"""Variants: other implementations of nodes, chosen for a run, a fork or what is left of a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wtb.bench import Bench
from wtb.domain.errors import InvalidInput, InvalidWorkflow
from wtb.domain.event_catalogue import EventType, NodeReplaced
from wtb.flow import Workflow


def pipeline() -> Workflow:
    flow = Workflow("pipeline")

    @flow.node(start=True)
    def retrieve(state: Any) -> dict[str, Any]:
        return {"docs": "plain"}

    @flow.node(config={"k": 1})
    def answer(state: Any, ctx: Any) -> dict[str, Any]:
        return {"answer": f"{state['docs']} {ctx.config['k']}"}

    flow.edge("retrieve", "answer")

    @flow.variant("retrieve", "dense")
    def dense(state: Any) -> dict[str, Any]:
        return {"docs": "dense"}

    flow.add_variant("answer", "more", config={"k": 5})
    return flow


def test_a_run_uses_the_variants_that_it_is_given(bench: Bench) -> None:
    flow = pipeline()
    assert bench.run(flow, {}).state["answer"] == "plain 1"
    assert bench.run(flow, {}, variants={"retrieve": "dense"}).state["answer"] == "dense 1"
    assert bench.run(flow, {}, variants={"retrieve": "dense", "answer": "more"}).state["answer"] == "dense 5"
    assert bench.run(flow, {}, variants={"retrieve": "baseline"}).state["answer"] == "plain 1"


def test_a_paused_run_goes_on_with_another_variant_and_says_so(bench: Bench) -> None:
    flow = pipeline()
    run = bench.run(flow, {}, break_after=["retrieve"])
    run = bench.resume(run.id, flow, variants={"answer": "more"}, strict=True)
    assert run.state["answer"] == "plain 5"
    (event,) = run.events(types=[EventType.NODE_REPLACED])
    assert event.body == NodeReplaced(node="answer", from_="baseline", to="more", by=bench.services.user)


def test_a_fork_goes_on_with_another_variant(bench: Bench) -> None:
    flow = pipeline()
    run = bench.run(flow, {}, variants={"retrieve": "dense"})
    fork = run.fork("retrieve", variants={"answer": "more"})
    assert bench.resume(fork.id, flow).state["answer"] == "dense 5"
    assert run.state["answer"] == "dense 1"


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"retrieve": "sparse"}, "node 'retrieve' has no variant 'sparse'; it has baseline, dense"),
        ({"rerank": "dense"}, "there is no node 'rerank'; nodes are retrieve, answer"),
    ],
)
def test_an_unknown_variant_is_refused_before_anything_runs(bench: Bench, chosen: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        bench.run(pipeline(), {}, variants=chosen)
    assert bench.list_runs() == ()


def test_applying_variants_changes_nothing(bench: Bench) -> None:
    definition = pipeline().definition()
    applied = definition.with_variants({"retrieve": "dense"})
    assert [node.variant for node in applied.nodes] == ["dense", "baseline"]
    assert [node.variant for node in definition.nodes] == ["baseline", "baseline"]


def test_the_variant_called_baseline_undoes_another() -> None:
    flow = Workflow("undone")
    flow.add_node("answer", lambda state, ctx: {"k": ctx.config["k"]}, start=True, reads=["k"], config={"k": 1})
    flow.add_variant("answer", "more", config={"k": 2, "extra": True}, reads=["q"])
    flow.add_variant("answer", "other", lambda state: {"k": 3})
    definition = flow.definition()
    applied = definition.with_variants({"answer": "more"})
    assert applied.with_variants({}) == applied
    undone = applied.with_variants({"answer": "baseline"})
    assert (undone, undone.nodes[0].function) == (definition, definition.nodes[0].function)
    other = applied.with_variants({"answer": "other"})
    assert (other.nodes[0].config, other.nodes[0].reads) == ({"k": 1}, ("k",))
    assert other.with_variants({"answer": "baseline"}) == definition


def test_variants_are_listed_deactivated_and_taken_back() -> None:
    flow = pipeline()
    assert flow.variants == {"retrieve": ("dense",), "answer": ("more",)}
    flow.deactivate("retrieve", "dense")
    assert flow.variants == {"answer": ("more",)}
    flow.activate("retrieve", "dense")
    assert flow.variants == {"retrieve": ("dense",), "answer": ("more",)}
    with pytest.raises(InvalidInput, match="has no variant 'sparse'"):
        flow.deactivate("retrieve", "sparse")


def test_faults_of_variants_are_all_listed(bench: Bench) -> None:
    flow = pipeline()
    flow.add_variant("rerank", "x", lambda state: None)
    flow.add_variant("answer", "baseline", lambda state: None)
    flow.add_variant("answer", "more", lambda state: None)
    with pytest.raises(InvalidWorkflow) as raised:
        bench.run(flow, {})
    assert len(raised.value.faults) == 3


def test_variants_are_part_of_a_workflow_as_data() -> None:
    flow = Workflow("data")
    flow.add_node("a", json.loads, start=True)
    flow.add_variant("a", "b", json.dumps, config={"k": 1}, reads=["x"])
    data = flow.to_dict()
    variant = {"node": "a", "name": "b", "reference": "json:dumps", "config": {"k": 1}, "reads": ["x"]}
    assert data["variants"] == [variant]
    again = Workflow.from_dict(data)
    assert again.to_dict() == data
    assert again.definition().with_variants({"a": "b"}).nodes[0].function is json.dumps
    with pytest.raises(InvalidInput, match="variant 1 has an unknown key 'nodes'"):
        Workflow.from_dict({**data, "variants": [{"nodes": "a"}]})
