"""WorkflowDefinition: all faults at once, routing order, and the way to plain data and back."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest

from wtb.domain.errors import InvalidInput, InvalidWorkflow
from wtb.domain.state import MISSING, add, append
from wtb.domain.workflow import END, Edge, Node, RetryPolicy, WorkflowDefinition
from wtb.infrastructure.conditions.cel import CelConditions


def work(state: Any) -> dict[str, Any]:
    """Stand for a node."""
    return {}


def is_done(state: Any) -> bool:
    """Stand for a condition."""
    return True


def longest(old: Any, new: Any) -> Any:
    """Stand for a reducer of the user's own."""
    return new if old is MISSING else max(old, new, key=len)


class Agent:
    """Has methods that could be nodes."""

    def act(self, state: Any) -> dict[str, Any]:
        return {}

    @classmethod
    def plan(cls, state: Any) -> dict[str, Any]:
        return {}


def find(reference: str) -> Callable[..., Any]:
    module, _, name = reference.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    function: Callable[..., Any] = found
    return function


def nodes(names: str, **options: Any) -> tuple[Node, ...]:
    """Return nodes of these names, the first of which is the entry."""
    return tuple(Node(name=name, function=work, start=i == 0, **options) for i, name in enumerate(names.split()))


def edge(ends: str, **options: Any) -> Edge:
    """Return an edge from "a>b" or, for a join, from "a,b>c"."""
    sources, _, target = ends.partition(">")
    return Edge(sources=tuple(sources.split(",")), target=target, **options)


def flow(names: str, *edges: Edge, **options: Any) -> WorkflowDefinition:
    return WorkflowDefinition(name="flow", nodes=nodes(names), edges=edges, **options)


def faults_of(workflow: WorkflowDefinition) -> tuple[str, ...]:
    with pytest.raises(InvalidWorkflow) as refused:
        workflow.validate(CelConditions())
    return refused.value.faults


def test_a_workflow_of_one_node_needs_no_edges() -> None:
    flow("a").validate()


def test_loops_fan_outs_joins_and_conditions_are_ordinary() -> None:
    flow(
        "a b c d e",
        edge("a>b"),
        edge("a>c"),
        edge("b,c>d"),
        edge("d>a", when="tries < 3", priority=1),
        edge("d>e", when=is_done),
        edge(f"d>{END}", otherwise=True),
        edge("e>e", when="again"),
    ).validate(CelConditions())


@pytest.mark.parametrize(
    ("workflow", "fault"),
    [
        (WorkflowDefinition(name="", nodes=nodes("a")), "a workflow needs a name"),
        (WorkflowDefinition(name="LangGraph thread", nodes=nodes("a")), "'LangGraph thread' is reserved for threads"),
        (WorkflowDefinition(name="flow", nodes=()), "a workflow needs at least one node"),
        (WorkflowDefinition(name="flow", nodes=(Node(name="a", function=work),)), "no entry"),
        (WorkflowDefinition(name="flow", nodes=nodes("a") + nodes("b")), "several entries: a, b"),
        (flow("a b b", edge("a>b")), "2 nodes are called 'b'; names must be unique (in a notebook, first run the cell"),
        (flow("a", edge("a>x")), "edge a -> x: there is no node 'x'"),
        (flow("a", edge("x>a")), "edge x -> a: there is no node 'x'"),
        (flow("a", edge(f"{END}>a")), f"there is no node '{END}'"),
        (flow("retrieve", edge("retreive>retrieve")), "no node 'retreive'; did you mean 'retrieve'?"),
        (flow("a", edge("a>END")), "there is no node 'END'; wtb.END ends the run"),
        (flow("a b"), "node 'b' cannot be reached from the entry"),
        (flow("a b c", edge("a>b"), edge("b,c>c")), "node 'c' cannot be reached"),
        (flow("a", Edge(sources=(), target="a")), "edge to 'a' has no source"),
        (flow("a b", edge("a,a>b")), "edge [a, a] -> b: a join names each source once"),
        (flow("a b", edge("a>b"), edge("a>b")), "edge a -> b is defined 2 times"),
        (flow("a b c", edge("a>b"), edge("a,b>c", when="x")), "a join waits for all its sources and takes no"),
        (flow("a b c", edge("a>b"), edge("a,b>c", otherwise=True)), "a join waits for all its sources and takes no"),
        (flow("a b", edge("a>b", when="x", otherwise=True)), "drop it or the condition"),
        (flow("a b", edge("a>b", otherwise=True)), "'a' has an `otherwise` edge but no condition"),
        (
            flow("a b c", edge("a>b", when="x"), edge("a>c", otherwise=True), edge(f"a>{END}", otherwise=True)),
            "'a' has 2 `otherwise` edges",
        ),
        (flow("a b c", edge("a>b", when="x"), edge("a>c")), "plain edges beside conditional ones (a -> c)"),
        (
            flow("a b c", edge("a>b", when="x"), edge(f"a>{END}", otherwise=True), edge("a,b>c")),
            "plain edges beside conditional ones ([a, b] -> c)",
        ),
        (flow("a b", edge("a>b", when="")), "edge a -> b: the condition is empty"),
        (flow("a b", edge("a>b", when=" \n")), "edge a -> b: the condition is empty"),
        (flow("a b", edge("a>b", when=5)), "the condition is 5; write an expression or a function"),
        (flow("a b", edge("a>b", when="x ==")), "edge a -> b: "),
        (flow("a b", edge("a>b", when="(" * 50 + "x" + ")" * 50)), "edge a -> b: "),
        (WorkflowDefinition(name="flow", nodes=(Node(name="a", start=True),)), "'a' has neither a function nor"),
        (
            WorkflowDefinition(name="flow", nodes=nodes("a", timeout_s=0)),
            "timeout_s must be positive and finite, not 0",
        ),
        (
            WorkflowDefinition(name="flow", nodes=nodes("a", timeout_s="3")),
            "timeout_s must be positive and finite, not '3'",
        ),
        (WorkflowDefinition(name="flow", nodes=nodes("a", timeout_s=math.inf)), "must be positive and finite, not inf"),
        (
            WorkflowDefinition(name="flow", nodes=nodes("a", retry=RetryPolicy(errors=(OSError,)))),  # type: ignore[arg-type]
            "retry errors are a list of names, such as ['TimeoutError'], not (<class 'OSError'>,)",
        ),
        (
            WorkflowDefinition(name="flow", nodes=nodes("a", retry=RetryPolicy(errors="OSError"))),  # type: ignore[arg-type]
            "such as ['TimeoutError'], not 'OSError'",
        ),
        (WorkflowDefinition(name="flow", nodes=nodes("a", retry=RetryPolicy(times=0))), "retry times must be at least"),
        (WorkflowDefinition(name="flow", nodes=nodes("a", retry=RetryPolicy(wait_s=-1))), "retry waits must not be"),
        (WorkflowDefinition(name="flow", nodes=nodes("a", retry=RetryPolicy(jitter=2))), "jitter between 0 and 1"),
    ],
)
def test_a_fault_is_found_and_named(workflow: WorkflowDefinition, fault: str) -> None:
    assert any(fault in found for found in faults_of(workflow)), faults_of(workflow)


@pytest.mark.parametrize("name", ["", END, "a b", "a#2", "a@b", "m:f", "a/b", "a\n", "a\0", "\ud800", 5, None])
def test_a_node_needs_a_name_that_can_be_typed_and_told_from_a_visit(name: Any) -> None:
    workflow = WorkflowDefinition(name="flow", nodes=(Node(name=name, function=work, start=True),))
    assert faults_of(workflow)[0].startswith(f"a node cannot be called {name!r}")


@pytest.mark.parametrize("name", ["a", "größe", "step_1.b-c", "分類", "42"])
def test_names_of_any_language_are_fine(name: str) -> None:
    flow(name).validate()


def test_all_faults_are_reported_at_once() -> None:
    workflow = WorkflowDefinition(
        name="",
        nodes=(*nodes("a b b c"), Node(name="bad name", function=work), Node(name="d")),
        edges=(
            edge("a>nowhere"),
            edge("nobody>b"),
            edge("b>c", when="x =="),
            edge("b>b", when="1 +"),
            edge("b>c"),
            edge("c>a", otherwise=True),
            edge("c>b", otherwise=True),
        ),
    )
    found = faults_of(workflow)
    expected = [
        "a workflow needs a name",
        "a node cannot be called 'bad name'",
        "node 'd' has neither",
        "2 nodes are called 'b'",
        "no node 'nowhere'",
        "no node 'nobody'",
        "'c' has 2 `otherwise` edges",
        "'c' has an `otherwise` edge but no condition",
        "'b' has plain edges beside conditional ones",
        "'bad name' cannot be reached",
        "'d' cannot be reached",
        "edge b -> c: ",
        "edge b -> b: ",
    ]
    assert [text for text in expected if not any(text in fault for fault in found)] == []


def test_a_missing_entry_does_not_make_every_node_unreachable_as_well() -> None:
    workflow = WorkflowDefinition(name="flow", nodes=(Node(name="a", function=work), Node(name="b", function=work)))
    assert faults_of(workflow) == ("no entry: mark the first node with start=True",)


def test_conditions_are_only_parsed_when_a_language_is_given() -> None:
    flow("a b", edge("a>b", when="not & a & language")).validate()


def test_a_join_is_reached_when_all_its_sources_are() -> None:
    flow("a b c d", edge("a>c"), edge("a>b"), edge("c,b>d")).validate()
    assert any("'d'" in fault for fault in faults_of(flow("a b c d", edge("a>b"), edge("b,c>d"), edge("d>c"))))


def test_nodes_are_found_by_name() -> None:
    workflow = flow("a b", edge("a>b"))
    assert (workflow.node("b").name, workflow.start.name) == ("b", "a")


def counting(names: list[str], counter: list[str]) -> tuple[Node, ...]:
    """Return nodes whose names count how often they are compared or hashed."""

    class Counted(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            counter.append("eq")
            return str.__eq__(self, other)

        def __hash__(self) -> int:
            counter.append("hash")
            return str.__hash__(self)

    return tuple(Node(name=Counted(name), function=work, start=i == 0) for i, name in enumerate(names))


def looks(size: int) -> int:
    """Return how often validation looks at a name in a chain of so many nodes with joins and back edges."""
    counter: list[str] = []
    names = [f"n{i}" for i in range(size)]
    chain = counting(names, counter)
    edges = [Edge(sources=(one.name,), target=two.name) for one, two in pairwise(chain)]
    edges += [Edge(sources=(chain[i].name, chain[i + 1].name), target=chain[i + 2].name) for i in range(0, size - 2, 2)]
    workflow = WorkflowDefinition(name="flow", nodes=chain, edges=tuple(edges))
    counter.clear()
    workflow.validate()
    return len(counter)


def test_validation_of_a_thousand_nodes_takes_ten_times_what_a_hundred_take() -> None:
    assert looks(1_000) <= 11 * looks(100)


def test_a_loop_of_a_thousand_nodes_is_no_trouble() -> None:
    names = [f"n{i}" for i in range(1_000)]
    ring = [edge(f"{one}>{two}") for one, two in zip(names, names[1:] + names[:1], strict=True)]
    flow(" ".join(names), *ring).validate()


EVERYTHING = WorkflowDefinition(
    name="support",
    version="7",
    description="answers",
    nodes=(
        Node(
            name="a",
            function=work,
            start=True,
            reads=("topic", "question"),
            cache=False,
            retry=RetryPolicy(times=5, wait_s=0.1, backoff=3, max_wait_s=9, jitter=0.5, errors=("ValueError",)),
            timeout_s=2.5,
            config={"k": [1, {"x": None}]},
        ),
        Node(name="b", function=Agent.plan, reads=()),
        Node(name="c", reference="search"),
    ),
    edges=(
        edge("a>b", when="topic != 'spam'", priority=3),
        edge("a>c", when=is_done),
        edge(f"a>{END}", otherwise=True),
        edge("b,c>a"),
    ),
    reducers={"messages": append, "count": add, "text": longest},
    metadata={"team": "x"},
)


def test_a_workflow_as_data_is_plain_json_and_comes_back_equal() -> None:
    data = json.loads(json.dumps(EVERYTHING.to_dict()))
    back = WorkflowDefinition.from_dict(data, lambda name: find(name) if ":" in name else work)
    assert back.to_dict() == EVERYTHING.to_dict()
    assert back.edges == EVERYTHING.edges
    assert back.reducers == EVERYTHING.reducers
    named = tuple(replace(node, reference=back.node(node.name).reference) for node in EVERYTHING.nodes)
    assert back.nodes == named
    assert [node.function for node in back.nodes] == [work, Agent.plan, work]


def test_functions_that_can_be_imported_again_are_written_as_references() -> None:
    data = EVERYTHING.to_dict()
    assert [node["reference"] for node in data["nodes"]] == [f"{__name__}:work", f"{__name__}:Agent.plan", "search"]
    assert data["edges"][1]["when"] == {"function": f"{__name__}:is_done"}
    assert data["reducers"] == {"messages": "append", "count": "add", "text": f"{__name__}:longest"}


@pytest.mark.parametrize(
    "function",
    [lambda state: {}, partial(work, 1), Agent().act, Agent()],
    ids=["lambda", "partial", "method of an object", "object"],
)
def test_functions_that_cannot_be_imported_again_have_no_reference(function: Any) -> None:
    workflow = WorkflowDefinition(name="flow", nodes=(Node(name="a", function=function, start=True),))
    assert workflow.to_dict()["nodes"][0]["reference"] is None
    assert "neither a function nor" in faults_of(WorkflowDefinition.from_dict(workflow.to_dict()))[0]


def test_what_is_left_out_of_the_data_has_its_default() -> None:
    back = WorkflowDefinition.from_dict({"name": "flow", "nodes": [{"name": "a", "reference": "m:f", "start": True}]})
    assert back == WorkflowDefinition(name="flow", nodes=(Node(name="a", reference="m:f", start=True),))
    back.validate()


def test_references_are_kept_when_nobody_resolves_them() -> None:
    back = WorkflowDefinition.from_dict({"name": "f", "nodes": [{"name": "a", "reference": "m:f"}]})
    assert (back.nodes[0].reference, back.nodes[0].function) == ("m:f", None)


def test_a_condition_that_is_a_lambda_cannot_come_back_and_says_so() -> None:
    data = flow("a b", edge("a>b", when=lambda state: True)).to_dict()
    with pytest.raises(InvalidInput, match="write it as an expression"):
        WorkflowDefinition.from_dict(data, find)


def test_a_reducer_that_is_not_known_is_named_with_those_that_are() -> None:
    data = {"name": "f", "nodes": [], "reducers": {"messages": "appendd"}}
    with pytest.raises(InvalidInput, match=r"'messages' is 'appendd': name one of append, merge, add"):
        WorkflowDefinition.from_dict(data)


def test_data_of_a_newer_format_is_refused() -> None:
    with pytest.raises(InvalidInput, match="has format 2; this wtb reads up to 1"):
        WorkflowDefinition.from_dict({"name": "f", "nodes": [], "format": 2})


def in_node(**data: Any) -> dict[str, Any]:
    return {"name": "f", "nodes": [{"name": "a", "reference": "m:f", **data}]}


def in_edge(**data: Any) -> dict[str, Any]:
    return {"name": "f", "nodes": [], "edges": [{"sources": ["a"], "target": "b", **data}]}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ([], "a workflow as data must be a mapping"),
        ("flow", "a workflow as data must be a mapping"),
        ({}, "must have 'name'"),
        ({"name": "f"}, "must have 'nodes'"),
        ({"name": 5, "nodes": []}, "name cannot be 5"),
        ({"name": "f", "nodes": {"a": {}}}, "nodes cannot be"),
        ({"name": "f", "nodes": [], "edgs": []}, "unknown key 'edgs'; the keys are format, name"),
        ({"name": "f", "nodes": [], "format": "2"}, "format cannot be '2'"),
        ({"name": "f", "nodes": [], "reducers": []}, "reducers cannot be"),
        ({"name": "f", "nodes": ["a"]}, "node 1 must be a mapping"),
        ({"name": "f", "nodes": [{}]}, "must have 'name'"),
        (in_node(name=5), "node 1: name cannot be 5"),
        (in_node(start="no"), "node 1: start cannot be 'no'"),
        (in_node(reads="topic"), "node 1: reads cannot be 'topic'"),
        (in_node(reads=["a", 1]), "node 1: reads must hold texts only"),
        (in_node(timeout_s="5"), "node 1: timeout_s cannot be '5'"),
        (in_node(timeout=5), "node 1 has an unknown key 'timeout'"),
        (in_node(config=[1]), "node 1: config cannot be"),
        (in_node(retry={"times": "x"}), "retry of 'a': times cannot be 'x'"),
        (in_node(retry={"tries": 1}), "retry of 'a' has an unknown key 'tries'"),
        (in_edge(sources="a"), "edge 1: sources cannot be 'a'"),
        (in_edge(sources=[None]), "edge 1: sources must hold texts only"),
        (in_edge(target=["b"]), "edge 1: target cannot be"),
        (in_edge(when=5), "edge 1: when cannot be 5"),
        (in_edge(when={"code": "x"}), "must have 'function'"),
        (in_edge(priority="high"), "edge 1: priority cannot be 'high'"),
        (in_edge(condition="x"), "edge 1 has an unknown key 'condition'"),
        ({"name": "f", "nodes": [], "edges": [{"target": "b"}]}, "must have 'sources'"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_slip_in_the_data_is_an_error_that_says_where(data: Any, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        WorkflowDefinition.from_dict(data)
    assert problem in str(refused.value)
