"""Values of numpy, of pandas and of the user's own classes in the states of runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import wtb
from wtb.domain.errors import InvalidInput, StateNotSerialisable
from wtb.infrastructure.codecs.msgpack import MsgpackCodec
from wtb.infrastructure.codecs.types import TypeRegistry


class Money:
    """A class of a library: no dataclass, and it holds what cannot be copied."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lock = threading.Lock()


wtb.serialisable(Money, name="test:Money", to=lambda money: money.text, from_=Money)


def flow_of(*functions: Any) -> wtb.Workflow:
    flow = wtb.Workflow("types")
    names = [function.__name__ for function in functions]
    for name, function in zip(names, functions, strict=True):
        flow.add_node(name, function, start=name == names[0])
    for source, target in zip(names, [*names[1:], wtb.END], strict=True):
        flow.edge(source, target)
    return flow


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    with wtb.Bench(folder=tmp_path / "wtb") as bench:
        yield bench


def test_a_node_may_return_numpy_scalars_and_the_next_one_sees_python_values(bench: wtb.Bench) -> None:
    def score(state: Any) -> Any:
        return {"score": np.float64(0.5), "counts": {"a": np.int64(2)}, "best": [np.bool_(1)]}

    def look(state: Any) -> Any:
        return {"types": [type(state["score"]).__name__, type(state["counts"]["a"]).__name__]}

    state = bench.run(flow_of(score, look), {}).state
    assert state["types"] == ["float", "int"]
    assert repr((state["score"], state["counts"], state["best"])) == "(0.5, {'a': 2}, [True])"


def test_the_input_may_hold_numpy_scalars(bench: wtb.Bench) -> None:
    def same(state: Any) -> Any:
        return {"kind": type(state["x"]).__name__}

    assert bench.run(flow_of(same), {"x": np.float32(1)}).state == {"x": 1.0, "kind": "float"}


def test_arrays_and_frames_go_through_a_run_and_each_node_has_its_own(bench: wtb.Bench) -> None:
    def make(state: Any) -> Any:
        return {"vector": np.arange(3), "table": pd.DataFrame({"a": [1, 2]}, index=["x", "y"])}

    def change(state: Any) -> Any:
        state["vector"][0] = 9
        return {"table": state["table"].assign(b=3.5)}

    run = bench.run(flow_of(make, change), {})
    assert run.state["vector"].tolist() == [0, 1, 2]
    assert run.state["table"].to_dict("index") == {"x": {"a": 1, "b": 3.5}, "y": {"a": 2, "b": 3.5}}
    changed = [item.path for item in run.diff(0).state]
    assert changed == ["state.table", "state.vector"]
    assert [item.path for item in run.diff("make", "change").state] == ["state.table"]


def test_an_array_of_objects_is_refused_by_its_place(bench: wtb.Bench) -> None:
    def make(state: Any) -> Any:
        return {"x": {"items": np.array([{"a": 1}])}}

    error = bench.run(flow_of(make), {}).error
    assert error is not None
    assert (
        "state.x.items: numpy.ndarray of dtype object cannot be stored without pickle; use .tolist()" in error.message
    )


def test_a_class_is_stored_by_the_functions_that_were_given_for_it(bench: wtb.Bench) -> None:
    def pay(state: Any) -> Any:
        return {"paid": Money("5 EUR"), "all": [Money("1 EUR")]}

    def look(state: Any) -> Any:
        return {"text": state["paid"].text + state["all"][0].text, "paid": state["paid"]}

    run = bench.run(flow_of(pay, look), {})
    assert run.state["text"] == "5 EUR1 EUR"
    assert run.state["paid"].text == "5 EUR"
    assert [item.path for item in run.diff("pay", "look").state] == ["state.text"]


def test_both_functions_are_needed() -> None:
    with pytest.raises(InvalidInput, match="needs both functions: to= makes plain data of a value"):
        wtb.serialisable(Path, to=str)
    with pytest.raises(InvalidInput, match=re.escape("say how to store it: wtb.serialisable(…, to=…, from_=…)")):
        wtb.serialisable(Path)


def test_a_function_that_fails_is_named() -> None:
    def broken(value: Any) -> Any:
        raise OSError("no disk")

    types = TypeRegistry()
    types.register(Money, to=broken, from_=Money)
    with pytest.raises(StateNotSerialisable, match=r"\[0\]: Money cannot be stored: its to= function raised OSError"):
        MsgpackCodec(types).encode([Money("1")], "state.x")


def test_a_batch_notices_that_the_functions_that_store_a_class_have_changed() -> None:
    def pay(state: Any) -> Any:
        return {"paid": Money("5 EUR")}

    def read(text: str) -> Money:
        return Money(text.lower())

    options: dict[str, Any] = {"cases": [{"id": "1", "input": {}}], "evaluators": ["steps"]}
    with wtb.Bench("memory://") as bench:
        bench.batch(flow_of(pay), **options)
        assert bench.plan(flow_of(pay), **options).run == 0
        try:
            wtb.serialisable(Money, name="test:Money", to=lambda money: money.text, from_=read)
            plan = bench.plan(flow_of(pay), **options)
        finally:
            wtb.serialisable(Money, name="test:Money", to=lambda money: money.text, from_=Money)
        assert (plan.run, plan.changes["pay"][0]) == (1, "the functions that store `test:Money`")


PROGRAM = """
import dataclasses
import wtb

@wtb.serialisable
@dataclasses.dataclass
class Customer:
    name: str
    orders: list

flow = wtb.Workflow("shop")

@flow.node(start=True)
def find(state):
    return {"customer": Customer("Ada", [1])}

@flow.node
def order(state):
    return {"customer": Customer("Ada", [1, 2])}

flow.edge("find", "order")
flow.edge("order", wtb.END)

if __name__ == "__main__":
    with wtb.Bench() as bench:
        bench.run(flow, {}, run_id="shop1")
"""


def test_values_of_unknown_classes_are_shown_as_class_and_fields(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, check=True)
    (tmp_path / "shop.py").unlink()  # nothing can be imported

    def said(*command: str) -> str:
        call = [sys.executable, "-m", "wtb", *command]
        return subprocess.run(call, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    shown = json.loads(said("show", "shop1", "--json"))["state"]["customer"]
    assert shown == {"class": "__main__.Customer", "name": "Ada", "orders": [1, 2]}
    assert "__main__.Customer" in said("show", "shop1", "--at", "find")
    assert "state.customer.orders[1]" in said("diff", "shop1", "find", "order")


def find(state: Any) -> Any:
    return {}


def order(state: Any) -> Any:
    return {"customer": state["customer"]}


def test_a_run_does_not_go_on_with_values_of_unknown_classes(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, check=True)
    with wtb.Bench(folder=tmp_path / ".wtb") as bench:
        assert repr(bench.get("shop1").state["customer"]).startswith("{'class': '__main__.Customer'")
        with pytest.raises(wtb.StorageError, match="not registered here"):
            bench.resume(bench.get("shop1").fork("find").id, flow_of(find, order))
