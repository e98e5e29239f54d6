"""Judges: evaluators that report usage, and wtb.Judge against a local server that also fails as services do."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import wtb
from wtb.bench import Bench
from wtb.domain.errors import InvalidInput
from wtb.flow import Workflow

CASES = [
    {"id": "1", "input": {"name": "Ada"}, "expected": {"greeting": "Hello Ada", "human": 4}},
    {"id": "2", "input": {"name": "Bob"}, "expected": {"greeting": "Hello Bob", "human": 2}},
]
KEY = "a-key-that-nobody-may-see"


class ModelServer(ThreadingHTTPServer):
    """Answers chat completions with what a test has prepared, and then with a score of 4."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Model)
        self.requests: list[dict[str, Any]] = []
        self.headers: list[str | None] = []
        self.prepared: list[Any] = []
        self.always: Any = None
        self.is_over = threading.Event()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def next_answer(self) -> Any:
        return self.prepared.pop(0) if self.prepared else self.always


class _Model(BaseHTTPRequestHandler):
    server: ModelServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
        with self.server.lock:
            self.server.requests.append({"path": self.path, **request})
            self.server.headers.append(self.headers["Authorization"])
            answer = self.server.next_answer()
        if answer == "slowly":
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):  # the judge has given up
                while not self.server.is_over.wait(0.01):
                    self.wfile.write(b" ")
            return
        if answer == "silence":
            self.server.is_over.wait()
            return
        status, content = answer if isinstance(answer, tuple) else (200, answer)
        given = '{"reason": "fine", "score": 4}' if content is None else content
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        body = json.dumps({"choices": [{"message": {"content": given}}], "usage": usage}).encode()
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "0")
        if status == 302:
            self.send_header("Location", f"{self.server.url}/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.is_over.set()
        made.shutdown()
        thread.join()


@pytest.fixture
def judged(model: ModelServer) -> Iterator[Bench]:
    with Bench("memory://", judge_url=model.url, judge_key=KEY) as opened:
        yield opened


def greeter() -> Workflow:
    flow = Workflow("greeter")
    flow.add_node("greet", lambda state: {"greeting": f"Hello {state['name']}"}, start=True)
    flow.add_variant("greet", "loud", lambda state: {"greeting": f"HELLO {state['name']}"})
    return flow


def judge(**options: Any) -> wtb.Judge:
    return wtb.Judge("some-model", "Is it polite?", (1, 5), output="greeting", label="human", wait_s=0, **options)


def test_an_answer_in_a_markdown_fence_is_read(judged: Bench, model: ModelServer) -> None:
    model.prepared = ['```json\n{"reason": "fine", "score": 3}\n```']
    result = judged.batch(greeter(), cases=CASES[:1], evaluators=[judge(tries=1)], only=["baseline"])
    assert [each.scores["judge"] for each in result.results if each.combination == "baseline"] == [3.0]


def test_what_an_evaluator_reports_counts_in_the_budget_and_not_as_a_cost_of_the_workflow() -> None:
    @wtb.evaluator(worst=0, best=1)
    def asked(context: wtb.EvaluationContext) -> float:
        context.usage(model="m", input_tokens=5, output_tokens=5, cost_usd=0.5)
        return context.usage.get("cost_usd", 0.0)

    with Bench("memory://") as bench:
        result = bench.batch(greeter(), cases=CASES, evaluators=[asked, "cost_usd"], workers=1, budget={"usd": 0.75})
        assert (result.status, len([each for each in result.results if each.status == "completed"])) == ("cancelled", 2)
        done = [each for each in result.results if each.status == "completed"]
        assert [each.scores for each in done] == [{"asked": 0.0, "cost_usd": 0.0}] * 2
        assert result.judging["cost_usd"] == 1.0


def test_jobs_that_only_need_a_costly_score_wait_when_the_budget_is_used_up() -> None:
    asked: list[str] = []

    def ask(context: wtb.EvaluationContext) -> float:
        asked.append(context.case.id)
        context.usage(model="m", cost_usd=0.5)
        return 1.0

    def ask_again(context: wtb.EvaluationContext) -> float:
        return ask(context)

    def costly(evaluate: Any) -> Any:
        return wtb.evaluator(name="costly", worst=0, best=1)(evaluate)

    options: dict[str, Any] = {"cases": CASES, "workers": 1, "budget": {"usd": 0.75}}
    with Bench("memory://") as bench:
        bench.batch(greeter(), evaluators=["steps"], **options)
        stopped = bench.batch(greeter(), evaluators=["steps", costly(ask)], **options)
        assert (stopped.status, len(asked), stopped.spent.usd) == ("cancelled", 2, 1.0)
        again = bench.batch(greeter(), evaluators=["steps", costly(ask_again)], **options)
        assert (again.status, len(asked)) == ("cancelled", 2), "what it cost before is known"


def test_a_judge_is_asked_with_the_rubric_and_without_the_label(judged: Bench, model: ModelServer) -> None:
    result = judged.batch(greeter(), cases=CASES, evaluators=[judge()], workers=4)
    assert {each.scores["judge"] for each in result.results} == {4.0}
    assert (result.metrics["judge"].worst, result.metrics["judge"].best) == (1.0, 5.0)
    assert len(model.requests) == 4
    assert set(model.headers) == {f"Bearer {KEY}"}
    first = model.requests[0]
    assert (first["path"], first["model"]) == ("/v1/chat/completions", "some-model")
    assert first["messages"][0]["content"].startswith("Is it polite?")
    assert "human" not in json.dumps(model.requests)
    assert first["response_format"]["json_schema"]["strict"] is True
    assert result.judging == {"input_tokens": 400, "output_tokens": 40, "cost_usd": 0.0, "unpriced": ["some-model"]}


def test_a_judge_follows_no_redirect_since_its_key_would_go_along(judged: Bench, model: ModelServer) -> None:
    model.prepared = [(302, "elsewhere")]
    result = judged.batch(greeter(), cases=CASES[:1], evaluators=[judge()], variants=[{}])
    assert "HTTP 302" in str(result.results[0].scores["judge"])
    assert [each["path"] for each in model.requests] == ["/v1/chat/completions"]


def test_a_judge_is_not_asked_again_about_the_same_case_and_output(judged: Bench, model: ModelServer) -> None:
    options: dict[str, Any] = {"cases": CASES, "workers": 8, "repeats": 3}
    judged.batch(greeter(), evaluators=[judge()], share=False, **options)
    assert len(model.requests) == 4
    second = judged.batch(greeter(), evaluators=[judge()], name="second", **options)
    assert (second.status, len(model.requests), second.judging["input_tokens"]) == ("completed", 4, 0)
    judged.batch(greeter(), evaluators=[judge(tries=2)], **options)
    assert len(model.requests) == 8  # another judge


@pytest.mark.parametrize(
    "failure",
    [(429, "slow down"), (503, "down"), "no JSON at all", '{"score": 9}', '{"score": true}', '{"reason": ""}'],
)
def test_a_judge_tries_again_and_pays_for_each_answer(judged: Bench, model: ModelServer, failure: Any) -> None:
    model.prepared = [failure, failure]
    result = judged.batch(greeter(), cases=CASES[:1], variants=[{}], evaluators=[judge()])
    assert (result.results[0].scores["judge"], len(model.requests)) == (4.0, 3)
    assert result.judging["input_tokens"] == (100 if isinstance(failure, tuple) else 300)


def test_the_questions_of_a_judge_hold_slots_of_the_limit_with_its_name(judged: Bench, model: ModelServer) -> None:
    model.prepared = [(429, "slow down")]
    limits = {"judge": wtb.Limit(8, adaptive=True, start=8), "other": wtb.Limit(8, adaptive=True, start=8)}
    result = judged.batch(greeter(), cases=CASES[:1], variants=[{}], evaluators=[judge()], limits=limits)
    assert result.results[0].scores["judge"] == 4.0
    assert {limit.name: limit.width for limit in result.limits} == {"judge": 4, "other": 8}


def test_an_evaluator_holds_a_slot_in_a_block() -> None:
    held: list[int] = []

    @wtb.evaluator(worst=0, best=1)
    def asked(context: wtb.EvaluationContext) -> bool:
        with context.limit("model"):
            held.append(bench.batch_status("greeter").limits[0].held)
        return True

    with Bench("memory://") as bench:
        bench.batch(greeter(), cases=CASES[:1], variants=[{}], evaluators=[asked], limits={"model": 2})
    assert held == [1]


def test_a_judge_that_gives_no_score_is_an_error_and_is_asked_again_next_time(
    judged: Bench, model: ModelServer
) -> None:
    options: dict[str, Any] = {"cases": CASES[:1], "variants": [{}], "evaluators": [judge()]}
    model.always = "no JSON at all"
    result = judged.batch(greeter(), **options)
    assert (result.status, len(model.requests)) == ("completed_with_errors", 3)
    error = result.results[0].scores["judge"]["error"]
    assert "some-model was asked 3 times and gave no score: the model answered 'no JSON at all'" in error
    assert result.judging["input_tokens"] == 300
    model.always = None
    assert judged.batch(greeter(), **options).results[0].scores["judge"] == 4.0
    assert len(model.requests) == 4


@pytest.mark.parametrize("answer", ["silence", "slowly"])
def test_a_service_that_does_not_answer_in_time_is_an_error(judged: Bench, model: ModelServer, answer: str) -> None:
    model.always = answer
    result = judged.batch(greeter(), cases=CASES[:1], variants=[{}], evaluators=[judge(tries=2, timeout_s=0.05)])
    assert "no answer within 0.05 s" in result.results[0].scores["judge"]["error"]
    assert len(model.requests) == 2


def test_a_refusal_is_not_tried_again_and_the_key_is_masked(judged: Bench, model: ModelServer) -> None:
    model.always = (401, f"wrong key {KEY}")
    result = judged.batch(greeter(), cases=CASES[:1], variants=[{}], evaluators=[judge()])
    error = result.results[0].scores["judge"]["error"]
    assert "some-model cannot be asked: HTTP 401" in error
    assert KEY not in error
    assert len(model.requests) == 1
    assert KEY not in repr(judged.services.settings)


def test_a_judge_without_an_address_says_which_setting_is_missing() -> None:
    with Bench("memory://") as bench:
        result = bench.batch(greeter(), cases=CASES[:1], variants=[{}], evaluators=[judge()])
        assert "set judge_url (WTB_JUDGE_URL)" in result.results[0].scores["judge"]["error"]


def test_a_scale_without_two_ends_is_refused() -> None:
    with pytest.raises(InvalidInput, match="scale is the worst and the best score"):
        wtb.Judge("m", "r", (3, 3))


def test_a_judge_is_compared_with_the_scores_that_people_gave(judged: Bench, model: ModelServer) -> None:
    result = judged.batch(greeter(), cases=[*CASES, {"id": "3", "input": {"name": "Eve"}}], evaluators=[judge()])
    found = result.agreement("judge", "human")
    assert (found.scores, found.unlabelled, found.failed) == (4, 2, 0)
    assert (found.exact, found.mean_difference, found.mean_error) == (0.5, 1.0, 1.0)
    assert found.kappa == 0.0  # it always says 4


def test_jobs_that_only_need_a_judge_wait_when_the_budget_is_used_up(judged: Bench, model: ModelServer) -> None:
    judged.batch(greeter(), cases=CASES, evaluators=["steps"])
    options: dict[str, Any] = {"cases": CASES, "evaluators": ["steps", judge()], "workers": 1}
    stopped = judged.batch(greeter(), budget={"tokens": 200}, **options)
    assert (stopped.status, len(model.requests), stopped.spent.tokens) == ("cancelled", 2, 220)
    assert judged.batch(greeter(), **options).status == "completed"
    assert len(model.requests) == 4
