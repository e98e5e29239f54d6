"""The LangGraph saver on each storage: what graphs see, and what lies in the store."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send, interrupt

from tests.langgraph_graphs import Chat, chat_graph, every_type
from wtb.bench import Bench
from wtb.domain.errors import AlreadyExists, InvalidInput, StateNotSerialisable
from wtb.domain.ids import ExecutionId
from wtb.infrastructure.upkeep.garbage import SweptGarbage
from wtb.langgraph import Saver, history, import_threads

THREAD: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


@pytest.fixture
def saver(bench: Bench) -> Iterator[Saver]:
    """A saver over each storage in turn."""
    with Saver(bench) as opened:
        yield opened


def put(saver: BaseCheckpointSaver[Any], values: dict[str, Any], parent: Any = THREAD, **metadata: Any) -> Any:
    """Put a checkpoint in which all of these values are new, and return where it is."""
    versions = {channel: saver.get_next_version(None, None) for channel in values}
    checkpoint: Any = {**empty_checkpoint(), "id": str(uuid6(clock_seq=-2)), "channel_values": values}
    checkpoint["channel_versions"] = versions
    facts: Any = {"source": "loop", "step": 0, "parents": {}, **metadata}
    return saver.put(parent, checkpoint, facts, versions)


def read(saver: BaseCheckpointSaver[Any], config: Any = THREAD) -> dict[str, Any]:
    """Return the values of a checkpoint."""
    found = saver.get_tuple(config)
    assert found is not None
    return found.checkpoint["channel_values"]


def ids(saver: BaseCheckpointSaver[Any], thread_id: str = "t") -> list[str]:
    return [found.checkpoint["id"] for found in saver.list({"configurable": {"thread_id": thread_id}})]


def test_values_come_back_as_from_langgraphs_own_saver(saver: Saver) -> None:
    theirs = InMemorySaver()
    put(theirs, every_type())
    put(saver, every_type())

    expected, found = read(theirs), read(saver)

    assert set(found) == set(expected)
    for channel, value in expected.items():
        if channel == "array":
            np.testing.assert_array_equal(found[channel], value)
        else:
            assert repr(found[channel]) == repr(value), channel
            assert found[channel] == value, channel


def test_a_message_that_was_changed_in_place_is_stored_as_it_is_now(saver: Saver) -> None:
    messages = [HumanMessage("one", id="1"), AIMessage("two", id="2", additional_kwargs={"deep": {"list": [1]}})]
    first = put(saver, {"messages": messages})
    messages[1].additional_kwargs["deep"]["list"].append(2)
    second = put(saver, {"messages": [*messages, AIMessage("three", id="3")]}, first)
    messages[0].content = "other"
    put(saver, {"messages": messages}, second)

    assert [message.content for message in read(saver)["messages"]] == ["other", "two"]
    assert read(saver, second)["messages"][1].additional_kwargs == {"deep": {"list": [1, 2]}}
    assert [message.content for message in read(saver, second)["messages"]] == ["one", "two", "three"]
    assert read(saver, first)["messages"][1].additional_kwargs == {"deep": {"list": [1]}}


def test_a_mapping_in_a_list_that_was_changed_in_place_is_stored_as_it_is_now(saver: Saver) -> None:
    items: list[Any] = [{"a": 1}, [1], "text"]
    first = put(saver, {"items": items})
    items[0]["a"] = True
    items[1].append(2)
    second = put(saver, {"items": [*items, "more"]}, first)

    assert repr(read(saver, second)["items"]) == "[{'a': True}, [1, 2], 'text', 'more']"
    assert repr(read(saver, first)["items"]) == "[{'a': 1}, [1], 'text']"


def test_a_node_that_asks_twice_gets_both_answers(saver: Saver) -> None:
    def node(state: Chat) -> Any:
        return {"messages": [HumanMessage(f"{interrupt('name')} {interrupt('age')}", id="1")]}

    builder: StateGraph[Any] = StateGraph(Chat)
    graph = builder.add_node("node", node).add_edge(START, "node").compile(checkpointer=saver)
    graph.invoke({"messages": []}, THREAD)
    graph.invoke(Command(resume="Ann"), THREAD)
    final = graph.invoke(Command(resume="30"), THREAD)

    assert [message.content for message in final["messages"]] == ["Ann 30"]
    assert graph.get_state(THREAD).next == ()


def test_a_channel_may_become_a_list_something_else_and_a_list_again(saver: Saver) -> None:
    at, expected = THREAD, {}
    for value in ([1, 2], "text", [1, 2, 3], [], [1], None, []):
        at = put(saver, {"x": value}, at)
        expected[at["configurable"]["checkpoint_id"]] = value

    for id, value in expected.items():
        assert read(saver, {"configurable": {"thread_id": "t", "checkpoint_id": id}}) == {"x": value}


def test_another_saver_on_the_same_store_goes_on_where_this_one_stopped(bench: Bench) -> None:
    at = put(Saver(bench), {"items": [{"n": 0}], "text": "a"})
    at = put(Saver(bench), {"items": [{"n": 0}, {"n": 1}], "text": "a"}, at)
    put(Saver(bench), {"items": [{"n": 5}, {"n": 1}]}, at)

    assert read(Saver(bench)) == {"items": [{"n": 5}, {"n": 1}]}
    assert read(Saver(bench), at) == {"items": [{"n": 0}, {"n": 1}], "text": "a"}


def test_a_growing_list_costs_what_it_grows_by(bench: Bench, saver: Saver) -> None:
    messages: list[Any] = []
    at = THREAD
    for number in range(40):
        messages.append(AIMessage("x" * 1000, id=str(number)))
        at = put(saver, {"messages": list(messages), "constant": "c" * 10_000}, at)

    with bench.services.storage.unit_of_work(readonly=True) as uow:
        infos = uow.checkpoints.list_infos(ExecutionId("t"))
    assert max(info.size_bytes for info in infos[1:]) < 15_000
    assert len(read(saver)["messages"]) == 40


def test_channels_that_did_not_change_are_not_stored_again(bench: Bench, saver: Saver) -> None:
    first = put(saver, {"a": "x" * 5000, "b": 1})
    found = saver.get_tuple(first)
    assert found is not None
    checkpoint: Any = {**found.checkpoint, "id": str(uuid6(clock_seq=-2)), "channel_values": {"b": 2}}
    checkpoint["channel_versions"] = {**found.checkpoint["channel_versions"], "b": "2"}
    saver.put(first, checkpoint, {"source": "loop", "step": 1}, {"b": "2"})

    assert read(saver) == {"a": "x" * 5000, "b": 2}
    with bench.services.storage.unit_of_work(readonly=True) as uow:
        assert uow.checkpoints.list_infos(ExecutionId("t"))[-1].size_bytes < 2000


def test_what_cannot_be_stored_is_named_by_its_channel(saver: Saver) -> None:
    with pytest.raises(StateNotSerialisable, match=r"channel 'client': function cannot be stored"):
        put(saver, {"text": "a", "client": lambda: None})
    with pytest.raises(StateNotSerialisable, match=r"channel 'tools'"):
        put(saver, {"tools": [1, object()]})
    with pytest.raises(StateNotSerialisable, match=r"channel 'out'"):
        saver.put_writes({"configurable": {"thread_id": "t", "checkpoint_id": "1"}}, [("out", object())], "task")
    assert saver.get_tuple(THREAD) is None


def test_nothing_is_ever_pickled(bench: Bench) -> None:
    saver = Saver(bench, serde=JsonPlusSerializer(pickle_fallback=True))

    with pytest.raises(StateNotSerialisable, match=r"channel 'x'.*no pickles"):
        put(saver, {"x": object()})


def test_versions_grow_and_do_not_collide_between_forks(saver: Saver) -> None:
    version, versions = None, []
    for _ in range(50):
        version = saver.get_next_version(version, None)
        versions.append(version)

    assert versions == sorted(versions)
    assert saver.get_next_version(versions[3], None) not in versions
    assert saver.get_next_version(7, None) == 8
    theirs = "00000000000000000000000000000009.0.5"
    assert theirs < saver.get_next_version(theirs, None)


def test_a_thread_stands_where_its_branch_does(bench: Bench, saver: Saver) -> None:
    first = put(saver, {"n": 1})
    second = put(saver, {"n": 2}, first)
    put(saver, {"n": 3}, second)
    with bench.services.storage.unit_of_work() as uow:  # what a rollback does
        branch = uow.branches.get(uow.executions.get(ExecutionId("t")).branch_id)
        assert branch.head_id is not None
        uow.branches.move_head(branch.id, first["configurable"]["checkpoint_id"], expected=branch.head_id)
        uow.commit()

    assert read(saver) == {"n": 1}
    put(saver, {"n": 4}, first)
    assert read(saver) == {"n": 4}
    assert len(ids(saver)) == 4


def test_going_on_from_an_earlier_checkpoint_makes_a_branch_and_stands_there(bench: Bench, saver: Saver) -> None:
    first = put(saver, {"n": 1})
    end_of_main = put(saver, {"n": 2}, first)
    put(saver, {"n": 3}, first)
    assert read(saver) == {"n": 3}
    put(saver, {"n": 4}, end_of_main)

    assert read(saver) == {"n": 4}
    found = bench.get("t").history
    assert [branch.name for branch in found.branches] == ["main", "main ~2"]
    assert len(found.lineage()) == 3


def test_two_savers_that_go_on_from_one_checkpoint_lose_nothing(bench: Bench) -> None:
    one, two = Saver(bench), Saver(bench)
    first = put(one, {"n": 1})
    second = put(one, {"n": 2}, first)
    put(two, {"n": 20}, first)
    third = put(one, {"n": 3}, second)

    assert len(ids(one)) == len(ids(two)) == 4
    assert read(two, third) == {"n": 3}
    assert read(Saver(bench)) in ({"n": 3}, {"n": 20})


def test_a_checkpoint_that_a_person_named_is_passed_over(bench: Bench, saver: Saver) -> None:
    put(saver, {"n": 1})
    bench.get("t").checkpoint("here")
    at = saver.get_tuple(THREAD)
    assert at is not None
    put(saver, {"n": 2}, at.config)

    assert read(saver) == {"n": 2}
    assert len(ids(saver)) == 2


def test_one_id_may_be_used_in_several_threads_and_namespaces(saver: Saver) -> None:
    checkpoint: Any = {**empty_checkpoint(), "id": "same"}
    places = [("a", ""), ("b", ""), ("a", "child:1"), ("b", "child:1")]
    for number, (thread_id, namespace) in enumerate(places):
        config: Any = {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace}}
        new: Any = {**checkpoint, "channel_values": {"n": number}, "channel_versions": {"n": 1}}
        saver.put_writes(saver.put(config, new, {"step": number}, {"n": 1}), [("out", number)], "task")

    for number, (thread_id, namespace) in enumerate(places):
        found = saver.get_tuple(
            {"configurable": {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": "same"}}
        )
        assert found is not None
        assert found.checkpoint["channel_values"] == {"n": number}
        assert found.pending_writes == [("task", "out", number)]


def test_a_task_writes_once_but_may_change_its_error(saver: Saver) -> None:
    at = put(saver, {"n": 1})
    saver.put_writes(at, [("a", 1), ("b", [AIMessage("x", id="1")])], "task", "~1")
    saver.put_writes(at, [("a", 2), ("b", 3), ("c", 4)], "task", "~1")
    saver.put_writes(at, [("__error__", "first")], "task", "~1")
    saver.put_writes(at, [("__error__", "second")], "task", "~1")
    saver.put_writes(at, [("a", "large" * 5000)], "before", "~0")

    found = saver.get_tuple(at)
    assert found is not None
    assert found.pending_writes == [
        ("before", "a", "large" * 5000),
        ("task", "__error__", "second"),
        ("task", "a", 1),
        ("task", "b", [AIMessage("x", id="1")]),
        ("task", "c", 4),
    ]


def test_a_sweep_keeps_what_tasks_wrote(bench: Bench, saver: Saver) -> None:
    at = put(saver, {"n": 1})
    saver.put_writes(at, [("out", "large" * 5000)], "task")
    services = bench.services
    garbage = SweptGarbage(services.storage, services.objects, codec=services.codec, clock=services.clock)
    garbage.sweep(timedelta(seconds=-1))

    found = Saver(bench).get_tuple(at)
    assert found is not None
    assert found.pending_writes == [("task", "out", "large" * 5000)]


class TestCopies:
    def test_a_copy_has_all_and_then_goes_its_own_way(self, saver: Saver) -> None:
        first = put(saver, {"n": 1})
        second = put(saver, {"n": 2}, first)
        saver.put_writes(second, [("out", "before")], "task")
        put(saver, {"n": 9}, first)
        child = {"configurable": {"thread_id": "t", "checkpoint_ns": "child:1"}}
        put(saver, {"inner": 1}, child)
        saver.copy_thread("t", "copy")

        saver.put_writes(second, [("out", "after")], "other task")
        put(saver, {"n": 3}, second)
        copied: Any = {"configurable": {**second["configurable"], "thread_id": "copy"}}
        found = saver.get_tuple(copied)
        assert found is not None
        assert found.pending_writes == [("task", "out", "before")]
        saver.put_writes(copied, [("out", "own")], "own task")
        put(saver, {"n": 30}, copied)

        assert read(saver) == {"n": 3}
        assert read(saver, {"configurable": {"thread_id": "copy"}}) == {"n": 30}
        assert read(saver, {"configurable": {"thread_id": "copy", "checkpoint_ns": "child:1"}}) == {"inner": 1}
        assert len(ids(saver)) == len(ids(saver, "copy")) == 5
        assert [write[0] for write in saver.get_tuple(second).pending_writes or []] == ["other task", "task"]  # type: ignore[union-attr]

    def test_a_copy_of_a_copy_outlives_what_it_was_copied_from(self, saver: Saver) -> None:
        at = put(saver, {"items": [1]})
        at = put(saver, {"items": [1, 2]}, at)
        saver.put_writes(at, [("out", 1)], "task")
        saver.copy_thread("t", "copy")
        put(saver, {"items": [1, 2, 3]}, {"configurable": {**at["configurable"], "thread_id": "copy"}})
        saver.copy_thread("copy", "again")
        expected = {name: _tuples(saver, name) for name in ("copy", "again")}

        saver.delete_thread("t")
        assert {name: _tuples(saver, name) for name in expected} == expected
        saver.delete_thread("copy")
        assert _tuples(saver, "again") == expected["again"]
        assert ids(saver) == ids(saver, "copy") == []
        put(saver, {"items": [9]})
        assert read(saver) == {"items": [9]}

    def test_pruning_one_leaves_the_other(self, saver: Saver) -> None:
        at = put(saver, {"n": 1})
        put(saver, {"n": 2}, at)
        saver.copy_thread("t", "copy")
        expected = _tuples(saver, "t")

        saver.prune(["copy"])
        assert len(ids(saver, "copy")) == 1
        assert _tuples(saver, "t") == expected
        saver.prune(["t"])
        assert len(ids(saver)) == 1
        assert read(saver, {"configurable": {"thread_id": "copy"}}) == read(saver) == {"n": 2}

    def test_a_thread_is_not_copied_over_another(self, saver: Saver) -> None:
        put(saver, {"n": 1})
        put(saver, {"n": 2}, {"configurable": {"thread_id": "u"}})

        with pytest.raises(AlreadyExists):
            saver.copy_thread("t", "u")


def _tuples(saver: Saver, thread_id: str) -> list[Any]:
    found = saver.list({"configurable": {"thread_id": thread_id}})
    return [(each.checkpoint["id"], each.checkpoint, each.metadata, each.pending_writes) for each in found]


def test_runs_are_deleted_wherever_they_wrote(saver: Saver) -> None:
    at = put(saver, {"n": 1}, run_id="a")
    at = put(saver, {"n": 2}, at, run_id="b")
    put(saver, {"n": 3}, at, run_id="c")
    put(saver, {"n": 4}, {"configurable": {"thread_id": "u"}}, run_id="c")
    saver.copy_thread("t", "copy")

    saver.delete_for_runs(["c", "unknown"])

    assert read(saver) == read(saver, {"configurable": {"thread_id": "copy"}}) == {"n": 2}
    assert ids(saver, "u") == []
    saver.delete_for_runs(["a"])
    assert read(saver) == {"n": 2}
    assert len(ids(saver)) == len(ids(saver, "copy")) == 1


def test_what_is_encrypted_is_nowhere_in_clear_text(tmp_path: Path) -> None:
    serde = EncryptedSerializer(_Caesar(), JsonPlusSerializer())
    with Saver(folder=tmp_path / "wtb", serde=serde) as saver:
        at = put(saver, {"messages": [AIMessage("the secret", id="1")], "text": "the secret"}, note="the secret")
        saver.put_writes(at, [("out", "the secret")], "task")
        assert read(saver) == {"messages": [AIMessage("the secret", id="1")], "text": "the secret"}
        assert [found.metadata["note"] for found in saver.list(THREAD, filter={"note": "the secret"})] == ["the secret"]  # type: ignore[typeddict-item]
    stored = b"".join(path.read_bytes() for path in (tmp_path / "wtb").iterdir() if path.is_file())
    assert b"the secret" not in stored


class _Caesar:
    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "caesar", bytes((byte + 3) % 256 for byte in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return bytes((byte - 3) % 256 for byte in ciphertext)


class TestGraphs:
    def test_runs_forks_and_reads_its_history_as_with_langgraphs_own_saver(self, saver: Saver) -> None:
        assert _story(saver) == _story(InMemorySaver())

    def test_finished_members_of_a_superstep_are_not_run_again(self, bench: Bench) -> None:
        ran: list[str] = []
        config: Any = {"configurable": {"thread_id": "t"}}
        saver = Saver(bench)
        graph = chat_graph(fail_in="right", ran=ran, fails_when=lambda: _has_writes(saver)).compile(checkpointer=saver)
        with pytest.raises(RuntimeError, match="right failed"):
            graph.invoke({"messages": [HumanMessage("hi", id="0")], "count": 0}, config)
        result = chat_graph(ran=ran).compile(checkpointer=Saver(bench)).invoke(None, config)

        assert sorted(ran) == ["ask", "end", "left", "right", "right"]
        assert result["count"] == 4

    def test_an_interrupt_is_answered_by_another_process(self, bench: Bench) -> None:
        def ask(state: Any) -> dict[str, Any]:
            return {"answer": interrupt("how many?")}

        class State(TypedDict):
            answer: int

        graph = StateGraph(State)
        graph.add_node("ask", ask)
        graph.add_edge(START, "ask")
        config: Any = {"configurable": {"thread_id": "t"}}
        graph.compile(checkpointer=Saver(bench)).invoke({"answer": 0}, config)
        state = graph.compile(checkpointer=Saver(bench)).get_state(config)
        assert [each.value for each in state.interrupts] == ["how many?"]

        result = graph.compile(checkpointer=Saver(bench)).invoke(Command(resume=42), config)
        assert result == {"answer": 42}

    def test_async_graphs_work(self, saver: Saver) -> None:
        graph = chat_graph().compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "t"}}

        async def run() -> list[Any]:
            await graph.ainvoke({"messages": [HumanMessage("hi", id="0")], "count": 0}, config)
            return [snapshot async for snapshot in graph.aget_state_history(config)]

        assert len(asyncio.run(run())) == 5
        assert graph.get_state(config).values["count"] == 4

    @pytest.mark.parametrize("durability", ["sync", "async", "exit"])
    def test_delta_channels_are_rebuilt(self, saver: Saver, durability: Any) -> None:
        assert _delta_story(saver, durability) == _delta_story(InMemorySaver(), durability)


def _has_writes(saver: Saver) -> bool:
    """Whether a sibling that has finished is in the store while this node still runs."""
    found = saver.get_tuple(THREAD)
    return found is not None and any(channel == "messages" for _, channel, _ in found.pending_writes or [])


def _story(saver: BaseCheckpointSaver[Any]) -> Any:
    """Run, fork with another state, run a subgraph and a fan-out, and return everything that a user can see."""
    graph = chat_graph().compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"messages": [HumanMessage("hi", id="0")], "count": 0}, config, durability="sync")
    earlier = list(graph.get_state_history(config))[2]
    graph.update_state(earlier.config, {"count": 100})
    graph.invoke(None, config)
    graph.invoke({"messages": [HumanMessage("again", id="9")]}, config, durability="exit")
    outer = _outer_graph().compile(checkpointer=saver)
    nested: Any = {"configurable": {"thread_id": "nested"}}
    result = outer.invoke({"items": ["a", "b"]}, nested)
    return (
        [_seen(snapshot) for snapshot in graph.get_state_history(config)],
        [_seen(snapshot) for snapshot in outer.get_state_history(nested)],
        result,
        sorted(found.config["configurable"]["checkpoint_ns"].partition(":")[0] for found in saver.list(nested)),
    )


def _outer_graph() -> StateGraph[Any]:
    class State(TypedDict):
        items: Annotated[list[str], operator.add]

    inner = StateGraph(State)
    inner.add_node("double", lambda state: {"items": [f"{len(state['items'])} in all"]})
    inner.add_edge(START, "double")
    graph = StateGraph(State)
    graph.add_node("split", lambda state: {})
    graph.add_node("each", lambda state: {"items": [state["item"] * 2]})
    graph.add_node("inner", inner.compile(checkpointer=True))
    graph.add_edge(START, "split")
    graph.add_conditional_edges("split", lambda state: [Send("each", {"item": item}) for item in state["items"]])
    graph.add_edge("each", "inner")
    graph.add_edge("inner", END)
    return graph


def _seen(snapshot: Any) -> Any:
    return (
        snapshot.values,
        snapshot.next,
        {key: value for key, value in snapshot.metadata.items() if key in ("source", "step")},
        [(task.name, task.error, task.interrupts, task.result) for task in snapshot.tasks],
        snapshot.parent_config is None,
    )


def _extend(items: list[str], writes: list[list[str]]) -> list[str]:
    return [*items, *(item for write in writes for item in write)]


class _Said(TypedDict):
    items: Annotated[list[str], DeltaChannel(_extend, snapshot_frequency=3)]


def _delta_story(saver: BaseCheckpointSaver[Any], durability: Any) -> Any:
    graph = StateGraph(_Said)
    graph.add_node("say", lambda state: {"items": [f"item {len(state['items'])}"]})
    graph.add_edge(START, "say")
    graph.add_conditional_edges("say", lambda state: END if len(state["items"]) % 8 == 0 else "say")
    compiled = graph.compile(checkpointer=saver)
    config: Any = {"configurable": {"thread_id": "t"}}
    compiled.invoke({"items": ["first"]}, config, durability=durability)
    compiled.invoke({"items": ["second"]}, config, durability=durability)
    histories = [snapshot.values for snapshot in compiled.get_state_history(config)]
    if isinstance(saver, Saver):
        saver.prune(["t"])
        assert compiled.get_state(config).values == histories[0]
    return histories


def test_the_history_of_any_graph_can_be_read(saver: Saver) -> None:
    for checkpointer in (saver, InMemorySaver()):
        graph = chat_graph().compile(checkpointer=checkpointer)
        config: Any = {"configurable": {"thread_id": "t"}}
        graph.invoke({"messages": [HumanMessage("hi", id="0")], "count": 0}, config)
        earlier = list(graph.get_state_history(config))[2]
        graph.invoke(None, graph.update_state(earlier.config, {"count": 100}))

        found = history(graph, "t")

        assert found.completed_nodes() == ("ask", "left", "right", "end")
        assert found.completed_nodes("main") == ("ask", "left", "right", "end")
        assert [branch.name for branch in found.branches] == ["main", "main ~2"]
        assert found.by_node("ask").step == 2
        assert found.latest() is not None


def _thread(saver: BaseCheckpointSaver[Any], graph: StateGraph[Any], thread_id: str) -> Any:
    config: Any = {"configurable": {"thread_id": thread_id}}
    return [_seen(snapshot) for snapshot in graph.compile(checkpointer=saver).get_state_history(config)]


def _check_import(address: str, theirs: BaseCheckpointSaver[Any], ours: Saver) -> None:
    """Let a story happen with another saver, import it, and look for differences."""
    _story(theirs)

    assert import_threads(address, ours).threads == 2
    assert import_threads(address, ours).present == ("nested", "t")
    assert _thread(ours, chat_graph(), "t") == _thread(theirs, chat_graph(), "t")
    assert _thread(ours, _outer_graph(), "nested") == _thread(theirs, _outer_graph(), "nested")
    config: Any = {"configurable": {"thread_id": "t"}}
    result = chat_graph().compile(checkpointer=ours).invoke({"messages": [HumanMessage("more", id="m")]}, config)
    assert result["messages"][-1].content == "end"


def test_the_database_of_a_sqlite_saver_is_imported(saver: Saver, tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with SqliteSaver.from_conn_string(str(path)) as theirs:
        _check_import(str(path), theirs, saver)


def test_the_database_of_a_postgres_saver_is_imported(saver: Saver, postgres_url: str) -> None:
    with PostgresSaver.from_conn_string(postgres_url) as theirs:
        theirs.setup()
        _check_import(postgres_url, theirs, saver)


def test_what_is_no_database_of_langgraph_is_refused(saver: Saver, tmp_path: Path, postgres_url: str) -> None:
    (tmp_path / "other").write_text("no database at all, but long enough to be taken for one" * 10)
    for address in (str(tmp_path / "missing"), str(tmp_path / "other"), postgres_url):
        with pytest.raises(InvalidInput):
            import_threads(address, saver)
