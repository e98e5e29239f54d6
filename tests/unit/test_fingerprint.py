"""The fingerprint of a function: the same for the same code, another when it, or what it uses, has changed."""

from __future__ import annotations

import functools
import importlib
import re
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import wtb
from wtb.application.dependencies.fingerprint import Fingerprint
from wtb.application.dependencies.walk import Surroundings, fingerprint
from wtb.application.dependencies.workflow_code import differences, with_code
from wtb.application.tool_registry import TOOLS
from wtb.flow import Workflow

PROGRAM = """
PROMPT = {prompt!r}
LIMIT = 3

class Ranker:
    weight = {weight}
    def rank(self, docs):
        return sorted(docs){order}

def helper(text):
    return text{method}()

def node(state, top={default}):
    seen = {{"a", "b", "c", "d"}}
    inner = lambda item: {inner}
    return {{"text": helper(PROMPT), "docs": Ranker().rank(state["docs"])[:LIMIT], "in": "x" in {{"x", "y", "z"}}}}
"""
SAME = {"prompt": "Be kind", "weight": 1, "order": "", "method": ".lower", "default": 1, "inner": "item"}


CHANGES: list[dict[str, Any]] = [
    {"prompt": "Be short"},
    {"weight": 2},
    {"order": "[::-1]"},
    {"method": ".upper"},
    {"default": 2},
    {"inner": "item + 1"},
]
SCRIPT = """
import importlib, os, sys
from wtb.application.dependencies.walk import fingerprint

for folder in sys.argv[1:]:
    os.chdir(folder)
    sys.path[0] = folder
    sys.modules.pop("program", None)
    print(fingerprint(importlib.import_module("program").node).digest)
"""


def program_in(folder: Path, **changes: Any) -> Path:
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM.format(**{**SAME, **changes}))
    return folder


def digests_of(*folders: Path) -> list[str]:
    """Return the digests of these programs, made in a process of its own, where sets have an order of their own."""
    found = subprocess.run([sys.executable, "-c", SCRIPT, *folders], capture_output=True, text=True, check=True)
    return found.stdout.split()


def test_the_digest_is_the_same_in_every_process_and_place(tmp_path: Path) -> None:
    one, other = program_in(tmp_path / "one"), program_in(tmp_path / "other")
    assert digests_of(one) == digests_of(one) == digests_of(other)


def test_the_digest_follows_prompts_helpers_classes_defaults_and_inner_functions(tmp_path: Path) -> None:
    changed = [program_in(tmp_path / str(number), **change) for number, change in enumerate(CHANGES)]
    one, other, *different = digests_of(program_in(tmp_path / "one"), program_in(tmp_path / "other"), *changed)
    assert one == other
    assert len({one, *different}) == 1 + len(CHANGES)


MODULES = {
    "module": ("import prompts\ndef node(state): return prompts.KIND", "KIND = {!r}"),
    "from": ("from prompts import KIND\ndef node(state): return KIND", "KIND = {!r}"),
    "inside": ("import prompts\ndef node(state):\n    from prompts import KIND\n    return KIND", "KIND = {!r}"),
    "helper": ("import prompts\ndef node(state): return prompts.helper()", "def helper(): return {!r}"),
    "package": ("import texts.prompts\ndef node(state): return texts.prompts.KIND", "KIND = {!r}"),
    "list": ("import prompts\ndef node(state): return prompts.KINDS[0]", "KINDS = [{!r}]"),
    "class": ("import prompts\ndef node(state): return prompts.Kind.texts", "class Kind:\n    texts = [{!r}]"),
    "base": (
        "import prompts\nclass Own(prompts.Base): pass\ndef node(state): return Own().text()",
        "class Base:\n    def text(self): return {!r}",
    ),
    "cached": (
        "import prompts\ndef node(state): return prompts.Kind().text",
        "import functools\nclass Kind:\n    @functools.cached_property\n    def text(self): return {!r}",
    ),
    "chosen": (
        "import prompts\ndef node(state): return prompts.all_of_them, prompts.chosen",
        "all_of_them = [['a'], ['b']]\nchosen = all_of_them[{!r} == 'kind']",
    ),
}


@pytest.mark.parametrize("program", MODULES)
def test_a_fingerprint_follows_what_is_looked_up_in_modules_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    node, prompts = MODULES[program]
    texts = "texts/prompts.py" if program == "package" else "prompts.py"

    def found(place: str, text: str) -> Any:
        (tmp_path / place / "texts").mkdir(parents=True)
        (tmp_path / place / "program.py").write_text(node)
        (tmp_path / place / texts).write_text(prompts.format(text))
        with monkeypatch.context() as patch:
            patch.syspath_prepend(tmp_path / place)
            patch.chdir(tmp_path / place)
            for name in ("program", "prompts", "texts", "texts.prompts"):
                patch.delitem(sys.modules, name, raising=False)
            found = print_of(importlib.import_module("program").node)
        assert program == "inside" or found.coarse == ()
        return found.digest

    same = found("one", "kind")
    assert found("two", "kind") == same
    assert found("three", "harsh") != same


def closure(value: Any) -> Any:
    return lambda state: {"value": value}


class Node:
    def __init__(self, model: str) -> None:
        self.model = model

    def __call__(self, state: Any) -> dict[str, Any]:
        return {"model": self.model}

    def method(self, state: Any) -> dict[str, Any]:
        return {"model": self.model}


def plain(state: Any, value: Any) -> dict[str, Any]:
    return {"value": value}


def with_default(value: Any) -> Any:
    def node(state: Any, *, prompt: Any = value) -> Any:
        return prompt

    return node


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (closure("a"), closure("b")),
        (functools.partial(plain, value=1), functools.partial(plain, value=2)),
        (Node("small"), Node("large")),
        (Node("small").method, Node("large").method),
        (with_default("a"), with_default("b")),
        (wtb.tool(name="digest-a")(plain), wtb.tool(name="digest-a", effects="none")(plain)),
    ],
)
def test_values_that_a_function_carries_count(one: Any, other: Any) -> None:
    assert print_of(one).digest == print_of(one).digest
    assert print_of(one).digest != print_of(other).digest


def test_a_function_that_calls_itself_has_a_digest() -> None:
    def node(state: Any) -> Any:
        return node(state)

    assert print_of(node).digest == print_of(node).digest


def test_differences_are_told_by_node() -> None:
    def flow(*, config: int = 0, extra: str = "", value: str = "a", reducer: bool = False) -> Any:
        made = Workflow("flow")
        made.add_node("a", closure(value), start=True)
        made.add_node("b", plain, config={"k": config})
        if extra:
            made.add_node(extra, plain)
            made.edge("a", extra)
        if reducer:
            made.reducer("log", wtb.append)
        return with_code(made.definition())

    def told(*flows: Any) -> list[str]:
        return list(differences(*flows))

    assert told(flow(), flow()) == []
    here = "tests/unit/test_fingerprint.py"
    captured = f"`value` captured by `closure.<locals>.<lambda>` in {here}"
    assert told(flow(), flow(value="b")) == [f"node `a` has changed: {captured}"]
    assert told(flow(), flow(config=1)) == ["node `b` is set up differently"]
    assert told(flow(), flow(extra="c")) == ["node `c` is new", "its edges or reducers have changed"]
    assert told(flow(extra="c"), flow()) == ["node `c` is gone", "its edges or reducers have changed"]
    assert told(flow(), flow(reducer=True)) == ["its edges or reducers have changed"]


def test_parts_of_an_earlier_version_are_not_compared() -> None:
    made = Workflow("flow")
    made.add_node("a", closure("x"), start=True)
    now = with_code(made.definition())
    before = {**now, "code": {"a": "0123"}, "code_version": None}
    assert list(differences(before, now)) == []


def print_of(function: Any, **config: Any) -> Fingerprint:
    return fingerprint(function, config, around=Surroundings(find_tool=TOOLS.get))


@dataclass
class Prompt:
    text: str
    examples: list[str]


@dataclass(frozen=True, slots=True)
class Slotted:
    text: str

    def __call__(self, state: Any) -> dict[str, Any]:
        return {"text": self.text}


def with_prompt(prompt: Any) -> Any:
    return lambda state: {"text": prompt}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a"], ["b"]),
        ({"k": [1]}, {"k": [2]}),
        ({1, 2}, {1, 3}),
        (Prompt("be kind", ["x"]), Prompt("be kind", ["y"])),
        (Slotted("be kind"), Slotted("be short")),
        (re.compile("a"), re.compile("b")),
        (Path("a"), Path("b")),
        (closure("a"), closure("b")),
        (functools.partial(plain, value=[1]), functools.partial(plain, value=[2])),
        (1, True),
        ("1", 1),
    ],
)
def test_a_fingerprint_sees_values_that_can_change(one: Any, other: Any) -> None:
    assert print_of(with_prompt(one)) == print_of(with_prompt(one))
    assert print_of(with_prompt(one)).digest != print_of(with_prompt(other)).digest
    assert print_of(with_prompt(one)).coarse == ()


def test_a_callable_object_is_known_by_its_attributes_wherever_they_lie() -> None:
    assert print_of(Slotted("a")) == print_of(Slotted("a"))
    assert print_of(Slotted("a")) != print_of(Slotted("b"))


def test_a_fingerprint_follows_config_cached_functions_and_named_tools() -> None:
    assert print_of(plain, k=1).digest != print_of(plain, k=2).digest

    def cached(value: str) -> Any:
        return functools.cache(lambda: value)

    assert print_of(with_prompt(cached("a"))).digest != print_of(with_prompt(cached("b"))).digest

    def calls(state: Any, ctx: Any) -> Any:
        return ctx.tool("code-test-tool")

    wtb.tool(name="code-test-tool")(calls)
    before = print_of(calls)
    TOOLS._tools.pop("code-test-tool")
    assert print_of(calls).digest != before.digest


class Client:
    """An object that counts, beside a lock that nobody can look into."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.lock = threading.Lock()
        self.socket = socket.socket()
        self.socket.close()


class Known(Client):
    def __init__(self, version: int) -> None:
        self.version = version

    def __wtb_fingerprint__(self) -> int:
        return self.version


def test_an_attribute_that_cannot_be_looked_into_does_not_hide_the_others() -> None:
    one, other = print_of(with_prompt(Client("a"))), print_of(with_prompt(Client("b")))
    changed = {name for name in one.parts if one.parts[name] != other.parts.get(name)}
    assert changed == {"`prompt.address` captured by `with_prompt.<locals>.<lambda>` in tests/unit/test_fingerprint.py"}
    assert one.coarse == ("a socket.socket cannot be looked into: the code of tests/unit/test_fingerprint.py counts",)


def test_an_object_may_say_itself_what_it_is() -> None:
    assert print_of(with_prompt(Known(1))).coarse == ()
    assert print_of(with_prompt(Known(1))).digest != print_of(with_prompt(Known(2))).digest


def test_an_attribute_called_as_a_global_is_not_the_global(monkeypatch: pytest.MonkeyPatch) -> None:
    def node(state: Any, ctx: Any) -> Any:
        return ctx.closure

    before = print_of(node).digest
    monkeypatch.setitem(globals(), "closure", "another")
    assert print_of(node).digest == before


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return getattr(state, state['name'])", "getattr with a computed name"),
        ("return getattr(state, 'a' + state['name'])", "getattr with a computed name"),
        ("return globals()['x']", "globals()"),
        ("return eval('1')", "eval"),
        ("import importlib\n    return importlib.import_module('x')", "importlib"),
        ("return getattr(state, 'name')", None),
        ("return getattr(state, 'name', None)", None),
        ("return getattr(state.inner, 'name', state)", None),
    ],
)
def test_look_ups_that_cannot_be_followed_count_everything(body: str, reason: str | None) -> None:
    space: dict[str, Any] = {"__name__": __name__}
    exec(compile(f"def node(state):\n    {body}", __file__, "exec"), space)  # noqa: S102  a function of this file
    found = print_of(space["node"])
    assert found.reads_anything is (reason is not None)
    assert found.coarse == (() if reason is None else (f"`node` in {HERE} uses {reason}: all your modules count",))


HERE = "tests/unit/test_fingerprint.py"


def test_asking_a_class_for_annotations_that_it_does_not_have_changes_nothing() -> None:
    class Plain:
        """Python gives it an empty `__annotations__` when somebody asks for it."""

    before = fingerprint(lambda: Plain).digest
    assert Plain.__annotations__ == {}
    assert fingerprint(lambda: Plain).digest == before
