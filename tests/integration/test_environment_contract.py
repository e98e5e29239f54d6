"""What every environment promises: a node gives the same results and errors, and its `ctx` works, wherever it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.conftest import RUNNERS
from tests.integration import environment_nodes as nodes
from wtb.bench import Bench
from wtb.domain.environment import EnvironmentConfig
from wtb.domain.workflow import RetryPolicy
from wtb.flow import Workflow
from wtb.infrastructure.environments.grpc_server import EnvironmentServer, ServerOptions
from wtb.runs import Run

# Ray takes long to start: it has a process of its own, `make test-ray`.
KINDS = ["ray"] if "ray" in RUNNERS else ["in_process", "subprocess", "grpc"]
OUTSIDE = [kind for kind in KINDS if kind != "in_process"]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench("memory://") as bench:
        yield bench


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = EnvironmentServer(ServerOptions(listen="127.0.0.1:0", most=8))
    port = server.start()
    yield f"127.0.0.1:{port}"
    server.close()


Configure = Callable[..., EnvironmentConfig]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Configure:
    return _configure(request)


@pytest.fixture(params=OUTSIDE)
def outside(request: pytest.FixtureRequest) -> Configure:
    return _configure(request)


@pytest.fixture(params=[kind for kind in OUTSIDE if kind != "subprocess"])
def apart(request: pytest.FixtureRequest) -> Configure:
    """A kind with a workspace of its own."""
    return _configure(request)


def _configure(request: pytest.FixtureRequest) -> Configure:
    """Return a function that makes a config of the kind under test."""
    kind = str(request.param)
    if kind == "ray":
        request.getfixturevalue("ray_cluster")
    where = {"address": request.getfixturevalue("address")} if kind == "grpc" else {}
    return lambda **options: EnvironmentConfig(kind=kind, **where, **options)


def flow_of(function: Callable[..., Any], environment: str | EnvironmentConfig, **options: Any) -> Workflow:
    flow = Workflow(f"environment-{function.__name__}")
    flow.add_node("work", function, start=True, environment=environment, **options)
    return flow


def run(bench: Bench, function: Callable[..., Any], environment: str | EnvironmentConfig, **options: Any) -> Run:
    given = options.pop("given", {"a": 1, "b": 2})
    return bench.run(flow_of(function, environment, **options), given)


def failure(run: Run) -> Any:
    assert run.status == "failed"
    return run.execution.failure


def calls_of(run: Run) -> list[Any]:
    return [(call.tool, call.arguments, call.status) for call in run.calls]


def test_a_result_has_the_same_values_and_types(bench: Bench, kind: Configure) -> None:
    state = run(bench, nodes.add, kind()).state
    assert (state["sum"], state["at"], state["point"]) == (3, (1, 2), nodes.Point(1, 2))
    assert (state["pid"] == os.getpid()) == kind().is_in_process


def test_an_error_has_its_class_its_message_and_its_traceback(bench: Bench, kind: Configure) -> None:
    found = failure(run(bench, nodes.fail, kind()))
    assert (found.type, found.message) == ("OddNumber", "3 is odd: use 4")
    assert 'raise OddNumber(3, "use 4")' in found.traceback
    assert "environment_nodes.py" in found.traceback


def test_an_error_of_a_class_that_cannot_be_imported_keeps_its_name_and_its_bases(
    bench: Bench, kind: Configure
) -> None:
    found = failure(run(bench, nodes.local_class, kind(), retry=RetryPolicy(times=2, wait_s=0, errors=("ValueError",))))
    assert (found.type, found.message) == ("local_class.<locals>.Local", "5 is odd: use 6")


@pytest.mark.parametrize(
    ("function", "type", "message"),
    [
        (nodes.wrong, "InvalidInput", "node 'work' returned a int; return a mapping of what changes, or None"),
        (nodes.undeclared, "UndeclaredRead", "node 'work' reads 'b', but declares reads=[a]; add it there"),
    ],
)
def test_a_mistake_of_the_node_is_told_in_the_same_words(
    bench: Bench, kind: Configure, function: Callable[..., Any], type: str, message: str
) -> None:
    found = failure(run(bench, function, kind(), reads=["a"]))
    assert (found.type, found.message) == (type, message)


def test_a_value_that_cannot_be_stored_fails_the_node(bench: Bench, kind: Configure) -> None:
    found = failure(run(bench, nodes.unstorable, kind()))
    assert found.type == "StateNotSerialisable"
    assert "stream" in found.message


def test_everything_that_ctx_offers_works(bench: Bench, kind: Configure) -> None:
    nodes.SENT.clear()
    done = run(bench, nodes.everything, kind(), config={"size": 9})
    state, here = done.state, run(bench, nodes.everything, "in_process", config={"size": 9})
    keys = ("caught", "stepped", "plain", "config", "random", "place", "files")
    assert {key: state[key] for key in keys} == {key: here.state[key] for key in keys}
    assert nodes.SENT == ["hello", "hello"]  # the tool is called here, wherever the node runs
    assert calls_of(done) == calls_of(here)
    assert done.files() == here.files()
    types = {event.type for event in done.events()}
    assert {"node.logged", "node.emitted", "checkpoint.created", "tool.failed"} <= types
    assert done.usage == here.usage


def test_files_may_change_while_tools_are_called(bench: Bench, kind: Configure) -> None:
    done = run(bench, nodes.change_files_in_parallel, kind())
    assert done.status == "completed"
    added = {f"added-{number}": 70_000 for number in range(8)}
    assert done.state["found"] == {**added, "changing.bin": 200_029}
    assert sorted(done.files()) == sorted(done.state["found"])


def test_files_that_cannot_be_copied_fail_the_node(bench: Bench, apart: Configure, tmp_path: Path) -> None:
    found = failure(run(bench, nodes.pipe_over_a_folder, apart(), given={"folder": str(tmp_path)}))
    assert (found.type, found.message.partition(": ")[0]) == (
        "EnvironmentFailed",
        "the files of the node could not be copied between the machines",
    )
    assert run(bench, nodes.add, apart()).status == "completed"


def test_async_nodes_call_async_tools_at_the_same_time(bench: Bench, kind: Configure) -> None:
    state = run(bench, nodes.asynchronous, kind()).state
    assert (state["both"], state["later"], state["plain"]) == (["sent one", "sent two"], 2, 3)


def test_usage_inside_a_step_belongs_to_the_step(bench: Bench, kind: Configure) -> None:
    done = run(bench, nodes.paid_step, kind())
    (call,) = done.calls
    assert call.figures.usage.totals()["input_tokens"] == 7


def test_a_question_pauses_the_run_and_the_answer_continues_it(bench: Bench, kind: Configure) -> None:
    paused = run(bench, nodes.ask, kind())
    assert paused.status == "paused"
    resumed = paused.resume(answer="yes")
    assert resumed.state["said"] == "yes"


def test_another_attempt_gets_recorded_results(bench: Bench, kind: Configure) -> None:
    state = run(bench, nodes.flaky, kind(), retry=RetryPolicy(times=3, wait_s=0)).state
    assert state["attempt"] == 2


def test_a_node_that_takes_too_long_fails(bench: Bench, kind: Configure) -> None:
    found = failure(run(bench, nodes.sleep_long, kind(timeout_s=0.3)))
    assert found.type == "NodeTimeout"
    assert "node 'work' took longer than its 0.3 s" in found.message


def test_an_exit_in_a_node_is_a_failure_of_the_node(bench: Bench, outside: Configure) -> None:
    found = failure(run(bench, nodes.leave, outside()))
    assert (found.type, found.message) == ("SystemExit", "3")
    assert run(bench, nodes.add, outside()).status == "completed"


def test_a_node_that_computes_for_ever_is_really_ended(bench: Bench, outside: Configure) -> None:
    found = failure(run(bench, nodes.loop_for_ever, outside(), timeout_s=0.3))
    assert found.message == "node 'work' took longer than its 0.3 s, and was ended"


def test_the_variables_of_this_process_do_not_pass(
    bench: Bench, outside: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cret-value")
    monkeypatch.setenv("REGION", "north")
    config = outside(variables={"MODE": "test", "REGION": None})
    seen = run(bench, nodes.show_variables, config).state["variables"]
    assert (seen["MODE"], seen["REGION"]) == ("test", "north")
    assert "MY_TOKEN" not in seen
    assert "s3cret-value" not in str(seen)


def test_a_variable_with_another_value_needs_another_environment(
    bench: Bench, outside: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = outside(variables={"REGION": None})
    for region in ("north", "south"):
        monkeypatch.setenv("REGION", region)
        assert run(bench, nodes.show_variables, config).state["variables"]["REGION"] == region


@pytest.mark.usefixtures("no_registered_classes")  # their modules would take memory, too
@pytest.mark.parametrize("limit", [{"memory_gb": 0.25}, {"resources": wtb.Resources(num_cpus=1, memory_gb=0.25)}])
def test_a_node_that_takes_too_much_memory_fails_alone(bench: Bench, outside: Configure, limit: Any) -> None:
    config = outside(**limit)
    found = failure(run(bench, nodes.take_memory, config, given={"gb": 1}))
    assert (found.type, found.message) == ("OutOfMemory", "node 'work' was ended: it took more than 0.25 GB")
    assert run(bench, nodes.take_memory, config, given={"gb": 0.1}).status == "completed"


def test_a_node_whose_process_is_killed_fails_with_the_signal(bench: Bench, outside: Configure) -> None:
    found = failure(run(bench, nodes.killed, outside()))
    assert (found.type, found.message) == (
        "EnvironmentFailed",
        "node 'work' was ended: its process was ended by signal SIGKILL",
    )


@pytest.mark.parametrize("hang", [False, True])
def test_children_that_leave_the_session_end_with_the_node(
    bench: Bench, outside: Configure, hang: bool, tmp_path: Path
) -> None:
    given = {"count": 50, "folder": str(tmp_path), "hang": hang}
    done = run(bench, nodes.start_children, outside(), given=given, timeout_s=4 if hang else 60)
    assert done.status == ("failed" if hang else "completed")
    started = [int(each.name) for each in tmp_path.iterdir()]
    assert hang or len(started) == 50
    assert started
    assert [pid for pid in started if is_alive(pid)] == []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize("function", [nodes.limited, nodes.limited_async])
def test_a_limit_holds_and_its_breaker_opens(bench: Bench, kind: Configure, function: Callable[..., Any]) -> None:
    result = bench.batch(
        flow_of(function, kind()),
        name=f"{kind().kind} {function.__name__}",
        cases=[{"id": each, "input": {"a": each}} for each in "ab"],
        evaluators=["steps"],
        workers=1,
        limits={"service": wtb.Limit(1, break_after=1, cool_down_s=600)},
    )
    assert sorted(str(job.error and job.error["type"]) for job in result.results) == ["CircuitOpen", "ConnectionError"]
    assert [limit.held for limit in result.limits] == [0]
