"""The contract of Conditions: a subclass gives a fixture `conditions`; the expressions are the common ground of CEL."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import pytest

from wtb.domain.errors import InvalidCondition
from wtb.domain.ports import Conditions

STATE: Mapping[str, Any] = MappingProxyType(
    {
        "topic": "billing",
        "score": 0.75,
        "tries": 2,
        "done": False,
        "nothing": None,
        "docs": [{"id": 1, "tags": ["a", "b"]}, {"id": 2, "tags": []}],
        "pair": (1, 2),
        "last": {"topic": "billing"},
    }
)


class ConditionsContract:
    """What every language of conditions does."""

    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            ("true", True),
            ("done", False),
            ("topic == 'billing'", True),
            ("topic != 'billing'", False),
            ("score > 0.5 && tries < 3", True),
            ("score > 0.9 || tries == 3", False),
            ("!done", True),
            ("nothing == null", True),
            ("last.topic == topic", True),
            ("topic in ['billing', 'sales']", True),
            ("size(docs) == 2 && docs[0].id == 1", True),
            ("docs.exists(doc, 'b' in doc.tags)", True),
            ("docs.all(doc, size(doc.tags) > 0)", False),
            ("docs.exists(doc, doc.tags.exists(tag, tag == 'b'))", True),
            ("size(docs.filter(doc, doc.id > 1)) == 1", True),
            ("docs.map(doc, doc.id * 2) == [2, 4]", True),
            ("pair == [1, 2]", True),
            ("has(last.topic) && !has(last.answer)", True),
            ("tries > 1 ? topic == 'billing' : done", True),
            ("topic.startsWith('bill') && topic.matches('^[a-z]+$')", True),
        ],
    )
    def test_a_condition_says_whether_it_holds(self, conditions: Conditions, expression: str, expected: bool) -> None:
        assert conditions.compile(expression)(STATE) is expected

    def test_one_compiled_condition_answers_for_many_states(self, conditions: Conditions) -> None:
        holds = conditions.compile("k > 3")
        assert [holds({"k": k}) for k in range(6)] == [False, False, False, False, True, True]

    def test_a_condition_answers_for_several_threads_at_once(self, conditions: Conditions) -> None:
        holds = conditions.compile("items.exists(item, item == wanted)")
        states = [{"items": list(range(50)), "wanted": wanted} for wanted in range(100)]
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(holds, states * 5)) == [wanted < 50 for wanted in range(100)] * 5

    @pytest.mark.parametrize(
        "expression", ["", "   ", "topic ==", "topic = 'billing'", "(topic", "topic; done", "import os", "x" * 100_000]
    )
    def test_what_is_no_expression_is_refused_when_compiled(self, conditions: Conditions, expression: str) -> None:
        with pytest.raises(InvalidCondition):
            conditions.compile(expression)

    @pytest.mark.parametrize(
        ("expression", "named"),
        [
            ("topics == 'billing'", "topics"),
            ("topic > 5", "topic"),
            ("last.answer == 1", "answer"),
            ("docs[7].id == 1", "docs"),
            ("nosuchfunction(topic)", "nosuchfunction"),
            ("__import__('os') == 1", "__import__"),
            ("tries / 0 == 1", "tries"),
        ],
    )
    def test_what_cannot_be_evaluated_names_the_expression_and_the_culprit(
        self, conditions: Conditions, expression: str, named: str
    ) -> None:
        with pytest.raises(InvalidCondition) as caught:
            conditions.compile(expression)(STATE)
        assert expression in str(caught.value).replace('\\"', '"')
        assert str(caught.value).count(named) > expression.count(named)

    @pytest.mark.parametrize(
        ("expression", "given"),
        [("tries", "2"), ("topic", "'billing'"), ("nothing", "None"), ("docs", "[{"), ("score + 1.0", "1.75")],
    )
    def test_only_true_and_false_are_answers(self, conditions: Conditions, expression: str, given: str) -> None:
        with pytest.raises(InvalidCondition) as caught:
            conditions.compile(expression)(STATE)
        assert repr(expression) in str(caught.value)
        assert given in str(caught.value)

    def test_values_that_are_not_asked_for_may_be_anything(self, conditions: Conditions) -> None:
        odd: dict[str, Any] = {"set": {1, 2}, "object": object(), "code": print, "item": {3}, "k": 1}
        odd["itself"] = odd
        assert conditions.compile("k == 1 && [1, 2].exists(item, item == k)")(odd)

    def test_a_condition_changes_nothing(self, conditions: Conditions) -> None:
        state = {"docs": [{"id": 1}], "k": 1}
        conditions.compile("docs.map(doc, doc.id + k) == [2]")(state)
        assert state == {"docs": [{"id": 1}], "k": 1}

    def test_an_endless_condition_is_ended(self, conditions: Conditions) -> None:
        items = list(range(100_000))
        with pytest.raises(InvalidCondition, match="items"):
            conditions.compile("items.all(a, items.all(b, a + b >= 0))")({"items": items})
