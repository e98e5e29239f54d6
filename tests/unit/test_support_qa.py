"""The example: its data is sound, its alternatives run, and they differ as its README.md says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import pipeline
import pytest
from evaluators import ReciprocalRank, RetrievalHit
from search import DOCUMENTS, Bm25, Lsa, TfIdf
from text import character_grams, sentences, spoken_words

import wtb

FOLDER = Path(pipeline.__file__).parent
CASES = [json.loads(line) for line in (FOLDER / "cases.jsonl").read_text(encoding="utf-8").splitlines()]
ALTERNATIVES: dict[str, list[Callable[[Mapping[str, Any]], dict[str, Any]]]] = {
    "rewrite": [pipeline.plain, pipeline.expand],
    "retrieve": [pipeline.bm25, pipeline.tfidf, pipeline.chargrams, pipeline.lsa, pipeline.hybrid],
    "rerank": [pipeline.none, pipeline.overlap],
    "answer": [pipeline.first_sentence, pipeline.best_sentence],
}
RETRIEVERS = [function.__name__ for function in ALTERNATIVES["retrieve"]]


@dataclass(frozen=True)
class Finished:
    """A run as an evaluator sees it."""

    case: Mapping[str, Any]
    state: Mapping[str, Any]

    @property
    def expected(self) -> Any:
        return self.case["expected"]


@dataclass(frozen=True)
class Scores:
    """What the questions scored with one combination, on average; with a tag, only those that have it."""

    finished: list[Finished]

    def hit(self, tag: str | None = None, k: int = 1) -> float:
        return self._mean(RetrievalHit(k).evaluate, tag)

    def rank(self, tag: str | None = None) -> float:
        return self._mean(ReciprocalRank().evaluate, tag)

    def f1(self, tag: str | None = None) -> float:
        return self._mean(lambda run: token_f1(run.state["answer"], run.expected["answer"]), tag)

    def _mean(self, score: Callable[[Finished], float], tag: str | None) -> float:
        return mean(score(run) for run in self.finished if tag is None or tag in run.case["tags"])


def token_f1(given: str, expected: str) -> float:
    """Return the harmonic mean of precision and recall of words."""
    one, other = Counter(spoken_words(given)), Counter(spoken_words(expected))
    return 2 * (one & other).total() / ((one.total() + other.total()) or 1)


def finish(case: Mapping[str, Any], combination: tuple[Callable[..., Any], ...]) -> Finished:
    """Answer a question by calling one function after the other."""
    state = dict(case["input"])
    for function in combination:
        state |= function(state)
    return Finished(case, state)


@pytest.fixture(scope="module")
def measured() -> Callable[..., Scores]:
    """Answer all questions with all 40 combinations, and look a combination up by what differs from the baseline."""
    found = {
        tuple(function.__name__ for function in combination): Scores([finish(case, combination) for case in CASES])
        for combination in product(*ALTERNATIVES.values())
    }
    assert len(found) == 40

    def look_up(
        rewrite: str = "plain", retrieve: str = "bm25", rerank: str = "none", answer: str = "first_sentence"
    ) -> Scores:
        return found[rewrite, retrieve, rerank, answer]

    return look_up


def test_documents_have_ids_of_their_own_and_a_readable_length() -> None:
    lines = (FOLDER / "documents.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(DOCUMENTS) == len(lines)
    assert [document.id for document in DOCUMENTS.values() if not 60 <= len(document.text.split()) <= 150] == []


def test_there_are_ninety_questions_with_ids_of_their_own_and_a_tag() -> None:
    assert len(CASES) == len({case["id"] for case in CASES}) == len({case["input"]["question"] for case in CASES}) == 90
    tags = Counter(tag for case in CASES for tag in case["tags"])
    assert set(tags) == {"direct", "keyword", "long", "paraphrase", "synonym", "typo"}
    assert tags.total() == 90


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_gold_answer_is_a_sentence_of_its_document(case: dict[str, Any]) -> None:
    assert case["expected"]["answer"] in sentences(DOCUMENTS[case["expected"]["document"]].text)


def test_an_answer_is_a_sentence_of_the_help_centre_unless_nothing_was_found(measured: Callable[..., Scores]) -> None:
    known = {sentence for document in DOCUMENTS.values() for sentence in sentences(document.text)}
    for names in product(*([function.__name__ for function in functions] for functions in ALTERNATIVES.values())):
        for run in measured(*names).finished:
            assert run.state["answer"] in (known if run.state["found"] else {""}), (names, run.case["id"])


def test_the_same_question_gets_the_same_state_again() -> None:
    for combination in product(*ALTERNATIVES.values()):
        assert finish(CASES[0], combination) == finish(CASES[0], combination)


def test_an_index_made_again_scores_the_same() -> None:
    texts = {id: document.text for id, document in DOCUMENTS.items()}
    for make in (lambda: Bm25(texts), lambda: TfIdf(texts), lambda: TfIdf(texts, character_grams), lambda: Lsa(texts)):
        assert make().scores("export my invoices") == pytest.approx(make().scores("export my invoices"))


@pytest.mark.parametrize("question", ["", "   ", "?!", "the of and", "зачем"])
def test_a_question_without_a_known_word_gets_an_empty_answer(question: str) -> None:
    for combination in product(*ALTERNATIVES.values()):
        assert finish({"input": {"question": question}}, combination).state["answer"] == ""


def test_the_bench_runs_the_workflow_to_the_same_state_as_plain_calls() -> None:
    baseline = tuple(functions[0] for functions in ALTERNATIVES.values())
    with wtb.Bench("memory://") as bench:
        run = bench.run(pipeline.flow, CASES[0]["input"])
        assert run.status == "completed"
        assert dict(run.state) == finish(CASES[0], baseline).state


def test_the_evaluators_count_from_the_first_document() -> None:
    run = Finished({"expected": {"document": "b"}}, {"documents": ["a", "b", "c"]})
    assert [RetrievalHit(k).evaluate(run) for k in (1, 2, 3)] == [0, 1, 1]
    assert RetrievalHit(5).name == "hit@5"
    assert ReciprocalRank().evaluate(run) == 0.5
    assert ReciprocalRank().evaluate(Finished({"expected": {"document": "z"}}, run.state)) == 0


def test_the_baseline_is_decent_but_can_be_beaten(measured: Callable[..., Scores]) -> None:
    assert 0.5 < measured().hit(k=3) < 0.7
    best = measured("expand", "chargrams", "none", "best_sentence")
    assert best.hit(k=3) > measured().hit(k=3) + 0.15
    assert best.f1() > measured().f1() + 0.25


@pytest.mark.parametrize("retrieve", RETRIEVERS)
def test_expansion_finds_more_because_of_synonyms(measured: Callable[..., Scores], retrieve: str) -> None:
    plain, expand = measured("plain", retrieve), measured("expand", retrieve)
    assert expand.rank() > plain.rank() + 0.08
    assert expand.hit("synonym") > plain.hit("synonym") + 0.35
    assert expand.hit("typo") <= plain.hit("typo")


@pytest.mark.parametrize("retrieve", ["chargrams", "hybrid"])
def test_pieces_of_words_find_more_because_of_typing_errors(measured: Callable[..., Scores], retrieve: str) -> None:
    bm25, other = measured(), measured(retrieve=retrieve)
    assert other.rank() > bm25.rank() + 0.07
    assert other.hit("typo") > bm25.hit("typo") + 0.2


@pytest.mark.parametrize("retrieve", ["tfidf", "lsa"])
def test_other_ways_to_count_words_find_about_as_much(measured: Callable[..., Scores], retrieve: str) -> None:
    assert measured(retrieve=retrieve).rank() == pytest.approx(measured().rank(), abs=0.05)
    assert measured("expand", retrieve).rank() == pytest.approx(measured("expand").rank(), abs=0.05)


def test_reranking_changes_little_and_does_harm_after_fusion(measured: Callable[..., Scores]) -> None:
    for rewrite, retrieve in product(["plain", "expand"], ["bm25", "tfidf", "chargrams", "lsa"]):
        without, reranked = measured(rewrite, retrieve), measured(rewrite, retrieve, "overlap")
        assert reranked.rank() == pytest.approx(without.rank(), abs=0.03)
    for rewrite in ("plain", "expand"):
        assert measured(rewrite, "hybrid", "overlap").rank() < measured(rewrite, "hybrid").rank() - 0.02


def test_the_best_sentence_answers_better_than_the_first_whatever_was_found(measured: Callable[..., Scores]) -> None:
    for names in product(["plain", "expand"], RETRIEVERS, ["none", "overlap"]):
        assert measured(*names, "best_sentence").f1() > measured(*names, "first_sentence").f1() + 0.12


def test_long_questions_and_paraphrases_stay_hard_for_every_combination(measured: Callable[..., Scores]) -> None:
    for names in product(["plain", "expand"], RETRIEVERS, ["none", "overlap"]):
        assert measured(*names).hit("long") < 0.5
        assert measured(*names).hit("paraphrase") < 0.6
