"""Prices: what tokens cost where nobody reported it; a model without a known price is named, never free."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import genai_prices
import pytest

import wtb
from tests.shell import Shell
from wtb.bench import Bench
from wtb.flow import Workflow

CASES = [{"id": "1", "input": {}}]
PROGRAM = """
import wtb

flow = wtb.Workflow("asking")


@flow.node(start=True)
def ask(state, ctx):
    ctx.usage(model="mine", input_tokens=1000, output_tokens=100)
    ctx.usage(model="gpt-4o", input_tokens=1000, output_tokens=100)


batch = wtb.BatchTest(flow, cases=[{"id": "1", "input": {}}], evaluators=[wtb.Cost(), wtb.Tokens()])
"""


def asking(model: str | None, cost_usd: float | None = None, tokens: int = 1000) -> Workflow:
    flow = Workflow("asking")

    def ask(state: Any, ctx: Any) -> None:
        ctx.usage(model=model, input_tokens=tokens, output_tokens=tokens // 10, cost_usd=cost_usd)

    flow.add_node("ask", ask, start=True)
    return flow


def price(model: str, provider: str | None = None) -> float:
    usage = genai_prices.Usage(input_tokens=1000, output_tokens=100)
    return float(genai_prices.calc_price(usage, model, provider_id=provider).total_price)


@pytest.mark.parametrize("name", ["gpt-4o", "openai:gpt-4o", "openai/gpt-4o"])
def test_tokens_of_a_known_model_have_their_price(bench: Bench, name: str) -> None:
    run = bench.run(asking(name), {})
    assert run.usage == {"input_tokens": 1000, "output_tokens": 100, "cost_usd": price("gpt-4o", "openai")}
    assert run.usage["cost_usd"] > 0


def test_a_reported_cost_is_taken_as_it_is(bench: Bench) -> None:
    assert bench.run(asking("gpt-4o", cost_usd=0.0), {}).usage["cost_usd"] == 0.0
    assert bench.run(asking("a-model-of-mine", cost_usd=0.25), {}).usage["cost_usd"] == 0.25


@pytest.mark.parametrize(("model", "told"), [("a-model-of-mine", "a-model-of-mine"), (None, "a model without a name")])
def test_a_model_without_a_price_is_named_and_has_no_cost_score(bench: Bench, model: str | None, told: str) -> None:
    assert bench.run(asking(model), {}).usage["unpriced"] == [told]
    result = bench.batch(asking(model), cases=CASES, evaluators=[wtb.Cost(), wtb.Tokens()])
    assert result.results[0].scores == {
        "cost_usd": {"error": f"evaluator cost_usd: InvalidInput: no price is known for {told}"},
        "tokens": 1100.0,
    }
    assert result.unpriced == [told]
    assert result.matrix[0].summaries["cost_usd"].mean is None


def test_without_the_package_every_price_is_unknown(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    assert bench.run(asking("gpt-4o"), {}).usage["unpriced"] == ["gpt-4o"]
    assert "unpriced" not in bench.run(asking("gpt-4o", tokens=0), {}).usage


def test_a_batch_that_ran_without_prices_has_them_when_it_is_run_anew_as_it_says(tmp_path: Path) -> None:
    shell = Shell(tmp_path, asking=PROGRAM.replace("mine", "gpt-4o"))
    (tmp_path / "genai_prices.py").write_text("raise ImportError('not installed')")
    assert "`--name priced --no-share` runs the batch again" in shell.wtb("batch", "run", "asking.py", code=3).stdout
    (tmp_path / "genai_prices.py").unlink()
    assert "No price" not in shell.wtb("batch", "run", "asking.py", "--name", "priced", "--no-share").stdout


def test_people_are_told_what_has_no_price(tmp_path: Path) -> None:
    shell = Shell(tmp_path, asking=PROGRAM)
    known = f"2,000+200 tokens, ${price('gpt-4o'):.5f} and no price known for mine"
    assert known in shell.wtb("run", "asking.py").stderr
    done = shell.wtb("batch", "run", "asking.py", code=3).stdout
    assert "No price is known for mine: their cost is missing from all figures and budgets." in done
