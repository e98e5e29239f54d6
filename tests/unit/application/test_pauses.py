"""Pauses: a run knows why it waits by a kind, and never by the text that people read."""

from collections.abc import Iterator

import pytest

from wtb.bench import Bench
from wtb.domain.execution import Pause, PauseKind
from wtb.domain.workflow import END
from wtb.flow import Workflow


def two_nodes() -> Workflow:
    flow = Workflow("flow")
    flow.add_node("one", lambda state: {"one": 1}, start=True)
    flow.add_node("two", lambda state, ctx: {"two": ctx.ask("Go on?")})
    flow.edge("one", "two")
    flow.edge("two", END)
    return flow


@pytest.fixture
def bench() -> Iterator[Bench]:
    with Bench("memory://", secret_patterns=("break before",)) as bench:
        yield bench


def test_a_run_passes_its_breakpoint_though_the_text_of_the_reason_is_masked(bench: Bench) -> None:
    run = bench.run(two_nodes(), {}, break_before=["one"])
    assert run.waiting is not None
    assert "break before" not in run.waiting.reason
    assert run.resume().state["one"] == 1


def test_a_pause_says_its_kind(bench: Bench) -> None:
    run = bench.run(two_nodes(), {}, break_before=["one"], break_after=["one"])
    kinds = [run.waiting and run.waiting.kind]
    for _ in range(2):
        run = run.resume()
        kinds.append(run.waiting and run.waiting.kind)
    run.rollback(0)
    kinds.append(run.waiting and run.waiting.kind)
    assert kinds == [PauseKind.BREAK_BEFORE, PauseKind.BREAK_AFTER, PauseKind.QUESTION, PauseKind.MOVED]


@pytest.mark.parametrize("kind", PauseKind)
def test_a_pause_is_read_as_it_was_written(kind: PauseKind) -> None:
    pause = Pause(reason="because", kind=kind, node="n", question={"question": "?"})
    assert Pause.from_data(pause.to_data()) == pause


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("break before one, two", PauseKind.BREAK_BEFORE),
        ("break after one", PauseKind.BREAK_AFTER),
        ("question", PauseKind.QUESTION),
        ("in doubt", PauseKind.IN_DOUBT),
        ("asked to pause", PauseKind.REQUESTED),
        ("interrupted", PauseKind.REQUESTED),
        ("rolled back to one#1", PauseKind.MOVED),
        ("something else", PauseKind.OTHER),
    ],
)
def test_the_kind_of_a_pause_of_an_earlier_version_is_read_from_its_text(reason: str, kind: PauseKind) -> None:
    assert Pause.from_data({"reason": reason, "node": None, "question": None}).kind is kind


def test_the_kind_of_a_later_version_counts_as_other() -> None:
    assert Pause.from_data({"reason": "break before one", "kind": "of a later version"}).kind is PauseKind.OTHER
