"""Which workflow a file means, and what is said when it cannot be loaded; whose lines a traceback shows."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

import wtb
from wtb.domain.errors import InvalidInput
from wtb.loading import load_workflow, source_of

FLOW = """
import wtb

{name} = wtb.Workflow("one")

@{name}.node(start=True)
def stop(state):
    return helper(state)

def helper(state):
    try:
        return {{}}[state["key"]]
    except KeyError as error:
        raise ValueError("no such key") from error

{name}.edge("stop", wtb.END)
"""
GRAPH = """
from typing import TypedDict
from langgraph.graph import START, StateGraph

class State(TypedDict):
    x: int

builder = StateGraph(State)
builder.add_node("a", lambda state: {"x": 1})
builder.add_edge(START, "a")
agent = builder.compile()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_file_with_one_workflow_runs_whatever_its_name(folder: Path) -> None:
    file = folder / "only_pipeline.py"
    file.write_text(FLOW.format(name="pipeline") + "again = pipeline\n")
    flow = load_workflow(str(file))
    assert (flow.name, flow.source) == ("one", f"{file}:pipeline")


def test_a_graph_and_its_builder_are_one(folder: Path) -> None:
    file = folder / "only_graph.py"
    file.write_text(GRAPH)
    assert load_workflow(str(file)).source == f"{file}:agent"


def test_of_several_one_is_to_be_named(folder: Path) -> None:
    file = folder / "two_flows.py"
    file.write_text("import wtb\none = wtb.Workflow('1')\ntwo = wtb.Workflow('2')\n")
    with pytest.raises(InvalidInput, match="has no workflow called 'flow'; it has one, two"):
        load_workflow(str(file))
    with pytest.raises(InvalidInput, match="has no workflow called 'three'; it has one, two"):
        load_workflow(f"{file}:three")


def test_a_file_of_a_package_is_to_be_named_as_a_module(folder: Path) -> None:
    package = folder / "shop" / "flows"
    package.mkdir(parents=True)
    (folder / "shop" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "support.py").write_text("from . import parts\n")
    wanted = f"part of a package: name it shop.flows.support:flow, in the folder {folder}"
    with pytest.raises(InvalidInput, match=wanted):
        load_workflow(str(package / "support.py"))


@pytest.mark.parametrize("name", ["numbers", "click"])
def test_a_file_never_takes_the_place_of_a_module_in_use(folder: Path, name: str) -> None:
    used = importlib.import_module(name)
    file = folder / f"{name}.py"
    file.write_text(FLOW.format(name="flow"))
    with pytest.raises(InvalidInput, match=f"take the place of the module '{name}', .* give the file another name"):
        load_workflow(str(file))
    assert sys.modules[name] is used


@pytest.mark.parametrize("how", ["file", "module"])
def test_a_file_that_exits_when_it_is_imported_is_refused(
    folder: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "leaving_flow.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.chdir(folder)
    with pytest.raises(InvalidInput, match=r"leaving_flow.* cannot be imported: SystemExit"):
        load_workflow("leaving_flow.py" if how == "file" else "leaving_flow:flow")


def test_a_traceback_begins_with_the_lines_of_the_user(folder: Path) -> None:
    file = folder / "failing_flow.py"
    file.write_text(FLOW.format(name="flow"))
    with wtb.Bench("memory://") as bench:
        error = bench.run(load_workflow(str(file)), {"key": 1}).error
    assert error is not None
    cause, _, effect = error.traceback.partition("The above exception was the direct cause")
    assert cause.splitlines()[1] == f'  File "{file}", line 12, in helper'
    assert [line for line in effect.splitlines() if "File" in line] == [
        f'  File "{file}", line 8, in stop',
        f'  File "{file}", line 14, in helper',
    ]


@pytest.mark.parametrize(
    ("file", "is_found"),
    [
        ("/home/ann/project/statistics.py", True),
        ("/home/ann/.venv/lib/python3.13/site-packages/anns_flows/main.py", True),
        ("/home/ann/.venv/lib/python3.13/site-packages/numpy/random.py", False),
        (f"{Path(os.__file__).parent}/statistics.py", False),
        (f"{Path(wtb.__file__).parent}/domain/state.py", False),
    ],
    ids=["a project", "an installed package", "a large library", "Python itself", "WTB itself"],
)
def test_a_workflow_is_found_by_name_in_all_modules_but_those_of_libraries(
    file: str, is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("anns_flows")
    module.__file__ = file
    flow = wtb.Workflow("a")
    vars(module)["flow"] = flow
    monkeypatch.setitem(sys.modules, "anns_flows", module)
    assert source_of(flow) == ("anns_flows:flow" if is_found else None)


def test_a_workflow_is_named_before_its_graph_which_has_no_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    from langgraph.graph import START, MessagesState, StateGraph

    from wtb.langgraph import workflow

    graph = StateGraph(MessagesState)
    graph.add_node("one", lambda state: {})
    graph.add_edge(START, "one")
    flow = workflow(graph, name="shown")
    module = ModuleType("anns_graphs")
    module.__file__ = "/home/ann/project/graphs.py"
    vars(module).update(graph=graph, flow=flow)
    monkeypatch.setitem(sys.modules, "anns_graphs", module)
    assert source_of(flow) == "anns_graphs:flow"
    del vars(module)["flow"]
    assert source_of(flow) == "anns_graphs:graph"
