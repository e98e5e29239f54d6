"""Worker processes of a batch: killed, killed again and again, orphaned, and refused."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import wtb
from tests.shell import Shell, environment
from wtb.batches import load_batch

pytestmark = pytest.mark.usefixtures("no_registered_classes")

MAILS = """
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import wtb

flow = wtb.Workflow("mails")
log, go, most = (Path(name).absolute() for name in ("log", "go", "most"))


def note(word):
    with open(log, "a") as out:
        out.write(f"{os.getpid()} {word}\\n")


@wtb.tool(effects="external")
def send(to):
    note(f"sent {to}")
    return f"sent to {to}"


@flow.node(start=True)
def prepare(state):
    note(f"prepare {state['to']}")
    return {"text": f"dear {state['to']}"}


@flow.node()
def mail(state, ctx):
    answer = ctx.tool(send, to=state["to"])
    if state["to"] == "deadly" or (state["to"] == "killed" and not go.exists()):
        go.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if state["to"] == "waits" and not go.exists():
        child, apart = (subprocess.Popen(["sleep", "600"], start_new_session=apart) for apart in (False, True))
        note(f"child {child.pid} {apart.pid}")
        while not go.exists():
            time.sleep(0.01)
    # Only sizes: if it read the files, its result would depend on them.
    if state["to"].startswith("many") and log.stat().st_size > most.stat().st_size:
        note("stuck")
        time.sleep(600)
    return {"answer": answer}


flow.edge("prepare", "mail")
flow.edge("mail", wtb.END)


def batch_of(*names):
    cases = [{"id": name, "input": {"to": name}} for name in names]
    return wtb.BatchTest(flow, cases=cases, evaluators=["steps"], runner="processes", workers=1)


killed, waiting = batch_of("killed", "deadly", "fine"), batch_of("waits")
many = replace(batch_of(*(f"many{number}" for number in range(30))), workers=2)
"""


pytestmark = pytest.mark.usefixtures("no_registered_classes")


@pytest.fixture
def shell(empty_folder: Path) -> Iterator[Shell]:
    yield Shell(empty_folder, mails=MAILS)
    sys.modules.pop("mails", None)


def noted(folder: Path) -> list[list[str]]:
    log = folder / "log"
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def wait_until(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def wait_until_a_node_begins(shell: Shell, driver: subprocess.Popen[str]) -> None:
    """Wait until a node has started its children; a driver that has ended before says why."""

    def has_begun() -> bool:
        assert driver.poll() is None, driver.communicate()
        return any(words[1] == "child" for words in noted(shell.folder))

    wait_until(has_begun, "the node does not begin")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_job_of_a_killed_worker_goes_on_elsewhere_and_after_three_workers_it_is_a_dead_letter(shell: Shell) -> None:
    shell.wtb("batch", "run", "mails.py:killed", code=3)
    words = Counter(" ".join(words[1:]) for words in noted(shell.folder))
    assert words["sent killed"] == words["sent deadly"] == words["sent fine"] == 1, "no effect is repeated"
    assert words["prepare killed"] == words["prepare deadly"] == 1, "it goes on from its last checkpoint"
    [dead] = shell.json("batch", "show", "mails", "--dead")
    assert (dead["case"], dead["node"]) == ("deadly", "mail")
    assert re.search(r"lost its worker 3 times while it ran node `mail`.*SIGKILL", dead["error"])
    assert [attempt["end"] for attempt in dead["attempts"]] == ["lost", "lost", "lost"]
    with wtb.Bench() as bench:
        result = bench.get_batch("mails")
        [killed] = [job for job in result.results if job.case_id == "killed"]
        assert [attempt.end for attempt in killed.attempts] == ["lost", "completed"]
        assert killed.attempts[0].reason == "was ended by signal SIGKILL"
        assert killed.attempts[0].pid != killed.attempts[1].pid
        [letter] = result.dead_letters
        assert letter.run.status == "cancelled", "a run that nobody runs does not claim to be running"
    told = [(each["event"], each["severity"]) for each in shell.json("events", "--batch", "mails", "--limit", "100")]
    assert Counter(told) == Counter(
        {
            ("batch.started", "info"): 1,
            ("worker.started", "info"): 4,
            ("worker.lost", "warning"): 4,
            ("batch.completed", "info"): 1,
        }
    )
    status = shell.json("batch", "status", "mails")
    assert (status["jobs"], status["lost_workers"]) == (
        {"total": 3, "completed": 2, "failed": 1, "dead": 1, "left": 0},
        4,
    )


def test_workers_and_what_they_started_end_with_a_killed_driver_and_the_same_command_goes_on(shell: Shell) -> None:
    command = ("batch", "run", "mails.py:waiting")
    driver = shell.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_until_a_node_begins(shell, driver)
    [child] = [words for words in noted(shell.folder) if words[1] == "child"]
    worker, *sleepers = int(child[0]), int(child[2]), int(child[3])
    assert worker != driver.pid
    [job] = shell.json("batch", "status", "mails")["running"]
    assert (job["case"], job["worker"]) == ("waits", str(worker))
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    wait_until(lambda: not any(map(is_running, (worker, *sleepers))), "the worker outlives its driver")
    left = shell.json("batch", "status", "mails")
    assert (left["status"], left["lost_driver"]["worker"]) == ("paused", str(driver.pid))
    (shell.folder / "go").touch()
    shell.wtb(*command)
    words = Counter(" ".join(words[1:]) for words in noted(shell.folder))
    assert (words["prepare waits"], words["sent waits"]) == (1, 1)


LEAVING = """
import subprocess

import wtb

flow = wtb.Workflow("leaving")


@flow.node(start=True)
def start(state):
    return {"left": [subprocess.Popen(["sleep", "600"], start_new_session=apart).pid for apart in (False, True)]}


cases = [{"id": "one", "input": {}}]
batch = wtb.BatchTest(flow, cases=cases, evaluators=["steps"], runner="processes", workers=1)
"""


def is_gone(pid: int) -> bool:
    return not is_running(pid)


def test_programs_that_a_job_left_running_end_with_the_batch(empty_folder: Path) -> None:
    shell = Shell(empty_folder, leaving=LEAVING)
    shell.wtb("batch", "run", "leaving.py")
    with wtb.Bench() as bench:
        [job] = bench.get_batch("leaving").results
    for pid in dict(job.state)["left"]:
        wait_until(partial(is_gone, pid), f"process {pid} outlives its batch")


def test_a_batch_whose_driver_is_killed_again_and_again_loses_no_job_and_repeats_no_effect(shell: Shell) -> None:
    command, most = ("batch", "run", "mails.py:many"), shell.folder / "most"
    for kills in range(1, 4):
        most.write_text(" " * 300 * kills)
        driver = shell.start(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(partial(_are_stuck, shell, 2 * kills), "the batch does not go on")
        driver.kill()
        driver.wait()
        wait_until(lambda: not any(map(is_running, workers_of(shell))), "the workers outlive their driver")
        left = shell.json("batch", "status", "mails")
        assert (left["status"], left["lost_driver"]["worker"]) == ("paused", str(driver.pid))
    most.write_text(" " * 100_000)
    shell.wtb(*command)
    assert shell.json("batch", "status", "mails")["jobs"]["completed"] == 30
    words = Counter(" ".join(words[1:]) for words in noted(shell.folder) if words[1] != "stuck")
    assert words == Counter({f"{word} many{number}": 1 for number in range(30) for word in ("prepare", "sent")})


def workers_of(shell: Shell) -> set[int]:
    return {int(words[0]) for words in noted(shell.folder)}


def _are_stuck(shell: Shell, times: int) -> bool:
    return sum(words[1] == "stuck" for words in noted(shell.folder)) >= times


def test_a_worker_refuses_a_value_that_differs_between_processes_and_names_it(shell: Shell) -> None:
    source = MAILS.replace("dear {", "{BEGAN} dear {").replace("flow = wtb", "BEGAN = time.time()\nflow = wtb", 1)
    (shell.folder / "mails.py").write_text(source)
    failed = shell.wtb("batch", "run", "mails.py:waiting", code=2)
    assert "BEGAN" in failed.stderr
    assert "node `prepare`" in failed.stderr
    assert noted(shell.folder) == []


def test_a_worker_refuses_a_file_that_was_edited_after_the_plan_and_names_the_difference(shell: Shell) -> None:
    file = shell.folder / "mails.py"
    file.write_text(MAILS.replace('"dear {', '"{GREETING} {').replace("flow = wtb", 'GREETING = "dear"\nflow = wtb', 1))

    def edit(_: object) -> None:
        file.write_text(file.read_text().replace('GREETING = "dear"', 'GREETING = "hello"'))

    refused = r"batch 'mails': node `prepare`: `GREETING` in mails\.py\. If the file was edited"
    with wtb.Bench() as bench, pytest.raises(wtb.InvalidInput, match=refused):
        bench.batch(load_batch("mails.py:waiting"), on_planned=edit)


def test_a_worker_that_cannot_import_the_module_says_why(shell: Shell) -> None:
    text = 'import sys\nif "worker" in sys.argv[0]:\n    raise RuntimeError("no graphics card here")\n'
    (shell.folder / "mails.py").write_text(text + MAILS)
    failed = shell.wtb("batch", "run", "mails.py:waiting", code=2)
    assert "no graphics card here" in failed.stderr


def test_a_worker_that_ends_before_it_is_ready_does_not_stop_the_driver_for_ever(shell: Shell) -> None:
    (shell.folder / "mails.py").write_text('import os, sys\nif "worker" in sys.argv[0]:\n    os._exit(7)\n' + MAILS)
    failed = shell.wtb("batch", "run", "mails.py:waiting", code=1)
    assert "ended with exit code 7 before it was ready, 3 times" in failed.stderr


def test_a_worker_that_is_killed_while_it_starts_is_started_again(shell: Shell) -> None:
    kill = "if not go.exists() and 'worker' in sys.argv[0]:\n    go.touch()\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    (shell.folder / "mails.py").write_text(f"import sys\n{MAILS}\n{kill}")
    shell.wtb("batch", "run", "mails.py:waiting")
    assert (shell.folder / "go").exists()


def test_a_workflow_of_the_script_that_runs_is_refused(shell: Shell) -> None:
    run = 'if __name__ == "__main__":\n    with wtb.Bench() as bench:\n        bench.batch(waiting)\n'
    (shell.folder / "script.py").write_text(MAILS + run)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=shell.folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert "is defined in the script that runs" in done.stderr
    assert "wtb batch run FILE" in done.stderr


def test_a_script_that_imports_its_workflow_runs_it_in_processes(shell: Shell) -> None:
    script = """
import mails
import wtb

if __name__ == "__main__":
    with wtb.Bench() as bench:
        cases = [{"id": "fine", "input": {"to": "fine"}, "expected": "sent to fine"}]
        result = bench.batch(mails.flow, cases=cases, evaluators=[wtb.ExactMatch("answer")], runner="processes")
        print(result.status, result.results[0].scores)
"""
    (shell.folder / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=shell.folder, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.stdout == "completed {'exact_match': 1.0}\n", done.stderr


def test_what_other_processes_cannot_share_or_import_is_refused_before_anything_runs(shell: Shell) -> None:
    batch = load_batch("mails.py:waiting")
    with wtb.Bench("memory://") as bench, pytest.raises(wtb.InvalidInput, match="memory:// is not one"):
        bench.batch(batch)
    local = wtb.Workflow("local")
    local.add_node("only", lambda state: {}, start=True)
    cases = [{"id": "a", "input": {"to": "fine"}, "expected": "a"}]
    with wtb.Bench() as bench:
        with pytest.raises(wtb.InvalidInput, match="no module holds workflow 'local' by a name"):
            bench.batch(local, cases=cases, evaluators=["steps"], runner="processes")
        with pytest.raises(wtb.InvalidInput, match=r"write `batch = wtb.BatchTest\(…\)` at the top level of a file"):
            bench.batch(batch.flow, cases=cases, evaluators=[wtb.ExactMatch(lambda _: 1)], runner="processes")
        assert bench.list_batches() == ()


def test_no_worker_gets_its_settings_on_the_command_line_or_as_a_variable(shell: Shell) -> None:
    (shell.folder / "wtb.toml").write_text('judge_key = "my-secret-key"\n')
    driver = shell.start("batch", "run", "mails.py:waiting", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_until_a_node_begins(shell, driver)
    worker = int(noted(shell.folder)[0][0])
    shown = Path(f"/proc/{worker}/cmdline").read_bytes() + Path(f"/proc/{worker}/environ").read_bytes()
    driver.kill()
    driver.communicate()
    assert b"secret" not in shown
    assert b"wtb.worker" in shown
