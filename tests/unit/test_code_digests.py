"""Code digests: an edit of any own function that a node reaches is noticed, and nothing else is."""

from __future__ import annotations

import functools
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from wtb.application.runs.code_digests import code_digests, other_code

TEXT = """
import functools
import json
from dataclasses import dataclass

LIMIT = 5
SEEN = []


def direct(): return 'direct'

def in_a_list(): return 'list'

HANDLERS = [in_a_list]
BY_NAME = {"a": lambda: 'lambda'}


class Base:
    def inherited(self): return 'inherited'

class Held(Base):
    @property
    def value(self): return 'property'

    @staticmethod
    def static(): return 'static'


KEPT = Held()


def wrapping(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper

@wrapping
def wrapped(): return 'wrapped'


def unused(): return 'unused'


def work(state, given=direct):
    def inner(): return 'inner'
    SEEN.append(LIMIT)
    return json.dumps([direct(), HANDLERS[0](), BY_NAME["a"](), Held().value, KEPT.static(), wrapped(), inner()])
"""


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Callable[[str], Any]]:
    """Load a text as a module, as another process would."""

    def loaded(text: str) -> Any:
        file = tmp_path / "own_nodes.py"
        file.write_text(text)
        spec = importlib.util.spec_from_file_location("own_nodes", file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules["own_nodes"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield loaded
    sys.modules.pop("own_nodes", None)


@pytest.mark.parametrize(
    ("edited", "name"),
    [
        ("direct", "direct"),
        ("list", "in_a_list"),
        ("lambda", "<lambda>"),
        ("inherited", "Base.inherited"),
        ("property", "Held.value"),
        ("static", "Held.static"),
        ("wrapped", "wrapped"),
        ("inner", "work"),
    ],
)
def test_an_edit_of_a_function_that_the_node_reaches_is_named(
    load: Callable[[str], Any], edited: str, name: str
) -> None:
    before = code_digests(load(TEXT).work)
    text = TEXT.replace(f"return '{edited}'", "return 'edited'").replace(f": '{edited}'", ": 'edited'")
    now = code_digests(load(text).work)
    assert other_code(before, now) == [f"`{name}` in own_nodes.py"]


@pytest.mark.parametrize("edit", [("'unused'", "'edited'"), ("LIMIT = 5", "LIMIT = 6"), ("SEEN = []", "SEEN = [1]")])
def test_a_value_or_a_function_that_the_node_does_not_reach_makes_no_difference(
    load: Callable[[str], Any], edit: tuple[str, str]
) -> None:
    before = code_digests(load(TEXT).work)
    assert other_code(before, code_digests(load(TEXT.replace(*edit)).work)) == []


def test_code_of_another_version_of_python_is_not_compared(load: Callable[[str], Any]) -> None:
    here = code_digests(load(TEXT).work)
    assert other_code(here, {name: f"3.0 {digest}" for name, digest in here.items()}) == []


def test_functions_of_libraries_do_not_count(load: Callable[[str], Any]) -> None:
    found = code_digests(load(TEXT).work)
    assert not [name for name in found if json.dumps.__name__ in name or functools.wraps.__name__ in name]
