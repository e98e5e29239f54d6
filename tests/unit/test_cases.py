"""Cases: read from lists, JSONL and CSV; whatever is wrong is named by line and field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import wtb
from wtb.application.evaluation_engine import check_cases
from wtb.domain.cases import Case
from wtb.domain.errors import InvalidInput
from wtb.infrastructure.cases import read_cases


def test_the_same_cases_are_read_from_a_list_from_jsonl_and_from_csv(tmp_path: Path) -> None:
    wanted = (
        Case(id="1", input={"q": "x"}, expected={"answer": "a"}, tags=("easy", "new")),
        Case(id="2", input={"q": "two\nlines"}, expected={"answer": "b"}),
    )
    lines = (
        '{"id": "1", "input": {"q": "x"}, "expected": {"answer": "a"}, "tags": ["easy", "new"]}',
        "",
        '{"id": "2", "input": {"q": "two\\nlines"}, "expected": {"answer": "b"}}',
    )
    (tmp_path / "cases.jsonl").write_text("\n".join(lines))
    (tmp_path / "cases.csv").write_bytes(
        b'\xef\xbb\xbfid,input.q,expected.answer,tags\r\n1,x,a,easy new\r\n2,"two\nlines",b,\r\n'
    )
    assert read_cases(wanted) == wanted
    assert read_cases(tmp_path / "cases.jsonl") == wanted
    assert read_cases(str(tmp_path / "cases.csv")) == wanted


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("c.jsonl", '{"id": "1", "input": {}}\n\n{"input": {}}', "c.jsonl line 3 has no id"),
        ("c.jsonl", '{"id": 5, "input": {}}', "c.jsonl line 1: id must be a text, not 5"),
        (
            "c.jsonl",
            '{"id": "1", "input": {}}\n\n\n{"id": "1", "input": {}}',
            "line 4 has the same id '1' as c.jsonl line 1",
        ),
        ("c.jsonl", '{"id": "1"}', "c.jsonl line 1 has no input"),
        ("c.jsonl", '{"id": "1", "input": {}, "tags": "new"}', "line 1: tags must be a list of texts, not 'new'"),
        ("c.jsonl", '\n{"id": "1", "input": {', "c.jsonl line 2 is not valid JSON"),
        ("c.jsonl", "[1]", r"c.jsonl line 1 is \[1\], not a mapping with id and input"),
        ("c.jsonl", "\n", "there are no cases"),
        ("c.csv", "", "there are no cases"),
        ("c.csv", "id,question\n1,x", "c.csv line 1 has an unknown column 'question'; the columns are id, input.KEY"),
        ("c.csv", "input.q\nx\n", "c.csv line 2 has no id"),
        ("c.csv", 'id,input.q\n1,"a\nb"\n1,x\n', "c.csv line 4 has the same id '1' as c.csv line 3"),
        ("c.csv", "id,input.q\n1\n", "c.csv line 2 has not as many fields as line 1: 2"),
        ("c.csv", "id,input.q\n1,x,y\n", "c.csv line 2 has not as many fields as line 1: 2"),
    ],
)
def test_a_fault_of_a_file_is_named_by_line_and_field(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput, match=told):
        read_cases(tmp_path / name)


def test_all_faults_are_named_at_once_and_of_very_many_the_first() -> None:
    with pytest.raises(InvalidInput) as raised:
        read_cases([{"input": {}}] * 25)
    assert str(raised.value).count("has no id") == 20
    assert str(raised.value).endswith("; and 5 more")


@pytest.mark.parametrize("given", [5, {"id": "1", "input": {}}])
def test_what_is_no_list_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match="cases must be a list, or a JSONL or CSV file"):
        read_cases(given)


@pytest.mark.parametrize(
    ("evaluator", "expected", "told"),
    [
        (wtb.ExactMatch("answer"), None, "expected is missing; ExactMatch needs it"),
        (wtb.Contains("answer"), {"other": 1}, "expected.answer is missing; Contains needs it"),
        (wtb.TokenF1("answer", expected_key="gold"), {"answer": "x"}, "expected.gold is missing; TokenF1 needs it"),
        (wtb.NumericMatch("answer"), {"answer": "many"}, "expected is 'many', but NumericMatch needs a number"),
        (wtb.RegexMatch("answer"), "(", r"'\(' is not a regular expression"),
    ],
)
def test_a_case_that_an_evaluator_could_not_score_is_named_with_its_line(
    tmp_path: Path, evaluator: Any, expected: Any, told: str
) -> None:
    good = Case(id="good", input={}, expected={"answer": "1", "gold": "1"}, place="c.jsonl line 1")
    bad = Case(id="bad", input={}, expected=expected, place="c.jsonl line 2")
    check_cases([evaluator], [good])
    with pytest.raises(InvalidInput, match=rf"^c.jsonl line 2 \(bad\): {told}"):
        check_cases([evaluator], [good, bad])


def test_evaluators_that_need_nothing_of_the_case_ask_for_nothing() -> None:
    evaluators = [wtb.Latency(), wtb.RegexMatch("answer", "a+"), wtb.FitsSchema("answer", {"type": "string"})]
    check_cases(evaluators, [Case(id="1", input={})])
    with pytest.raises(InvalidInput, match=r"'\(' is not a regular expression"):
        wtb.RegexMatch("answer", "(")
