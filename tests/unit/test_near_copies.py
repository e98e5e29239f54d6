"""Near copies among cases: what is noticed, and what is not mistaken for one."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

from wtb.domain.cases import Case
from wtb.domain.statistics.near_copies import NearCopies, find_near_copies
from wtb.infrastructure.cases import read_cases

EXAMPLES = Path(__file__).parents[2] / "examples"
WORDS = ("order", "parcel", "invoice", "refund", "customer", "address", "delay", "courier", "window", "price", "seat")


def case(name: str, text: str, cluster: str | None = None) -> Case:
    return Case(id=name, input={"question": text}, cluster=cluster)


def letter(seed: int, length: int = 40) -> str:
    chance = random.Random(seed)
    return " ".join(chance.choice(WORDS) + str(chance.randrange(50)) for _ in range(length))


def others(count: int = 20) -> list[Case]:
    return [case(f"other{number}", letter(number)) for number in range(count)]


def test_a_text_with_a_few_other_words_is_a_near_copy() -> None:
    text = letter(1000)
    changed = text.replace(text.split()[20], "something")

    assert find_near_copies([*others(), case("a", text), case("b", changed)]) == NearCopies(cases=2, example=("a", "b"))


def test_texts_of_their_own_are_none() -> None:
    assert find_near_copies(others(200)) is None


def test_texts_that_share_a_template_are_none() -> None:
    template = "You work for a shop. Be polite and brief, and do not promise anything that the shop cannot keep. "

    assert find_near_copies([case(str(number), template + letter(number, 14)) for number in range(30)]) is None


def test_short_questions_are_none() -> None:
    assert find_near_copies([case(str(number), f"Where is invoice {number}?") for number in range(20)]) is None


def test_the_cases_of_the_examples_are_none() -> None:
    for path in EXAMPLES.rglob("cases*.jsonl"):
        assert find_near_copies(read_cases(path)) is None, path


def test_cases_of_a_cluster_are_not_looked_at() -> None:
    assert find_near_copies([case("a", letter(1), "one"), case("b", letter(1), "one"), *others()]) is None


def test_texts_within_lists_and_mappings_are_read_and_other_inputs_are_none() -> None:
    def nested(name: str) -> Case:
        return Case(id=name, input={"messages": [{"role": "user", "content": letter(1007)}], "n": 3})

    assert find_near_copies([nested("a"), nested("b"), *others()]) == NearCopies(cases=2, example=("a", "b"))
    assert find_near_copies([Case(id=str(number), input={"n": 1}) for number in range(5)]) is None


def test_copies_of_one_text_among_many_cases_are_counted() -> None:
    """Also where all share their smallest hashes, each case is compared with a few only."""
    cases = [case(str(number), f"{letter(5, 30)} {number}") for number in range(300)]
    found = find_near_copies([*cases, *(case(f"o{number}", letter(number, 30)) for number in range(700))])

    assert found is not None
    assert found.cases >= 300


def test_what_was_found_comes_back_from_plain_data() -> None:
    found = NearCopies(cases=3, example=("a", "b"))

    assert NearCopies.from_data(found.to_data()) == found


def test_the_readme_has_no_near_copies() -> None:
    """Its cases are made in a loop: all questions of the page, as if each were a case."""
    text = (EXAMPLES.parent / "README.md").read_text()
    questions: list[Any] = re.findall(r'"question": f?"([^"]+)"', text)

    assert find_near_copies([case(str(number), question) for number, question in enumerate(questions)]) is None
