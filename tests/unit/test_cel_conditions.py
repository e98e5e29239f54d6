"""What CelConditions adds to the contract: its bounds, and what it does with values that CEL does not know."""

import json
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import cel
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from wtb.domain.errors import InvalidCondition
from wtb.domain.workflow import Edge, Node, WorkflowDefinition
from wtb.infrastructure.conditions.cel import CelConditions
from wtb.infrastructure.conditions.pattern import unrolled_length
from wtb.infrastructure.conditions.source import CelSource

NUMBERS = list(range(50_000))


def holds(expression: str, **state: Any) -> bool:
    return CelConditions().compile(expression)(state)


def refused(expression: str, conditions: CelConditions | None = None) -> str:
    with pytest.raises(InvalidCondition) as caught:
        (conditions or CelConditions()).compile(expression)
    assert repr(expression)[1:50] in str(caught.value)
    return str(caught.value)


def failed(expression: str, conditions: CelConditions | None = None, **state: Any) -> str:
    condition = (conditions or CelConditions()).compile(expression)
    with pytest.raises(InvalidCondition) as caught:
        condition(state)
    return str(caught.value)


def test_a_long_expression_is_refused() -> None:
    CelConditions(max_length=8).compile("k == 123")
    assert "has 9 characters; at most 8" in refused("k == 1234", CelConditions(max_length=8))
    assert "at most 2000" in refused("k == 1 || " * 250 + "true")


@pytest.mark.parametrize("text", ["(((true)))", "[[[1]]] == []", "{1: {1: {}}} == {}", "size([(1)]) == 1"])
def test_deep_brackets_are_refused(text: str) -> None:
    CelConditions(max_nesting=3).compile(text)
    assert "3 nested brackets; at most 2" in refused(text, CelConditions(max_nesting=2))


def test_brackets_in_texts_and_comments_do_not_count() -> None:
    CelConditions(max_nesting=0).compile("'((([' == \"{{\" // ((((\n || r'\\(' != '''('(''' || b'(' == br\"\"\"(\"\"\"")


def test_macros_within_macros_within_macros_are_refused() -> None:
    inner = "items.exists(c, a + b == c)"
    CelConditions(max_macro_nesting=3).compile(f"items.all(a, items.all(b, {inner}))")
    assert "3 nested macros; at most 2" in refused(f"items.all(a, items.all(b, {inner}))")
    chain = "items.filter(a, a > 1).filter(b, b > 1).filter(c, c > 1).exists(d, d == 2)"
    assert holds(chain, items=[1, 2])


@pytest.mark.parametrize(
    "expression",
    [
        "items.all(a, items.all(b, a + b >= 0))",
        "items.exists(a, items.exists(b, a + b < 0))",
        "items.exists_one(a, items.existsOne(b, a + b < 0))",
        "size(items.filter(a, size(items.filter(b, a == b)) > 1)) == 0",
        "size(items.map(a, items)) > 0",
        "size(items.map(a, a > 1, items.map(b, a * b))) > 0",
        "items.all(a, items.all(b, a.nothing)) || items.all(a, items.all(b, true)) || true",
        "items.all(a, size(items" + " + items" * 16 + ") > 0)",
        "[items]" + ".map(a, a + a)" * 9 + ".size() == 0 || [1].exists(b, true)",
    ],
)
def test_a_macro_that_takes_too_long_is_ended(expression: str) -> None:
    assert "took longer than 0.05 s" in failed(expression, CelConditions(timeout_s=0.05), items=NUMBERS)


def test_a_loop_that_was_cut_short_is_an_error_even_when_the_rest_holds() -> None:
    conditions = CelConditions(timeout_s=0.0)
    assert "took longer than 0 s" in failed("[1].exists(a, a == 2) || true", conditions)
    assert conditions.compile("true || [1].exists(a, a == 2)")({})  # its loop is never run


def test_other_threads_run_while_a_macro_does() -> None:
    turns = set[int]()
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            turns.add(time.monotonic_ns() // 10_000_000)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    begin = time.monotonic_ns() // 10_000_000
    try:
        failed("items.all(a, items.all(b, a + b >= 0))", CelConditions(timeout_s=0.2), items=NUMBERS)
    finally:
        end = time.monotonic_ns() // 10_000_000
        ended.set()
        thread.join()
    # With the interpreter's lock held there would be turns at the beginning and at the end only.
    assert len([turn for turn in turns if begin + 2 < turn < end - 2]) > 2


def test_values_cannot_be_multiplied_by_macros() -> None:
    CelConditions().compile("[s]" + ".map(x, x + x)" * 9 + " == []")
    assert "grow 1024 times" in refused("[s]" + ".map(x, x + x)" * 10 + " == []")
    assert "grow 1600 times" in refused(f"[s].map(x, {[*'x'] * 40}).map(x, {[*'x'] * 40}) == []".replace("'", ""))


def test_many_additions_are_refused() -> None:
    assert holds("1" + " + 1" * 16 + " == 17")
    assert "has 17 additions; at most 16" in refused("size(s" + " + s" * 17 + ") > 0")
    assert holds("1e+3 == 1000.0 && '+++++++++++++++++++++' != '+'")


def test_a_pattern_is_checked_when_compiled() -> None:
    assert holds("s.matches('^[0-9]{4}-[0-9]{2}$')", s="2026-11")
    assert "not valid" in refused("s.matches('(')")
    assert "not written in it as one text" in refused("s.matches(p)")
    assert "not written in it as one text" in refused("s.matches('a' + 'b')")
    assert "4021 pieces long" in refused("s.matches('(a.{1,200}){1,20}z')")
    assert "4021 pieces long" in refused(r"s.matches('(a.\x7b1,200\x7d)\x7b1,20\x7dz')")


@pytest.mark.parametrize(
    ("pattern", "length"),
    [
        ("", 0),
        ("abc", 3),
        (r"a\{2}", 4),
        ("[abc]{5}", 5),
        ("[]{3}]{2}", 2),
        ("a{2}b{3}", 5),
        ("(ab){3}", 6),
        ("(a{10}){10}", 100),
        ("(a{10})+{10}", 101),
        ("a{3,}", 3),
        ("a{,7}", 7),
        ("((a|b){2}c){3}", 21),
    ],
)
def test_the_length_of_a_pattern_is_that_with_repetitions_written_out(pattern: str, length: int) -> None:
    assert unrolled_length(pattern) == length


@pytest.mark.parametrize(
    ("expression", "where"),
    [("a >", "line 1, column 4"), ("a\n  b", "line 2, column 3"), ("a.all(b.c, true)", "must be a simple name")],
)
def test_an_expression_that_does_not_parse_says_where(expression: str, where: str) -> None:
    with pytest.raises(InvalidCondition, match=where) as caught:
        CelConditions().compile(expression)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("expression", ["a = 1", "a and b", "not a", "a is None", "ok == True", "a != None", "False"])
def test_an_expression_in_python_is_told_how_cel_is_written(expression: str) -> None:
    with pytest.raises(InvalidCondition, match=r"CEL is written with ==, &&, \|\|, !, true, false and null"):
        CelConditions().compile(expression)


def test_a_workflow_names_all_its_wrong_conditions() -> None:
    nodes = tuple(Node(name=name, reference=f"m:{name}", start=name == "a") for name in "abc")
    edges = (
        Edge(sources=("a",), target="b", when="x >"),
        Edge(sources=("a",), target="c", when="s.matches('(')"),
        Edge(sources=("b",), target="c", when="fine == 1"),
    )
    with pytest.raises(ValueError, match=r"a -> b.*cannot be read(.|\n)*a -> c.*not valid") as caught:
        WorkflowDefinition(name="w", nodes=nodes, edges=edges).validate(CelConditions())
    assert "fine" not in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("v == 1.5", Decimal("1.5")),
        ("v > timestamp('2025-01-01T00:00:00Z')", datetime(2026, 1, 1, tzinfo=UTC)),
        ("v == duration('90s')", timedelta(seconds=90)),
        ("v == b'x'", b"x"),
        ("v[1] == 'x'", {1: "x"}),
        ("v > 9223372036854775807u", 2**63),
        ("v > 1e18", 2**70),
    ],
)
def test_values_that_cel_knows_under_another_name_can_be_used(expression: str, value: Any) -> None:
    assert holds(expression, v=value)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({1, 2}, "set"),
        (frozenset({1}), "frozenset"),
        (date(2026, 1, 1), "date"),
        (UUID(int=1), "UUID"),
        ({"when": [date(2026, 1, 1)]}, "date"),
        ({None: 1}, "key"),
        (10**400, "int"),
        ("\ud800", "str"),
        (object(), "object"),
        (print, "code"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(value: Any, named: str) -> None:
    message = failed("k == 1 && v == 1", k=1, v=value)
    assert "'k == 1 && v == 1' cannot use 'v'" in message
    assert named in message


def test_a_value_that_contains_itself_is_refused() -> None:
    items: list[Any] = []
    items.append({"items": items})
    assert "cannot use 'items'" in failed("size(items) == 1", items=items)


def test_a_deep_value_that_can_be_stored_can_be_used() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    assert holds("size(deep) == 1", deep=deep)
    assert "deeper than 200" in failed("size(deep) == 1", deep=[deep])


def test_a_function_in_the_state_is_never_called() -> None:
    called = list[int]()
    assert "code" in failed("f(f) == 1", f=called.append)
    assert "calls 'f'" in failed("f(1) == 1", f=called.append)
    assert called == []


def test_a_missing_key_counts_only_where_it_is_needed() -> None:
    assert holds("there || missing", there=True)
    assert holds("there ? true : missing", there=True)
    assert "needs 'missing', but the state has no such key" in failed("there && missing", there=True)


def test_a_name_is_a_variable_only_where_no_macro_binds_it() -> None:
    source = CelSource("x > 1 && items.exists(y, y.z > x && [y].all(w, w != v)) // u\n || 'q' == \"r\" || y")
    assert source.free_names == {"x", "items", "v", "y"}
    assert CelSource("items.exists(y, y > 1)").free_names == {"items"}


def test_errors_in_loops_name_the_variables_of_the_state_only() -> None:
    message = failed("items.all(i, i > 'a')", items=[1], other=2)
    assert message.endswith("(items: list)")


def test_a_guard_stands_in_every_kind_of_loop() -> None:
    for name in ("all", "exists", "exists_one", "existsOne", "filter", "map"):
        assert CelSource(f"l.{name}(x, x > 1) == y").guarded("G()").count("G()") == 1
    assert CelSource("l . map ( x , f(x, [1, 2]) , g(x, {1: 2}) ).size()").guarded("G()").count("G()") == 1
    assert CelSource("'l.all(x, true)' == l.all // l.all(x, true)").guarded("G()").count("G()") == 0


@pytest.mark.parametrize(
    "expression",
    [
        "[1].all(i, v, true)",
        "[1].exists(i, v, true)",
        "[1].transformList(i, v, v) == [1]",
        "{1: 2}.transformMap(k, v, v) == {1: 2}",
        "[1].sortBy(x, x) == [1]",
        "cel.bind(x, 1, x == 1)",
        "optional.of(1).optMap(x, x == 1).value()",
    ],
)
def test_the_library_has_no_loops_but_those_that_are_guarded(expression: str) -> None:
    # When this fails, a new release of the library has new macros: CelSource must learn them.
    assert CelSource(expression).macros == ()
    assert "calls" in failed(expression) or "needs" in failed(expression)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    """Expressions whose texts, comments and spaces try to hide where macros begin and end."""
    if depth == 0:
        return draw(
            st.sampled_from(["k", "1", "2u", "1.5e+2", "'a'", '"(,"', r"'\'),'", "'''x')'''", r"r'\'", 'b"("', "'//'"])
        )
    a, b, c = (draw(expressions(depth=depth - 1)) for _ in range(3))
    _ = draw(st.sampled_from(["", " ", "\n", " // , ) '\n", "\t"]))
    macro = draw(st.sampled_from(["all", "exists", "exists_one", "filter", "map"]))
    shapes = [
        a,
        f"[{a},{_}{b}]",
        f"({a}){_}== ({b})",
        f"({a}){_}|| ({b} != k)",
        f"({a} == {b} ?{_}{b} : {c})",
        f"[{a}, k]{_}.{_}{macro}(x{_},{_}x == {b}{_})",
        f"[{a}, k].{macro}{_}(x,{_}{c})",
        f"[{a}, {b}]{_}.map{_}(x,{_}x != {b}{_},{c}{_})",
    ]
    return draw(st.sampled_from(shapes))


def outcome(program: Any, state: dict[str, Any]) -> Any:
    try:
        return repr(program.execute(state))
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        return str(error)


@given(expressions())
def test_guards_do_not_change_what_an_expression_means(text: str) -> None:
    source = CelSource(text)
    guarded = cel.compile(source.guarded("guard()"))
    state = {"k": 1, "guard": lambda: True}
    assert outcome(guarded, state) == outcome(cel.compile(text), state)
    assert len(source.macros) == len(re.findall(r"\b(?:all|exists|exists_one|filter|map)\b", text))


def test_the_library_is_imported_only_when_a_condition_is_compiled() -> None:
    code = "import sys, wtb.infrastructure.conditions.cel; sys.exit('cel' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command_line_of_the_library_is_loaded_only_for_whoever_imports_it() -> None:
    code = """
import sys
from wtb.infrastructure.conditions.cel import CelConditions
assert CelConditions().compile("x > 1")({"x": 2})
assert not {"typer", "prompt_toolkit", "cel.cli"} & sys.modules.keys()
import cel
from cel import cli
assert cli is sys.modules["cel.cli"] and cli.app and "typer" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("expression", "state", "expected"),
    [
        ("has(x)", {}, False),
        ("has(x)", {"x": None}, True),
        ("has( x ) && x > 3", {}, False),
        ("has(x) && x > 3", {"x": 4}, True),
        ("!has(x) || has(y)", {"x": 1}, False),
        ("has(x.a) && has(x)", {"x": {"a": 1}}, True),
        ("[1].exists(i, has(x) && i == x)", {"x": 1}, True),
        ("x == null", {}, True),
        ("x == null", {"x": None}, True),
        ("x == null", {"x": 1}, False),
        ("null != x", {}, False),
        ("x == null || x > 3", {}, True),
        ("x != null && x.a == 1", {}, False),
        ("'has(x)' == y", {"y": "has(x)"}, True),
    ],
)
def test_a_key_may_be_missing_if_the_condition_asks_for_that(expression: str, state: Any, expected: bool) -> None:
    assert holds(expression, **state) is expected


def test_a_missing_key_that_nothing_asks_for_is_still_an_error() -> None:
    assert "needs 'y', but the state has no such key" in failed("has(x) || y > 1")
    assert "'x' is null or missing: ask for that first" in failed("x > 3 || x != null")
    assert "needs 'x'" in failed("x.a == null")


@dataclass
class Answer:
    text: str
    parts: list[Any]


class Verdict(BaseModel):
    passed: bool
    answer: Any = None


def test_dataclasses_and_models_are_mappings() -> None:
    answer = Answer("yes", [Verdict(passed=True)])
    assert holds("a.text == 'yes' && a.parts[0].passed", a=answer)
    assert holds("v.answer.text.startsWith('y') && !has(v.other)", v=Verdict(passed=False, answer=answer))
    assert holds("all.exists(v, v.passed)", all=[Verdict(passed=False), Verdict(passed=True)])
    assert holds("size(m.k) == 1", m={"k": (answer,)})


def test_len_is_called_size_here() -> None:
    assert "calls len(…), which CEL does not have: use size(…)" in refused("len(docs) > 3")
    assert holds("x.len == 1", x={"len": 1})


SHEET = re.findall(
    r"^\| `(.+?)` \| `(.+?)` \| (yes|no) \|$",
    (Path(__file__).parents[2] / "docs" / "conditions.md").read_text(),
    re.MULTILINE,
)


@pytest.mark.parametrize(("expression", "state", "expected"), SHEET)
def test_the_sheet_in_the_documentation_is_right(expression: str, state: str, expected: str) -> None:
    assert holds(expression.replace("\\|", "|"), **json.loads(state)) is (expected == "yes")


def test_the_sheet_has_lines() -> None:
    assert len(SHEET) >= 19
