"""Nodes in a subprocess: interpreter, packages, folder, what a batch notices, and what ends with the run's process."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import wtb
from tests.integration import environment_nodes as nodes
from wtb.bench import Bench
from wtb.domain.environment import EnvironmentConfig
from wtb.domain.errors import DatabaseAway, InvalidInput
from wtb.flow import Workflow
from wtb.infrastructure.environments.subprocess import SubprocessEnvironment

SUBPROCESS = EnvironmentConfig(kind="subprocess")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench("memory://") as bench:
        yield bench


def flow_of(function: Any, environment: Any = SUBPROCESS, **options: Any) -> Workflow:
    flow = Workflow("in-a-subprocess")
    flow.add_node("work", function, start=True, environment=environment, **options)
    return flow


def failure(bench: Bench, flow: Workflow, given: Any = None) -> str:
    run = bench.run(flow, given or {})
    assert run.status == "failed"
    assert run.execution.failure is not None
    return run.execution.failure.message


def test_a_function_that_cannot_be_imported_is_refused(bench: Bench) -> None:
    told = failure(bench, flow_of(lambda state: {}))
    assert told == (
        "node 'work' runs in an environment, which imports its function by name: define the function at the top level "
        "of a module, or leave environment out"
    )


def test_an_unknown_kind_is_refused_with_the_known_ones_before_any_node_runs() -> None:
    with pytest.raises(InvalidInput, match="no environment 'docker'; there are grpc, in_process, ray, subprocess"):
        flow_of(nodes.add, "docker")


def test_if_the_database_is_away_at_the_end_one_sentence_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def away(*_: object, **__: object) -> None:
        raise DatabaseAway("the database does not answer")

    with Bench("memory://") as bench:
        assert bench.run(flow_of(nodes.add), {"a": 1, "b": 2}).status == "completed"
        monkeypatch.setattr(bench.services.storage, "unit_of_work", away)
    told = "an event about an environment could not be stored: the database does not answer"
    assert [record.getMessage() for record in caplog.records] == [told]
    assert "Traceback" not in caplog.text


def test_an_interpreter_that_does_not_exist_is_named(bench: Bench) -> None:
    told = failure(bench, flow_of(nodes.add, EnvironmentConfig(kind="subprocess", python="/no/such/python")))
    assert told == "there is no Python interpreter /no/such/python; give the path of one as python="


def test_a_working_folder_that_does_not_exist_is_named(bench: Bench) -> None:
    told = failure(bench, flow_of(nodes.add, EnvironmentConfig(kind="subprocess", working_folder="/no/such/folder")))
    assert told == ("an environment cannot be started: the working folder /no/such/folder: No such file or directory")


def test_a_variable_that_is_not_set_here_is_named(bench: Bench) -> None:
    told = failure(bench, flow_of(nodes.add, EnvironmentConfig(kind="subprocess", variables={"NOT_SET": None})))
    assert told == "the environment needs the variable NOT_SET, which is not set here; set it"


def test_packages_are_installed_once_and_found_first(tmp_path: Path) -> None:
    wheel = tmp_path / "environment_sample-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("environment_sample.py", "VALUE = 42\n")
        info = "environment_sample-1.0.dist-info"
        made.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: environment-sample\nVersion: 1.0\n")
        made.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        made.writestr(f"{info}/RECORD", "")
    config = EnvironmentConfig(kind="subprocess", packages=(str(wheel),), working_folder=str(tmp_path))
    with Bench(folder=tmp_path / "store") as bench:
        state = bench.run(flow_of(nodes.imported, config), {}).state
    (built,) = [each for each in (tmp_path / "store" / "environments").iterdir() if each.is_dir()]
    assert state["value"] == 42
    assert Path(state["file"]).is_relative_to(built)
    assert state["folder"] == str(tmp_path)


def test_a_package_that_cannot_be_installed_fails_the_node_with_the_installers_words(tmp_path: Path) -> None:
    missing = tmp_path / "missing-1.0-py3-none-any.whl"
    with Bench(folder=tmp_path / "store") as bench:
        told = failure(bench, flow_of(nodes.add, EnvironmentConfig(kind="subprocess", packages=(str(missing),))))
    assert f"{missing} could not be installed for an environment" in told


_PROJECT = {
    "project_nodes.py": """
        from pathlib import Path

        import wtb

        flow = wtb.Workflow("project")


        @flow.node(start=True, environment="subprocess")
        def work(state):
            print("printed")
            return {"read": Path("prompt.txt").read_text()}
    """,
    "project.py": """
        from pathlib import Path

        import wtb
        from project_nodes import flow

        options = {"name": "read", "cases": [{"id": "1", "input": {}}], "evaluators": [wtb.Steps()]}
        with wtb.Bench() as bench:
            bench.batch(flow, **options)
            print(bench.plan(flow, **options).run)
            Path("prompt.txt").write_text("two")
            print(bench.plan(flow, **options).run)
    """,
    "prompt.txt": "one",
}


def test_a_batch_keeps_results_until_a_file_that_the_node_read_changes(tmp_path: Path) -> None:
    for name, text in _PROJECT.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    printed = subprocess.run(
        [sys.executable, "project.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True
    )
    assert printed.stdout.split() == ["printed", "0", "1"]


def test_a_question_fails_a_job_of_a_batch(bench: Bench) -> None:
    result = bench.batch(flow_of(nodes.ask), name="asks", cases=[{"id": "1", "input": {}}], evaluators=[wtb.Steps()])
    (job,) = result.results
    assert job.status == "failed"
    assert job.run.status == "paused"


def test_a_node_runs_the_code_that_this_process_has_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "edited_node.py"
    file.write_text("def work(state):\n    return {'n': 1}\n")
    import edited_node  # type: ignore[import-not-found]

    with Bench("memory://") as bench:
        assert bench.run(flow_of(edited_node.work), {}).state["n"] == 1
        file.write_text("def work(state):\n    return {'n': 222}\n")
        assert bench.run(flow_of(edited_node.work), {}).state["n"] == 1  # both processes have the old code
        bench.run(flow_of(nodes.killed), {})
        told = failure(bench, flow_of(edited_node.work))
        assert "which has other code than this process: `work` in edited_node.py. Start your program again" in told
    sys.modules.pop("edited_node")


def test_a_node_does_not_run_with_other_helpers_than_this_process_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "node_of_helpers.py").write_text(
        "import edited_helpers\n\n\ndef work(state):\n    return {'n': edited_helpers.Helper().count()}\n"
    )
    helpers = tmp_path / "edited_helpers.py"
    text = "class Helper:\n    def count(self):\n        return _one()\n\n\ndef _one():\n    return 1\n"
    helpers.write_text(text)
    import node_of_helpers  # type: ignore[import-not-found]

    helpers.write_text(text.replace("1", "222"))
    try:
        with Bench("memory://") as bench:
            told = failure(bench, flow_of(node_of_helpers.work))
    finally:
        sys.modules.pop("node_of_helpers")
        sys.modules.pop("edited_helpers")
    assert "which has other code than this process: `_one` in edited_helpers.py" in told


def test_a_late_end_of_one_process_does_not_hit_the_next(bench: Bench, tmp_path: Path) -> None:
    environment = SubprocessEnvironment(SUBPROCESS, tmp_path)
    try:
        first = environment.start()
        environment.kill()
        second = environment.start()
        environment.end(first)
        assert environment.start() is second
        environment.end(second)
        assert environment.start() is not second
    finally:
        environment.close()


_DRIVER = """
import sys
import wtb
from tests.integration import environment_nodes as nodes

flow = wtb.Workflow("driver")
flow.add_node("work", nodes.start_children, start=True, environment="subprocess")
with wtb.Bench("memory://") as bench:
    bench.run(flow, {"count": 3, "folder": sys.argv[1], "hang": True})
"""


def test_everything_ends_when_the_process_of_the_run_is_killed(tmp_path: Path) -> None:
    driver = subprocess.Popen([sys.executable, "-c", _DRIVER, str(tmp_path)])
    try:
        _wait(lambda: len(list(tmp_path.iterdir())) == 3)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
    started = [int(each.name) for each in tmp_path.iterdir()]
    assert len(started) == 3
    _wait(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started))


def _wait(until: Any) -> None:
    deadline = time.monotonic() + 120
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.02)
