"""Answers in sight: a batch shows the input, the expected value and the output of every job."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph

import wtb
from tests.shell import Shell
from wtb.cli import main
from wtb.domain.errors import InvalidInput

CASES = [
    {"id": "one", "input": {"question": "one?"}, "expected": {"answer": "1"}, "tags": ["low"]},
    {"id": "two", "input": {"question": "two?"}, "expected": {"answer": "2"}, "tags": ["low", "even"]},
]
NUMBERS = {"one?": "1", "two?": "2"}


def flow() -> wtb.Workflow:
    """Find notes, then answer; the variant `loud` answers in another way."""
    made = wtb.Workflow("numbers")

    @made.node(start=True)
    def look(state: Any) -> dict[str, Any]:
        return {"notes": "some notes"}

    @made.node()
    def answer(state: Any) -> dict[str, Any]:
        return {"answer": NUMBERS[state["question"]]}

    @made.variant("answer", "loud")
    def loud(state: Any) -> dict[str, Any]:
        return {"answer": f"{NUMBERS[state['question']]}!"}

    made.edge("look", "answer")
    return made


@wtb.evaluator(worst=0, best=1)
def right(context: Any) -> bool:
    return bool(context.state["answer"] == context.expected["answer"])


@pytest.fixture
def bench() -> Iterator[wtb.Bench]:
    with wtb.Bench("memory://") as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a finished batch, and with a fork of one of its runs."""
    monkeypatch.chdir(tmp_path)
    with wtb.Bench() as bench:
        result = bench.batch(flow(), name="numbers", cases=CASES, evaluators=[wtb.ExactMatch("answer")])
        result.results[0].run.fork("look", run_id="my-fork")
    return tmp_path


def outputs(result: wtb.BatchResult) -> dict[tuple[str, str], str | None]:
    return {(job.combination, job.case_id): job.output for job in result.results}


def test_rows_hold_the_input_the_expected_value_and_the_output(bench: wtb.Bench, tmp_path: Path) -> None:
    result = bench.batch(flow(), cases=CASES, evaluators=[wtb.ExactMatch("answer")])
    rows = {(row["combination"], row["case"]): row for row in result.rows()}
    row = rows["answer=loud", "two"]
    assert (row["input"], row["expected"], row["output"]) == ("two?", "2", "2!")
    result.to_csv(tmp_path / "jobs.csv")
    with (tmp_path / "jobs.csv").open() as file:
        written = {(row["combination"], row["case"]): row for row in csv.DictReader(file)}
    assert written["baseline", "one"]["output"] == "1"
    assert written["baseline", "one"]["input"] == "one?"


def test_without_a_key_to_compare_the_output_is_what_the_run_added(bench: wtb.Bench) -> None:
    result = bench.batch(flow(), cases=CASES, evaluators=[right])
    assert outputs(result)["baseline", "one"] == "answer: 1\nnotes: some notes"


@pytest.mark.parametrize(
    ("chosen", "output"),
    [
        ("notes", "some notes"),
        (["answer", "question"], "answer: 1\nquestion: one?"),
        (lambda state: state["answer"] * 3, "111"),
        ("nothing", "no output: InvalidInput: the state has no key 'nothing'; it has answer, notes, question"),
    ],
)
def test_a_batch_can_name_its_output(bench: wtb.Bench, chosen: Any, output: str) -> None:
    result = bench.batch(flow(), cases=CASES, evaluators=[right], output=chosen)
    assert outputs(result)["baseline", "one"] == output
    assert result.status == "completed"


@pytest.mark.parametrize("wrong", [3, [], [3], ""])
def test_an_output_that_cannot_be_read_is_refused_before_anything_runs(bench: wtb.Bench, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="output= takes a key of the state"):
        bench.batch(flow(), cases=CASES, evaluators=[right], output=wrong)


def test_another_output_is_read_from_finished_runs_without_running_anything(bench: wtb.Bench) -> None:
    first = bench.batch(flow(), cases=CASES, evaluators=[right])
    runs = {job.run_id for job in first.results}
    second = bench.batch(flow(), cases=CASES, evaluators=[right], output="answer")
    assert outputs(second)["baseline", "two"] == "2"
    assert {job.run_id for job in second.results} == runs
    assert bench.plan(flow(), cases=CASES, evaluators=[right], output="answer").kept == 4


def test_a_job_whose_run_is_deleted_is_kept_when_only_its_output_is_asked_for(bench: wtb.Bench) -> None:
    first = bench.batch(flow(), cases=CASES, evaluators=[right])
    gone = first.results[0]
    gone.run.delete()
    second = bench.batch(flow(), cases=CASES, evaluators=[right], output="answer")
    assert second.status == "completed"
    assert second.results[0].run_id == gone.run_id
    assert second.results[0].output == gone.output


def test_the_output_of_a_graph_is_the_last_message_of_the_model(bench: wtb.Bench) -> None:
    def model(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"you said {state['messages'][-1].content}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    cases = [{"id": "hi", "input": {"messages": [HumanMessage("hi")]}, "expected": "you said hi"}]
    result = bench.batch(graph.compile(), cases=cases, evaluators=[wtb.Steps()])
    [row] = result.rows()
    assert (row["input"], row["expected"], row["output"]) == ("hi", "you said hi", "you said hi")


def test_secrets_are_masked_in_all_three(bench: wtb.Bench) -> None:
    made = wtb.Workflow("leaky")
    made.add_node("say", lambda state: {"answer": state["key"]}, start=True)
    key = "sk-abcdefghijklmnopqrstuvwx"
    cases = [{"id": "leak", "input": {"key": key}, "expected": {"answer": key}}]
    [row] = bench.batch(made, cases=cases, evaluators=[wtb.ExactMatch("answer")]).rows()
    assert (row["input"], row["expected"], row["output"]) == ("***", "***", "***")


LEAKY = """
import wtb

text = "a " + wtb.Secret("planted-word").reveal()
flow = wtb.Workflow("leaky")
flow.add_node("say", lambda state: {"answer": state["key"]}, start=True)
cases = [{"id": "leak", "input": {"key": text}, "expected": {"answer": text}}]
batch = wtb.BatchTest(flow, cases=cases, evaluators=[wtb.ExactMatch("answer")])
"""


def test_a_process_that_does_not_know_a_secret_shows_none_of_the_three(tmp_path: Path) -> None:
    shell = Shell(tmp_path, leaky=LEAKY)
    shell.wtb("batch", "run", "leaky.py")
    [row] = shell.json("batch", "show", "leaky", "--cases")
    assert (row["input"], row["expected"], row["output"]) == ("a ***", "a ***", "a ***")


def test_the_command_line_shows_answers_by_case(folder: Path) -> None:
    shown = look("batch", "show", "numbers", "--cases").splitlines()
    assert shown[:3] == ["one  (low)", "  input     one?", "  expected  1"]
    assert shown[3].split() == ["combination", "exact_match", "output", "run"]
    assert shown[5].split()[:3] == ["answer=loud", "0.000", "1!"]
    row = json.loads(look("batch", "show", "numbers", "--cases", "--json"))[-1]
    assert row["tags"] == ["low", "even"]
    assert (row["input"], row["expected"], row["output"]) == ("two?", "2", "2!")


def look(*arguments: str) -> str:
    """Run a command in this process."""
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_report_holds_each_text_once_and_no_markup_of_theirs(bench: wtb.Bench, tmp_path: Path) -> None:
    cases = [{"id": str(n), "input": {"q": "<script>x</script>"}, "expected": f"</script>{n}"} for n in range(3)]
    made = wtb.Workflow("echo")
    made.add_node("say", lambda state: {"answer": "<img src=x onerror=alert(1)>"}, start=True)
    result = bench.batch(made, cases=cases, evaluators=[wtb.ExactMatch("answer")])
    result.report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "<img" not in page
    assert "<script>x" not in page
    data = json.loads(page.split('id="case-data">')[1].split("</script>")[0])
    texts = data["texts"]
    assert len(texts["all"]) == 5
    assert [texts["all"][at] for at in texts["inputs"]] == ["<script>x</script>"] * 3
    assert [texts["all"][at] for at in texts["expected"]] == [f"</script>{n}" for n in range(3)]
    assert texts["answers"] == [[0]] * 3


def test_a_run_of_a_batch_names_its_job_and_is_listed_only_on_request(folder: Path) -> None:
    assert [row["run"] for row in json.loads(look("ls", "--json"))] == ["my-fork"]
    rows = json.loads(look("ls", "--batch", "numbers", "--json"))
    assert len(rows) == 4
    assert len(json.loads(look("ls", "--batch", "all", "--json"))) == 5
    [row] = [row for row in rows if (row["combination"], row["case"]) == ("answer=loud", "two")]
    found = json.loads(look("show", row["run"], "--json"))
    assert found["batch"]["name"] == "numbers"
    assert found["variants"] == {"answer": "loud"}
    assert (found["combination"], found["case"], found["repeat"]) == ("answer=loud", "two", 0)
    shown = look("show", row["run"])
    assert "variants     answer=loud\nbatch        numbers\n" in shown
    assert "case         two, repeat 0\n" in shown
    assert "batch        a fork of a run of numbers\n" in look("show", "my-fork")
    assert "answer=loud" in look("ls", "--batch", "numbers")


def test_tags_choose_cases_and_have_means_of_their_own(folder: Path) -> None:
    shown = look("batch", "show", "numbers")
    assert "Means of exact_match by tag (exploratory: no test stands behind these):" in shown
    assert "low (2 cases)" in shown
    assert "even (1 case)" in shown
    data = json.loads(look("batch", "show", "numbers", "--tag", "even", "--json"))
    assert data["jobs"]["total"] == 2
    assert data["notes"] == ["Only cases tagged even are counted here (1): take findings as hints."]
    assert data["exploratory_means_by_tag"]["even"] == {"cases": 1, "means": {"baseline": 1.0, "answer=loud": 0.0}}
    with wtb.Bench() as bench, pytest.raises(InvalidInput, match="has the tag 'odd'; the tags are low, even"):
        bench.get_batch("numbers").tagged("odd")
    look("report", "numbers", "--tag", "even", "--out", "r.html")
    page = (folder / "r.html").read_text()
    assert "Means by tag (exploratory)" in page
    assert "Only cases tagged even are counted here" in page


def test_repeats_that_disagree_are_listed_with_the_node_at_which_they_part(bench: wtb.Bench, tmp_path: Path) -> None:
    given = iter(range(100))
    made = wtb.Workflow("moody")
    made.add_node("look", lambda state: {"notes": "same"}, start=True, cache=False)
    made.add_node("guess", lambda state: {"answer": next(given) if state["q"] == "hard" else 0}, cache=False)
    made.add_node("tell", lambda state: {"told": True}, cache=False)
    made.edge("look", "guess")
    made.edge("guess", "tell")
    cases = [{"id": name, "input": {"q": name}, "expected": {"answer": 0}} for name in ("easy", "hard")]
    result = bench.batch(made, cases=cases, repeats=2, evaluators=[wtb.ExactMatch("answer"), wtb.Latency()])
    [found] = result.flaky()
    assert (found.case_id, found.combination, found.metrics) == ("hard", "baseline", ("exact_match",))
    assert found.node == "guess"
    assert len(found.runs) == 2
    result.report(tmp_path / "r.html")
    assert "1 flaky result" in (tmp_path / "r.html").read_text()
    assert result.overview().to_data()["flaky"][0]["node"] == "guess"


def test_only_narrows_what_runs_and_not_what_is_shown(bench: wtb.Bench) -> None:
    options: dict[str, Any] = {"cases": CASES, "evaluators": [right]}
    started = bench.batch(flow(), only=["baseline"], **options)
    assert started.combinations == ["baseline"]
    bench.batch(flow(), **options)
    again = bench.batch(flow(), only=["baseline"], **options)
    assert again.combinations == ["baseline", "answer=loud"]
    assert again.left == 0
    assert len(again.results) == 4


def test_the_axes_of_the_trade_off_can_be_any_two_metrics(bench: wtb.Bench, tmp_path: Path) -> None:
    bench.batch(flow(), cases=CASES, evaluators=[right, wtb.Latency(), wtb.Steps()]).report(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    for axes in ("right against latency_s", "right against steps", "steps against latency_s"):
        assert f">{axes}</option>" in page
    assert page.count('class="front-panel"') == 3
    assert page.count('class="front-panel" hidden') == 2
