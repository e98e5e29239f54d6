"""Batch tests as a person types them: one real process a run, in a folder of its own."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import wtb
from tests.shell import Shell, Terminal
from wtb.cli import main

BATCH = """
import pathlib, time, wtb

RIGHT = 20
flow = wtb.Workflow("qa")


def done(node, state):
    with open("log", "a") as log:
        log.write(f"{node} {state['number']}\\n")
    while is_stuck():
        time.sleep(0.01)


def is_stuck():
    try:
        return len(open("log").readlines()) > int(open(f"../{pathlib.Path.cwd().name}.stuck").read())
    except FileNotFoundError:
        return False


@flow.node(start=True)
def look(state):
    done("look", state)
    return {"found": str(state["number"])}


@flow.variant("look", "twice")
def look_twice(state):
    done("look=twice", state)
    return {"found": str(state["number"]), "again": True}


@flow.node()
def answer(state):
    done(f"answer {state.get('again')}", state)
    return {"answer": state["found"] if state["number"] < RIGHT else "?"}


@flow.variant("answer", "bad")
def bad(state):
    done(f"answer=bad {state.get('again')}", state)
    if state["number"] == 3 and pathlib.Path("broken").exists():
        raise ValueError("no answer to [3]")
    return {"answer": state["found"] if state["number"] < 5 else "?"}


flow.edge("look", "answer")
flow.edge("answer", wtb.END)
cases = [{"id": f"c{n}", "input": {"number": n}, "expected": {"answer": str(n)}} for n in range(20)]
batch = wtb.BatchTest(flow, cases=cases, evaluators=[wtb.ExactMatch("answer"), wtb.Steps()])
"""

NODE_RUNS = 20 * (2 + 4)
"""Of 80 jobs with two nodes each: every `look` is made once, its answers are not the same."""

HALFWAY = "40"
"""So many node runs go through while the file `stuck` says so: enough that jobs are done, and jobs are left."""


def stuck(shell: Shell) -> Path:
    """A temporary file outside the project: one inside it would be an input of the nodes that read it."""
    return shell.folder.parent / f"{shell.folder.name}.stuck"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, batch=BATCH)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A folder with a finished batch, for those who only look at it."""
    shell = Shell(tmp_path_factory.mktemp("finished"), batch=BATCH)
    shell.wtb("batch", "run", "batch.py")
    return shell


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal()
    yield opened
    opened.close()


def executed(shell: Shell) -> Counter[str]:
    return Counter((shell.folder / "log").read_text().splitlines())


def look(shell: Shell, monkeypatch: pytest.MonkeyPatch, *arguments: str, code: int = 0) -> str:
    """Call a command that starts nothing, in this process."""
    monkeypatch.chdir(shell.folder)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    return result.output


def look_json(shell: Shell, monkeypatch: pytest.MonkeyPatch, *arguments: str, code: int = 0) -> Any:
    return json.loads(look(shell, monkeypatch, *arguments, "--json", code=code))


def test_a_batch_is_run_once_and_kept_when_it_is_run_again(shell: Shell) -> None:
    done = shell.wtb("batch", "run", "batch.py")
    assert f"{NODE_RUNS} node runs executed, 40 shared." in done.stdout
    assert "80/80 jobs" in done.stderr
    lines = [line for line in done.stdout.splitlines() if "[" in line]
    assert [line.split("  ")[0] for line in lines] == ["baseline", "look=twice", "answer=bad", "answer=bad, look=twice"]
    assert "1.000 · [" in lines[1]
    assert "0.250 ▼ [" in lines[2]
    again = shell.json("batch", "run", "batch.py:batch")
    assert again["jobs"] == {"total": 80, "completed": 80, "failed": 0, "missing": 0, "kept": 80}
    assert executed(shell).total() == NODE_RUNS


def test_options_replace_what_the_file_says(shell: Shell) -> None:
    (shell.folder / "two.jsonl").write_text(
        '{"id": "a", "input": {"number": 1}, "expected": {"answer": "1"}}\n'
        '{"id": "b", "input": {"number": 7}, "expected": {"answer": "7"}}\n'
    )
    options = ("--cases", "two.jsonl", "--repeats", "3", "--only", "answer=bad", "--workers", "1", "--no-share")
    done = shell.json("batch", "run", "batch.py", *options)
    assert [row["combination"] for row in done["matrix"]] == ["baseline", "answer=bad"]
    assert done["jobs"]["total"] == 12
    assert executed(shell).total() == 24


def read_until(said: str, process: subprocess.Popen[str]) -> None:
    """Read what a process says as far as this."""
    assert process.stderr is not None
    while said not in (line := process.stderr.readline()):
        assert line


def test_ctrl_c_finishes_what_has_begun_and_the_same_command_goes_on(shell: Shell) -> None:
    stuck(shell).write_text(HALFWAY)
    process = shell.start("batch", "run", "batch.py", "--workers", "2", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert "8/80 jobs" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    read_until("Ctrl-C again ends this process", process)
    stuck(shell).unlink()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, "elsewhere" in err) == (0, False)
    assert "left to run: run the same command again to continue." in out
    part = shell.json("batch", "run", "batch.py", "--only", "baseline")
    assert (part["status"], part["jobs"]["total"]) == ("completed", 80)
    assert 0 < part["jobs"]["missing"] <= 60
    again = shell.json("batch", "run", "batch.py")
    assert again["status"] == "completed"
    assert 8 <= again["jobs"]["kept"] < 80
    assert set(executed(shell).values()) == {1}
    assert executed(shell).total() == NODE_RUNS


def test_a_second_ctrl_c_ends_the_process_and_the_batch_can_still_go_on(shell: Shell) -> None:
    stuck(shell).write_text("0")
    process = shell.start("batch", "run", "batch.py", "--workers", "2", stderr=subprocess.PIPE)
    while not (shell.folder / "log").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    read_until("Ctrl-C again ends this process", process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    stuck(shell).unlink()
    assert shell.json("batch", "run", "batch.py")["jobs"]["completed"] == 80


def test_a_terminal_shows_a_bar_for_the_batch_and_for_each_combination(shell: Shell, terminal: Terminal) -> None:
    stuck(shell).write_text(HALFWAY)
    process = shell.start("batch", "run", "batch.py", "--workers", "2", stdout=subprocess.PIPE, stderr=terminal.theirs)
    terminal.wait_for(r"qa +.*━.*\d+/80 jobs  about .* left")
    terminal.wait_for(r"answer=bad +.*━.*\d+/20")
    terminal.wait_for(r"node runs: \d+ executed, \d+ shared, 0 failed")
    stuck(shell).unlink()
    terminal.wait_for(r"\x1b\[\?25h")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "\x1b" not in out


def test_a_batch_is_cancelled_from_another_process(shell: Shell) -> None:
    stuck(shell).write_text(HALFWAY)
    process = shell.start("batch", "run", "batch.py", "--workers", "1", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    read_until("8/80 jobs", process)
    assert "is cancelled" in shell.wtb("batch", "cancel", "qa").stdout
    read_until("Cancelled by another process", process)
    stuck(shell).unlink()
    out, _ = process.communicate(timeout=60)
    assert "left to run" in out
    assert process.returncode == 3
    assert "nothing to cancel" in shell.wtb("batch", "cancel", "qa", code=2).stderr


LAST = """
import time
from pathlib import Path

import wtb

flow = wtb.Workflow("last")


@flow.node(start=True)
def only(state):
    while not Path("go").exists():
        time.sleep(0.01)
    return {}


batch = wtb.BatchTest(flow, cases=[{"id": "a", "input": {}}], evaluators=["steps"])
"""


def test_a_batch_that_is_cancelled_when_no_job_is_left_to_start_has_not_failed(shell: Shell) -> None:
    (shell.folder / "last.py").write_text(LAST)
    process = shell.start("batch", "run", "last.py", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    while not shell.json("batch", "ls"):
        assert process.poll() is None
    shell.wtb("batch", "cancel", "last")
    read_until("Cancelled by another process", process)
    (shell.folder / "go").touch()
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, "left to run" in out) == (0, False)


def test_failed_jobs_exit_with_3_and_are_named_and_retried(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    (shell.folder / "broken").touch()
    done = shell.wtb("batch", "run", "batch.py", code=3)
    assert "2 jobs failed:\n  answer=bad on c3: ValueError: no answer to [3]\n    wtb show " in done.stdout
    failed = look_json(shell, monkeypatch, "batch", "show", "qa", "--failed")
    assert [(row["case"], row["error"]) for row in failed] == [("c3", "ValueError: no answer to [3]")] * 2
    assert "ValueError" in look(shell, monkeypatch, "show", failed[0]["run"], "--errors")
    (shell.folder / "broken").unlink()
    before = executed(shell)
    again = shell.json("batch", "retry", "qa", "batch.py")
    assert (again["status"], again["jobs"]["kept"]) == ("completed", 78)
    assert set(executed(shell) - before) == {"answer=bad None 3", "answer=bad True 3"}
    assert "no evaluator of batch 'qa' failed" in shell.wtb("batch", "retry", "qa", "batch.py", code=2).stderr


def test_a_retry_wants_the_cases_that_the_batch_had(shell: Shell) -> None:
    (shell.folder / "broken").touch()
    rows = [{"id": f"other {n}", "input": {"number": n}, "expected": {"answer": str(n)}} for n in (3, 4)]
    (shell.folder / "other.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    shell.wtb("batch", "run", "batch.py", "--cases", "other.jsonl", "--only", "answer=bad", code=3)
    refused = shell.wtb("batch", "retry", "qa", "batch.py", code=2).stderr
    assert "batch 'qa' has a case 'other 3', which is missing here" in refused
    again = shell.json("batch", "retry", "qa", "batch.py", "--cases", "other.jsonl", code=3)
    assert again["jobs"] == {"total": 4, "completed": 3, "failed": 1, "missing": 0, "kept": 3}


def test_cases_are_shown_with_their_runs_and_written_to_a_file(
    finished: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert [row["batch"] for row in look_json(finished, monkeypatch, "batch", "ls")] == ["qa"]
    rows = look_json(finished, monkeypatch, "batch", "show", "qa", "--cases")
    assert len(rows) == 80
    assert look_json(finished, monkeypatch, "show", rows[0]["run"])["status"] == "completed"
    different = look(finished, monkeypatch, "batch", "show", "qa", "--different", "exact_match").splitlines()
    assert {line for line in different if line.startswith("c") and line[1:].isdecimal()} == {
        f"c{number}" for number in range(5, 20)
    }
    agreed = look(finished, monkeypatch, "batch", "show", "qa", "--different", "steps")
    assert agreed == "All combinations agree on steps.\n"
    (case,) = {row["case"] for row in look_json(finished, monkeypatch, "batch", "show", "qa", "--case", "c3")}
    assert case == "c3"
    assert "has no case 'c99'" in look(finished, monkeypatch, "batch", "show", "qa", "--case", "c99", code=2)
    assert look(finished, monkeypatch, "batch", "show", "qa", "--flaky") == "No case is flaky: all repeats agree.\n"
    front = look_json(finished, monkeypatch, "batch", "show", "qa", "--pareto", "exact_match", "--pareto", "steps")
    assert [row["combination"] for row in front["matrix"]] == ["baseline", "look=twice"]
    look(finished, monkeypatch, "batch", "show", "qa", "--csv", str(tmp_path / "jobs.csv"))
    with (tmp_path / "jobs.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 80


def test_cases_on_which_repeats_disagree_are_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    turns = iter("12")
    flow = wtb.Workflow("moody")
    flow.add_node("say", lambda state: {"said": next(turns) if state["moody"] else "1"}, start=True, cache=False)
    cases = [{"id": name, "input": {"moody": name == "moody"}, "expected": {"said": "1"}} for name in ("calm", "moody")]
    with wtb.Bench(folder=tmp_path / ".wtb") as bench:
        bench.batch(flow, name="moods", cases=cases, repeats=2, workers=1, evaluators=[wtb.ExactMatch("said")])
    rows = look_json(Shell(tmp_path), monkeypatch, "batch", "show", "moods", "--flaky")
    assert [(row["case"], row["output"]) for row in rows] == [("moody", "1"), ("moody", "2")]


def test_compare_says_what_is_worse_and_how_many_cases_more_would_tell(
    finished: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = look_json(finished, monkeypatch, "compare", "qa", "--metric", "exact_match")
    assert {row["combination"]: row["finding"] for row in found} == {
        "look=twice": "no evidence",
        "answer=bad": "worse",
        "answer=bad, look=twice": "worse",
    }
    text = look(finished, monkeypatch, "compare", "qa")
    assert "0/5/15" in text
    assert "needed: about how many cases would show the difference" in text
    assert "for 3 comparisons on exact_match (primary); 6 comparisons on 2 metrics." in text


def test_two_batches_are_compared_and_what_only_one_has_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": f"c{n}", "input": {"number": n}, "expected": {"answer": str(n)}} for n in range(10, 22)]
    (shell.folder / "other.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    shell.wtb("batch", "run", "batch.py", "--only", "answer=bad")
    before = executed(shell).total()
    (shell.folder / "batch.py").write_text(BATCH.replace("RIGHT = 20", "RIGHT = 5"))
    options = ("--name", "edited", "--cases", "other.jsonl", "--only", "look=twice")
    shell.wtb("batch", "run", "batch.py", *options)
    assert executed(shell).total() - before == 2 + 3 * 12, "look is known of ten cases of twelve"
    text = look(shell, monkeypatch, "compare", "qa", "edited", "--metric", "exact_match")
    assert "edited:baseline  worse" in text
    assert "0/0/10" in text
    assert "10 cases only in qa, left out: c0; c1;" in text
    assert "2 cases only in edited, left out: c20; c21" in text
    assert "1 combination only in qa, left out: answer=bad" in text
    (row,) = look_json(shell, monkeypatch, "compare", "qa:answer=bad", "edited:look=twice", "--metric", "steps")
    assert (row["combination"], row["against"]) == ("edited:look=twice", "qa:answer=bad")
    assert (row["finding"], row["cases"], row["dropped"]) == ("no evidence", 10, 12)
    assert row["cases_only_in"]["edited"] == ["c20", "c21"]
    look(shell, monkeypatch, "baseline", "set", "main", "qa")
    kept = look_json(shell, monkeypatch, "compare", "baseline/main", "qa", "--metric", "exact_match")
    assert [(row["combination"], row["ties"]) for row in kept] == [("qa:baseline", 20)]


def test_a_budget_is_for_all_runs_of_a_batch_and_a_larger_one_goes_on(shell: Shell) -> None:
    none = shell.wtb("batch", "run", "batch.py", "--budget-s", "0", code=3).stdout
    assert "qa: cancelled" in none
    assert "with 80 jobs left to run: raise --budget-s to continue." in none
    done = shell.json("batch", "run", "batch.py", "--budget-s", "600", "--runner", "threads")
    assert (done["status"], done["jobs"]["kept"]) == ("completed", 0)
    assert done["spent"]["s"] > 0
    assert (done["spent"]["usd"], done["unpriced"]) == (0, [])


def test_the_gate_tells_fine_from_a_regression_and_from_what_nobody_can_tell(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.wtb("batch", "run", "batch.py", "--only", "answer=bad")
    assert "Saved baseline main: baseline of qa, 20 results." in look(
        shell, monkeypatch, "baseline", "set", "main", "qa"
    )
    gate = ("gate", "qa", "--baseline", "main", "--metric", "exact_match")
    assert look(shell, monkeypatch, *gate).startswith("FINE: exact_match of qa:baseline against baseline main\n")
    proof = look(shell, monkeypatch, *gate, "--non-inferior", "--max-drop", "0.02", code=5)
    assert proof.startswith("INCONCLUSIVE")
    worse = look(shell, monkeypatch, "gate", "qa:answer=bad", *gate[2:], code=4)
    assert "worse by 0.750; 0.000 worse is allowed" in worse
    assert "worse on c5, c6, c7, c8, c9, …" in worse
    (shell.folder / "batch.py").write_text(BATCH.replace("RIGHT = 20", "RIGHT = 19"))
    shell.wtb("batch", "run", "batch.py", "--only", "answer=bad")
    found = look_json(shell, monkeypatch, *gate)
    assert (found["outcome"], found["losses"], found["ties"]) == ("fine", 1, 19)
    assert (found["reason"], found["worse_on"]) == ("no_drop_shown", ["c19"])
    assert found["why"].startswith("no drop was shown; it may be up to 0.")
    half = look_json(shell, monkeypatch, *gate, "--max-drop", "50%", "--non-inferior")
    assert (half["outcome"], half["is_share"], half["allowed"]) == ("fine", True, 0.5)
    (row,) = look_json(shell, monkeypatch, "baseline", "ls")
    assert (row["baseline"], row["combination"], row["results"]) == ("main", "baseline", 20)
    assert len(look_json(shell, monkeypatch, "batch", "ls")) == 1


def test_a_gate_over_other_cases_does_not_tell(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.wtb("batch", "run", "batch.py", "--only", "baseline")
    look(shell, monkeypatch, "baseline", "set", "main", "qa")
    (shell.folder / "one.jsonl").write_text('{"id": "x", "input": {"number": 1}, "expected": {"answer": "1"}}\n')
    shell.wtb("batch", "run", "batch.py", "--only", "baseline", "--cases", "one.jsonl")
    said = look(shell, monkeypatch, "gate", "qa", "--baseline", "main", "--metric", "exact_match", code=5)
    assert "no case has a score on both sides" in said


def test_a_run_a_paused_run_and_a_fork_go_on_with_other_variants(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    options = ("--set", "number=7", "--variant", "look=twice", "--break-after", "look", "--run-id", "first")
    assert shell.json("run", "batch.py", *options)["status"] == "paused"
    shell.wtb("resume", "first", "--variant", "answer=bad")
    assert list(executed(shell)) == ["look=twice 7", "answer=bad True 7"]
    shell.wtb("fork", "first", "look", "--variant", "answer=baseline", "--resume")
    assert list(executed(shell))[2:] == ["answer True 7"]
    assert "--variant takes NODE=NAME, not 'bad'" in look(
        shell, monkeypatch, "resume", "first", "--variant", "bad", code=2
    )
    unknown = look(shell, monkeypatch, "run", "batch.py", "--variant", "answer=best", code=2)
    assert "node 'answer' has no variant 'best'; it has baseline, bad" in unknown


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("batch", "run", "nope.py"), 2, "there is no file nope.py"),
        (("batch", "run", "batch.py:flow"), 2, "has no batch test called 'flow'; it has batch"),
        (("batch", "run", "batch.py", "--only", "answer=best"), 2, "no combination answer=best; it has baseline;"),
        (
            ("batch", "run", "batch.py", "--runner", "tasks"),
            2,
            "there is no runner 'tasks'; there are processes, ray, threads; name your own as file.py:Runner",
        ),
        (("batch", "run", "batch.py", "--memory-gb", "1"), 2, "--memory-gb needs worker processes"),
        (("batch", "show", "nope"), 1, "no batch 'nope'"),
        (("batch", "show", "qa", "--pareto", "nope"), 2, "there is no metric 'nope'"),
        (("compare", "qa", "qa"), 2, "qa:baseline is the same on both sides"),
        (("compare", "qa", "nope"), 1, "no batch 'nope'"),
        (("compare", "qa", "qa:answer=best"), 2, "has no combination 'answer=best'"),
        (("batch", "show", "qa", "--different", "nope"), 2, "there is no metric 'nope'"),
        (("compare", "qa", "--metric", "nope"), 2, "there is no metric 'nope'; this batch has exact_match, steps"),
        (("baseline", "set", "main", "qa:answer=best"), 2, "has no combination 'answer=best'"),
        (("gate", "qa", "--baseline", "nope", "--metric", "steps"), 1, "no baseline 'nope'"),
    ],
)
def test_bad_input_is_one_clear_sentence(
    finished: Shell, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, said: str
) -> None:
    assert said in look(finished, monkeypatch, *arguments, code=code)


def test_what_has_changed_is_said_before_the_results(shell: Shell) -> None:
    shell.wtb("batch", "run", "batch.py", "--only", "baseline")
    (shell.folder / "batch.py").write_text(BATCH.replace("RIGHT = 20", "RIGHT = 19"))
    said = shell.wtb("batch", "run", "batch.py", "--only", "baseline").stdout
    assert said.startswith("Changed since the last run:\n  node answer: `RIGHT` in batch.py")
    assert said.count("Changed since the last run") == 1


def test_the_runs_of_a_batch_are_listed_within_80_columns(finished: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = look(finished, monkeypatch, "ls", "--batch", "qa").splitlines()
    assert lines[0].split() == ["run", "status", "created", "case", "combination"]
    assert max(map(len, lines)) <= 80
