"""Ways in which a node can depend on something: programs, an edit of each, and what a batch has to say about it.

Each way is a module with a function `node`. The edit replaces a text in one of its files, or sets a variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_EDIT = ("one", "two")


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to depend on something, an edit, and the words in which a plan names the change."""

    name: str
    code: str
    words: tuple[str, ...]
    """What is said to have changed. `$F` stands for the module of the node."""
    files: Mapping[str, str] = field(default_factory=dict)
    edited: str = ""
    """The file that is edited; the module of the node unless another is named."""
    old: str = "one"
    new: str = "two"
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set for the second process, instead of an edit."""
    node: str = "node"
    setup: str = ""
    """How the node is added to the workflow, where that is not all."""
    remove: bool = False
    """Whether the edit removes the file."""

    @property
    def module(self) -> str:
        return f"{self.name}.py"

    @property
    def expected(self) -> list[str]:
        return [word.replace("$F", self.module) for word in self.words]

    def write(self, folder: Path) -> None:
        """Write the program into a folder."""
        for name, text in {self.module: self.code.lstrip("\n"), **self.files}.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def edit(self, folder: Path) -> None:
        """Make the edit."""
        if self.environment:
            return
        path = folder / (self.edited or self.module)
        if self.remove:
            path.unlink()
            return
        text = path.read_text() if path.exists() else self.old
        assert self.old in text, f"{self.name}: {self.old!r} is not in {path.name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(self.old, self.new))


def app(ways: Sequence[Way], name: str = "app") -> str:
    """Return a program with a node for each way, one after the other, and a batch of two cases."""
    lines = ["import wtb", f"flow = wtb.Workflow({name!r})"]
    for number, way in enumerate(ways):
        start = "start=True" if number == 0 else ""
        lines += [
            f"import {way.name}",
            f"flow.add_node({way.name!r}, {way.name}.{way.node}, {', '.join(filter(None, [start, way.setup]))})",
        ]
        if number:
            lines.append(f"flow.edge({ways[number - 1].name!r}, {way.name!r})")
    lines += [
        f"flow.edge({ways[-1].name!r}, wtb.END)",
        "batch = wtb.BatchTest(flow, cases=[{'id': str(n), 'input': {'q': f'q{n}'}} for n in range(2)],",
        "                      evaluators=[wtb.Steps()])",
    ]
    return "\n".join(lines) + "\n"


# Objects of the user's own classes

OBJECTS = [
    Way(
        name="method",
        code="""
class Retriever:
    def search(self, q):
        return q + "one"

retriever = Retriever()

def node(state):
    return {"method": retriever.search(state["q"])}
""",
        words=("`Retriever.search` in $F",),
    ),
    Way(
        name="attribute",
        code="""
class Retriever:
    def __init__(self, k):
        self.k = k
    def search(self, q):
        return q + self.k

retriever = Retriever("one")

def node(state):
    return {"attribute": retriever.search(state["q"])}
""",
        words=("`retriever.k` in $F",),
    ),
    Way(
        name="slots",
        code="""
class Retriever:
    __slots__ = ("k",)
    def __init__(self, k):
        self.k = k

retriever = Retriever("one")

def node(state):
    return {"slots": retriever.k}
""",
        words=("`retriever.k` in $F",),
    ),
    Way(
        name="data_class",
        code="""
from dataclasses import dataclass

@dataclass
class Retriever:
    k: str
    def search(self, q):
        return q + self.k + "one"

retriever = Retriever("k")

def node(state):
    return {"data_class": retriever.search(state["q"])}
""",
        words=("`Retriever.search` in $F",),
    ),
    Way(
        name="frozen_default",
        code="""
from dataclasses import dataclass

@dataclass(frozen=True, slots=True)
class Settings:
    k: str = "one"

def node(state):
    return {"frozen_default": Settings().k}
""",
        words=("`Settings` in $F", "`Settings.__init__` in $F"),
    ),
    Way(
        name="attrs_class",
        code="""
import attrs

@attrs.define
class Retriever:
    k: str
    def search(self, q):
        return q + self.k + "one"

retriever = Retriever("k")

def node(state):
    return {"attrs_class": retriever.search(state["q"])}
""",
        words=("`Retriever.search` in $F",),
    ),
    Way(
        name="pydantic_method",
        code="""
from pydantic import BaseModel

class Retriever(BaseModel):
    k: str = "k"
    def search(self, q):
        return q + self.k + "one"

retriever = Retriever()

def node(state):
    return {"pydantic_method": retriever.search(state["q"])}
""",
        words=("`Retriever.search` in $F",),
    ),
    Way(
        name="pydantic_field",
        code="""
from pydantic import BaseModel, Field

class Answer(BaseModel):
    text: str = Field(description="one word")

def node(state):
    return {"pydantic_field": Answer.model_json_schema()["properties"]["text"]["description"]}
""",
        words=("`Answer` in $F",),
    ),
    Way(
        name="pydantic_attribute",
        code="""
from pydantic import BaseModel

class Settings(BaseModel):
    model: str

settings = Settings(model="one")

def node(state):
    return {"pydantic_attribute": settings.model}
""",
        words=("`settings.model` in $F",),
    ),
    Way(
        name="named_tuple",
        code="""
from typing import NamedTuple

class Pair(NamedTuple):
    left: str
    right: str
    def joined(self):
        return self.left + "one" + self.right

pair = Pair("a", "b")

def node(state):
    return {"named_tuple": pair.joined()}
""",
        words=("`Pair.joined` in $F",),
    ),
    Way(
        name="enum_value",
        code="""
from enum import Enum

class Model(Enum):
    SMALL = "one"
    LARGE = "large"

def node(state):
    return {"enum_value": Model.SMALL.value}
""",
        words=("`Model` in $F",),
    ),
    Way(
        name="enum_method",
        code="""
from enum import Enum

class Model(Enum):
    SMALL = "small"
    def price(self):
        return "one"

chosen = Model.SMALL

def node(state):
    return {"enum_method": chosen.price()}
""",
        words=("`Model.price` in $F",),
    ),
    Way(
        name="nested_in_list",
        code="""
class Step:
    def __init__(self, text):
        self.text = text
    def do(self, q):
        return q + self.text

steps = [Step("a"), Step("one")]

def node(state):
    return {"nested_in_list": [step.do(state["q"]) for step in steps]}
""",
        words=("`steps` in $F",),
    ),
    Way(
        name="method_nested_in_dict",
        code="""
class Step:
    def do(self, q):
        return q + "one"

steps = {"first": [Step()]}

def node(state):
    return {"method_nested_in_dict": steps["first"][0].do(state["q"])}
""",
        words=("`Step.do` in $F",),
    ),
    Way(
        name="nested_in_object",
        code="""
class Index:
    def __init__(self, words):
        self.words = words

class Retriever:
    def __init__(self, index):
        self.index = index
        self.back = [self]

retriever = Retriever(Index({"a": ["one"]}))
retriever.index.owner = retriever

def node(state):
    return {"nested_in_object": retriever.index.words["a"]}
""",
        words=("`retriever.index` in $F",),
    ),
    Way(
        name="base_class",
        code="""
from base_class_parts import Base

class Retriever(Base):
    pass

retriever = Retriever()

def node(state):
    return {"base_class": retriever.search(state["q"])}
""",
        files={"base_class_parts.py": 'class Base:\n    def search(self, q):\n        return q + "one"\n'},
        edited="base_class_parts.py",
        words=("`Base.search` in base_class_parts.py",),
    ),
    Way(
        name="abstract_base",
        code="""
import abc

class Base(abc.ABC):
    def search(self, q):
        return self.one(q) + "one"
    @abc.abstractmethod
    def one(self, q): ...

class Retriever(Base):
    def one(self, q):
        return q

retriever = Retriever()

def node(state):
    return {"abstract_base": retriever.search(state["q"])}
""",
        old='+ "one"',
        new='+ "two"',
        words=("`Base.search` in $F",),
    ),
    Way(
        name="meta_class",
        code="""
class Meta(type):
    def __getitem__(cls, key):
        return key + "one"

class Registry(metaclass=Meta):
    pass

def node(state):
    return {"meta_class": Registry[state["q"]]}
""",
        words=("`Meta.__getitem__` in $F",),
    ),
    Way(
        name="class_attribute",
        code="""
class Retriever:
    model = "one"

def node(state):
    return {"class_attribute": Retriever.model}
""",
        words=("`Retriever` in $F",),
    ),
    Way(
        name="property_of_class",
        code="""
class Retriever:
    @property
    def model(self):
        return "one"

def node(state):
    return {"property_of_class": Retriever().model}
""",
        words=("`Retriever.model` in $F",),
    ),
    Way(
        name="cached_property_of_class",
        code="""
import functools

class Retriever:
    @functools.cached_property
    def model(self):
        return "one"

retriever = Retriever()

def node(state):
    return {"cached_property_of_class": retriever.model}
""",
        words=("`Retriever.model` in $F",),
    ),
    Way(
        name="class_method",
        code="""
class Retriever:
    @classmethod
    def model(cls):
        return "one"

def node(state):
    return {"class_method": Retriever.model()}
""",
        words=("`Retriever.model` in $F",),
    ),
    Way(
        name="static_method",
        code="""
class Retriever:
    @staticmethod
    def model():
        return "one"

def node(state):
    return {"static_method": Retriever.model()}
""",
        words=("`Retriever.model` in $F",),
    ),
    Way(
        name="own_descriptor",
        code="""
class Setting:
    def __init__(self, value):
        self.value = value
    def __get__(self, instance, owner):
        return self.value

class Retriever:
    model = Setting("one")

def node(state):
    return {"own_descriptor": Retriever().model}
""",
        words=("`Retriever` in $F",),
    ),
    Way(
        name="operators",
        code="""
class Text:
    def __init__(self, text):
        self.text = text
    def __add__(self, other):
        return Text(self.text + other + "one")

start = Text("a")

def node(state):
    return {"operators": (start + state["q"]).text}
""",
        words=("`Text.__add__` in $F",),
    ),
    Way(
        name="opaque_beside_plain",
        code="""
import socket

class Client:
    def __init__(self, model):
        self.connection = socket.socket()
        self.model = model
    def ask(self, q):
        return q + self.model

client = Client("one")

def node(state):
    return {"opaque_beside_plain": client.ask(state["q"])}
""",
        words=("`client` in $F", "`client.model` in $F"),
    ),
    Way(
        name="lock_beside_plain",
        code="""
import threading
from dataclasses import dataclass, field

@dataclass
class Client:
    model: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    def ask(self, q):
        with self.lock:
            return q + self.model

client = Client("one")

def node(state):
    return {"lock_beside_plain": client.ask(state["q"])}
""",
        words=("`client.model` in $F",),
    ),
    Way(
        name="singleton",
        code="""
class Settings:
    _only = None
    def __new__(cls):
        if cls._only is None:
            cls._only = super().__new__(cls)
            cls._only.model = "one"
        return cls._only

Settings()

def node(state):
    return {"singleton": Settings().model}
""",
        old='= "one"',
        new='= "two"',
        words=("`Settings` in $F", "`Settings.__new__` in $F"),
    ),
    Way(
        name="text_with_a_class",
        code="""
class Prompt(str):
    def filled(self, q):
        return self.replace("X", q)

prompt = Prompt("one X")

def node(state):
    return {"text_with_a_class": prompt.filled(state["q"])}
""",
        words=("`prompt` in $F",),
    ),
    Way(
        name="dict_with_a_class",
        code="""
class Prompts(dict):
    def __missing__(self, key):
        return "nil"

prompts = Prompts(a="one")

def node(state):
    return {"dict_with_a_class": prompts["a"]}
""",
        words=("`prompts` in $F",),
    ),
]

# Functions

FUNCTIONS = [
    Way(
        name="helper",
        code="""
def helper(q):
    return q + "one"

def node(state):
    return {"helper": helper(state["q"])}
""",
        words=("`helper` in $F",),
    ),
    Way(name="itself", code='\ndef node(state):\n    return {"itself": "one"}\n', words=("`node` in $F",)),
    Way(
        name="bound_method",
        code="""
class Retriever:
    def __init__(self, k):
        self.k = k
    def search(self, q):
        return q + self.k

search = Retriever("one").search

def node(state):
    return {"bound_method": search(state["q"])}
""",
        words=("`search` in $F",),
    ),
    Way(
        name="method_as_node",
        code="""
class Answering:
    def __init__(self, model):
        self.model = model
    def answer(self, state):
        return {"method_as_node": self.model}

answering = Answering("one")
""",
        node="answering.answer",
        words=("`Answering(…).model` in $F",),
    ),
    Way(
        name="object_as_node",
        code="""
class Answer:
    def __call__(self, state):
        return {"object_as_node": "one"}

answer = Answer()
""",
        node="answer",
        words=("`Answer.__call__` in $F",),
    ),
    Way(
        name="partial_as_node",
        code="""
import functools

def answer(state, prompt):
    return {"partial_as_node": prompt}

node = functools.partial(answer, prompt="one")
""",
        words=("`prompt` that it is given",),
    ),
    Way(
        name="partial_helper",
        code="""
import functools

def helper(prompt, q):
    return prompt + q

asked = functools.partial(helper, "one")

def node(state):
    return {"partial_helper": asked(state["q"])}
""",
        words=("`asked` in $F",),
    ),
    Way(
        name="closure",
        code="""
def made(prompt):
    def node(state):
        return {"closure": prompt}
    return node

node = made("one")
""",
        words=("`prompt` captured by `made.<locals>.node` in $F",),
    ),
    Way(
        name="closure_over_object",
        code="""
class Model:
    def ask(self, q):
        return q + "one"

def made(model):
    return lambda state: {"closure_over_object": model.ask(state["q"])}

node = made(Model())
""",
        words=("`Model.ask` in $F",),
    ),
    Way(
        name="default",
        code='\ndef node(state, prompt="one"):\n    return {"default": prompt}\n',
        words=("`node` in $F",),
    ),
    Way(
        name="keyword_default",
        code='\ndef node(state, *, prompt="one"):\n    return {"keyword_default": prompt}\n',
        words=("`node` in $F",),
    ),
    Way(
        name="default_of_helper",
        code="""
def helper(q, *, prompt="one"):
    return prompt + q

def node(state):
    return {"default_of_helper": helper(state["q"])}
""",
        words=("`helper` in $F",),
    ),
    Way(
        name="decorated",
        code="""
import functools

def shout(function):
    @functools.wraps(function)
    def wrapper(state):
        return {**function(state), "shouted": "one"}
    return wrapper

@shout
def node(state):
    return {"decorated": state["q"]}
""",
        words=("`shout.<locals>.wrapper` in $F",),
    ),
    Way(
        name="wrapped",
        code="""
import functools

def shout(function):
    @functools.wraps(function)
    def wrapper(state):
        return function(state)
    return wrapper

@shout
def node(state):
    return {"wrapped": "one"}
""",
        words=("`node` in $F",),
    ),
    Way(
        name="decorator_with_settings",
        code="""
def prompt(text):
    def decorate(function):
        def wrapper(state):
            return {**function(state), "prompt": text}
        return wrapper
    return decorate

@prompt("one")
def node(state):
    return {"decorator_with_settings": state["q"]}
""",
        words=("`text` captured by `prompt.<locals>.decorate.<locals>.wrapper` in $F",),
    ),
    Way(
        name="cached_helper",
        code="""
import functools

@functools.lru_cache(maxsize=8)
def helper(q):
    return q + "one"

def node(state):
    return {"cached_helper": helper(state["q"])}
""",
        words=("`helper` in $F",),
    ),
    Way(
        name="single_dispatch",
        code="""
import functools

@functools.singledispatch
def shown(value):
    return "nil"

@shown.register
def _(value: str):
    return value + "one"

def node(state):
    return {"single_dispatch": shown(state["q"])}
""",
        words=("`_` in $F",),
    ),
    Way(
        name="generator",
        code="""
def words(q):
    yield q
    yield "one"

def node(state):
    return {"generator": list(words(state["q"]))}
""",
        words=("`words` in $F",),
    ),
    Way(
        name="async_helper",
        code="""
async def helper(q):
    return q + "one"

async def node(state):
    return {"async_helper": await helper(state["q"])}
""",
        words=("`helper` in $F",),
    ),
    Way(
        name="lambda_in_dict",
        code="""
handlers = {"a": lambda q: q + "one", "b": lambda q: q}

def node(state):
    return {"lambda_in_dict": handlers["a"](state["q"])}
""",
        words=("`<lambda>` in $F",),
    ),
    Way(
        name="inner_function",
        code="""
def node(state):
    def inner(q):
        return q + "one"
    return {"inner_function": inner(state["q"])}
""",
        words=("`node` in $F",),
    ),
    Way(
        name="recursion",
        code="""
def even(n):
    return True if n == 0 else odd(n - 1)

def odd(n):
    return "one" if n == 0 else even(n - 1)

def node(state):
    return {"recursion": even(3)}
""",
        words=("`odd` in $F",),
    ),
    Way(
        name="monkeypatched",
        code="""
import json

def dumps(value):
    return "one"

json.patched_dumps = dumps

def node(state):
    return {"monkeypatched": json.patched_dumps(state["q"])}
""",
        words=("`dumps` in $F",),
    ),
    Way(
        name="executed_text",
        code="""
namespace = {}
exec("def helper(q):\\n    return q + 'one'", namespace)
helper = namespace["helper"]

def node(state):
    return {"executed_text": helper(state["q"])}
""",
        words=("`helper` in code that was made at run time",),
    ),
    Way(
        name="doc_of_helper",
        code='''
def helper(q):
    """Say one."""
    return q

def node(state):
    return {"doc_of_helper": helper.__doc__}
''',
        words=("`helper` in $F",),
    ),
    Way(
        name="annotation_of_helper",
        code="""
import inspect

def helper(q: "one"):
    return q

def node(state):
    return {"annotation_of_helper": str(inspect.signature(helper))}
""",
        words=("`helper` in $F",),
    ),
    Way(
        name="annotation_kind",
        code="""
import inspect

def helper(q: int):
    return q

def node(state):
    return {"annotation_kind": str(inspect.signature(helper))}
""",
        old="q: int",
        new="q: float",
        words=("`helper` in $F",),
    ),
    Way(
        name="wtb_tool",
        code="""
import wtb

@wtb.tool(name="wtb_tool_search")
def search(q):
    return q + "one"

def node(state, ctx):
    return {"wtb_tool": ctx.tool("wtb_tool_search", state["q"])}
""",
        words=("`search` in $F",),
    ),
    Way(
        name="in_a_thread",
        code="""
from concurrent.futures import ThreadPoolExecutor

def helper(q):
    return q + "one"

def node(state):
    with ThreadPoolExecutor(2) as pool:
        return {"in_a_thread": list(pool.map(helper, [state["q"]]))}
""",
        words=("`helper` in $F",),
    ),
]

# Globals and modules

GLOBALS = [
    Way(
        name="global_text",
        code='\nPROMPT = "one"\n\ndef node(state):\n    return {"global_text": PROMPT}\n',
        words=("`PROMPT` in $F",),
    ),
    Way(
        name="global_list",
        code='\nPROMPTS = ["a", "one"]\n\ndef node(state):\n    return {"global_list": PROMPTS[1]}\n',
        words=("`PROMPTS` in $F",),
    ),
    Way(
        name="global_dict",
        code='\nPROMPTS = {"a": {"b": "one"}}\n\ndef node(state):\n    return {"global_dict": PROMPTS["a"]}\n',
        words=("`PROMPTS` in $F",),
    ),
    Way(
        name="global_tuple",
        code='\nPROMPTS = ("a", ("one",))\n\ndef node(state):\n    return {"global_tuple": PROMPTS[1][0]}\n',
        words=("`PROMPTS` in $F",),
    ),
    Way(
        name="global_set",
        code='\nWORDS = {"a", "b", "one"}\n\ndef node(state):\n    return {"global_set": sorted(WORDS)}\n',
        words=("`WORDS` in $F",),
    ),
    Way(
        name="global_pattern",
        code="""
import re

WORD = re.compile("one")

def node(state):
    return {"global_pattern": WORD.pattern}
""",
        words=("`WORD` in $F",),
    ),
    Way(
        name="global_array",
        code="""
import numpy

vectors = numpy.array([1.0, 2.0, 3.0])

def node(state):
    return {"global_array": float(vectors.sum())}
""",
        old="3.0",
        new="4.0",
        words=("`vectors` in $F",),
    ),
    Way(
        name="global_frame",
        code="""
import pandas

frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "one"]})

def node(state):
    return {"global_frame": frame["b"][1]}
""",
        words=("`frame` in $F",),
    ),
    Way(
        name="imported_module",
        code="""
import imported_module_parts

def node(state):
    return {"imported_module": imported_module_parts.PROMPT}
""",
        files={"imported_module_parts.py": 'PROMPT = "one"\n'},
        edited="imported_module_parts.py",
        words=("`PROMPT` in imported_module_parts.py",),
    ),
    Way(
        name="imported_name",
        code="""
from imported_name_parts import helper as asked

def node(state):
    return {"imported_name": asked(state["q"])}
""",
        files={"imported_name_parts.py": 'def helper(q):\n    return q + "one"\n'},
        edited="imported_name_parts.py",
        words=("`helper` in imported_name_parts.py",),
    ),
    Way(
        name="dotted_module",
        code="""
import dotted_parts.prompts

def node(state):
    return {"dotted_module": dotted_parts.prompts.PROMPT}
""",
        files={"dotted_parts/__init__.py": "", "dotted_parts/prompts.py": 'PROMPT = "one"\n'},
        edited="dotted_parts/prompts.py",
        words=("`PROMPT` in dotted_parts/prompts.py",),
    ),
    Way(
        name="relative_import",
        code="from relative_parts.answering import node\n",
        files={
            "relative_parts/__init__.py": "",
            "relative_parts/prompts.py": 'PROMPT = "one"\n',
            "relative_parts/answering.py": (
                "from . import prompts\n\ndef node(state):\n    return {'relative_import': prompts.PROMPT}\n"
            ),
        },
        edited="relative_parts/prompts.py",
        words=("`PROMPT` in relative_parts/prompts.py",),
    ),
    Way(
        name="relative_inside",
        code="from relative_inside_parts.answering import node\n",
        files={
            "relative_inside_parts/__init__.py": "",
            "relative_inside_parts/prompts.py": 'PROMPT = "one"\n',
            "relative_inside_parts/answering.py": (
                "def node(state):\n    from .prompts import PROMPT\n    return {'relative_inside': PROMPT}\n"
            ),
        },
        edited="relative_inside_parts/prompts.py",
        words=("`PROMPT` in relative_inside_parts/prompts.py",),
    ),
    Way(
        name="import_inside",
        code="""
def node(state):
    import import_inside_parts
    return {"import_inside": import_inside_parts.PROMPT}
""",
        files={"import_inside_parts.py": 'PROMPT = "one"\n'},
        edited="import_inside_parts.py",
        words=("`PROMPT` in import_inside_parts.py",),
    ),
    Way(
        name="import_inside_a_helper",
        code="""
def helper():
    from import_helper_parts import PROMPT
    return PROMPT

def node(state):
    return {"import_inside_a_helper": helper()}
""",
        files={
            "import_helper_parts.py": "from import_helper_deep import PROMPT\n",
            "import_helper_deep.py": 'PROMPT = "one"\n',
        },
        edited="import_helper_deep.py",
        words=("`PROMPT` in import_helper_deep.py",),
    ),
    Way(
        name="import_of_installed_then_own",
        code="""
import json, collections.abc
import installed_then_own_parts as parts

def node(state):
    return {"import_of_installed_then_own": json.dumps(parts.settings)}
""",
        files={"installed_then_own_parts.py": 'settings = {"model": "one"}\n'},
        edited="installed_then_own_parts.py",
        words=("`settings` in installed_then_own_parts.py",),
    ),
    Way(
        name="getattr_constant",
        code="""
import getattr_constant_parts as parts

def node(state):
    return {"getattr_constant": getattr(parts, "PROMPT")}
""",
        files={"getattr_constant_parts.py": 'PROMPT = "one"\n'},
        edited="getattr_constant_parts.py",
        words=("`PROMPT` in getattr_constant_parts.py",),
    ),
    Way(
        name="module_passed_on",
        code="""
import module_passed_parts as parts

def prompt_of(module):
    return module.PROMPT

def node(state):
    return {"module_passed_on": prompt_of(parts)}
""",
        files={"module_passed_parts.py": 'PROMPT = "one"\n'},
        edited="module_passed_parts.py",
        words=("`PROMPT` in module_passed_parts.py",),
    ),
    Way(
        name="star_import",
        code="""
from star_import_parts import *

def node(state):
    return {"star_import": helper(state["q"])}
""",
        files={"star_import_parts.py": 'def helper(q):\n    return q + "one"\n'},
        edited="star_import_parts.py",
        words=("`helper` in star_import_parts.py",),
    ),
    Way(
        name="module_getattr",
        code="""
import module_getattr_parts as parts

def node(state):
    return {"module_getattr": parts.PROMPT}
""",
        files={"module_getattr_parts.py": 'def __getattr__(name):\n    return name + "one"\n'},
        edited="module_getattr_parts.py",
        words=("`__getattr__` in module_getattr_parts.py",),
    ),
    Way(
        name="opaque_client",
        code="""
import socket

def made(model):
    client = socket.socket()
    client.settimeout(model)
    return client

client = made(1.5)

def node(state):
    return {"opaque_client": client.gettimeout()}
""",
        old="1.5",
        new="2.5",
        words=("`client` in $F",),
    ),
    Way(
        name="opaque_client_elsewhere",
        code="""
from opaque_client_parts import client

def node(state):
    return {"opaque_client_elsewhere": client.execute("select 1").fetchone()[0]}
""",
        files={
            "opaque_client_parts.py": (
                'import sqlite3\n\nURL = "file:one?mode=memory"\n'
                "client = sqlite3.connect(URL, uri=True, check_same_thread=False)\n"
            )
        },
        edited="opaque_client_parts.py",
        words=("`URL` in opaque_client_parts.py",),
    ),
    Way(
        name="context_variable",
        code="""
import contextvars

model = contextvars.ContextVar("model", default="one")

def node(state):
    return {"context_variable": model.get()}
""",
        words=("`model` in $F",),
    ),
    Way(
        name="config",
        code='\nCONFIG = {"model": "one"}\n\ndef node(state, ctx):\n    return {"config": ctx.config["model"]}\n',
        setup="config=config.CONFIG",
        words=("its config",),
    ),
    Way(
        name="declared_value",
        code='\nVERSION = "one"\n\ndef node(state):\n    return {"declared_value": 1}\n',
        setup="depends_on=[('model', declared_value.VERSION)]",
        words=("depends_on, value 1",),
    ),
]

# Files and variables

FILES = [
    Way(
        name="open_file",
        code='\ndef node(state):\n    return {"open_file": open("open_file.txt").read()}\n',
        files={"open_file.txt": "one"},
        edited="open_file.txt",
        words=("open_file.txt",),
    ),
    Way(
        name="path_read_text",
        code="""
from pathlib import Path

HERE = Path(__file__).parent

def node(state):
    return {"path_read_text": (HERE / "prompts" / "answer.txt").read_text()}
""",
        files={"prompts/answer.txt": "one"},
        edited="prompts/answer.txt",
        words=("prompts/answer.txt",),
    ),
    Way(
        name="json_load",
        code="""
import json

def node(state):
    with open("json_load.json") as file:
        return {"json_load": json.load(file)["a"]}
""",
        files={"json_load.json": '{"a": "one"}'},
        edited="json_load.json",
        words=("json_load.json",),
    ),
    Way(
        name="yaml_at_import",
        code="""
import yaml

PROMPTS = yaml.safe_load(open("yaml_at_import.yaml"))

def node(state):
    return {"yaml_at_import": PROMPTS["a"]}
""",
        files={"yaml_at_import.yaml": "a: one\n"},
        edited="yaml_at_import.yaml",
        words=("`PROMPTS` in $F",),
    ),
    Way(
        name="memoised_read",
        code="""
import functools

@functools.cache
def prompt():
    return open("memoised_read.txt").read()

def node(state):
    return {"memoised_read": prompt()}
""",
        files={"memoised_read.txt": "one"},
        edited="memoised_read.txt",
        words=("memoised_read.txt",),
    ),
    Way(
        name="read_into_a_global_later",
        code="""
_prompt = None

def prompt():
    global _prompt
    if _prompt is None:
        _prompt = open("read_later.txt").read()
    return _prompt

def node(state):
    return {"read_into_a_global_later": prompt()}
""",
        files={"read_later.txt": "one"},
        edited="read_later.txt",
        words=("read_later.txt",),
    ),
    Way(
        name="read_in_init",
        code="""
class Retriever:
    def __init__(self, path):
        self.lines = open(path).read().splitlines()
    def search(self, q):
        return [line for line in self.lines if line]

retriever = Retriever("read_in_init.txt")

def node(state):
    return {"read_in_init": retriever.search(state["q"])}
""",
        files={"read_in_init.txt": "one\nb\n"},
        edited="read_in_init.txt",
        words=("`retriever.lines` in $F", "read_in_init.txt"),
    ),
    Way(
        name="read_by_another_module",
        code="""
from read_by_another_parts import load

def node(state):
    return {"read_by_another_module": load("read_by_another.txt")}
""",
        files={
            "read_by_another_parts.py": "def load(name):\n    return open(name).read()\n",
            "read_by_another.txt": "one",
        },
        edited="read_by_another.txt",
        words=("read_by_another.txt",),
    ),
    Way(
        name="read_in_threads",
        code="""
from concurrent.futures import ThreadPoolExecutor

def load(name):
    return open(name).read()

def node(state):
    with ThreadPoolExecutor(2) as pool:
        return {"read_in_threads": list(pool.map(load, ["read_in_threads.txt"]))}
""",
        files={"read_in_threads.txt": "one"},
        edited="read_in_threads.txt",
        words=("read_in_threads.txt",),
    ),
    Way(
        name="read_by_an_async_node",
        code="""
import asyncio

async def node(state):
    text = await asyncio.to_thread(lambda: open("read_async.txt").read())
    return {"read_by_an_async_node": text}
""",
        files={"read_async.txt": "one"},
        edited="read_async.txt",
        words=("read_async.txt",),
    ),
    Way(
        name="absent_file",
        code="""
def node(state):
    try:
        return {"absent_file": open("absent_file.txt").read()}
    except FileNotFoundError:
        return {"absent_file": ""}
""",
        edited="absent_file.txt",
        words=("absent_file.txt",),
    ),
    Way(
        name="removed_file",
        code="""
def node(state):
    try:
        return {"removed_file": open("removed_file.txt").read()}
    except FileNotFoundError:
        return {"removed_file": ""}
""",
        files={"removed_file.txt": "one"},
        edited="removed_file.txt",
        remove=True,
        words=("removed_file.txt",),
    ),
    Way(
        name="folder",
        code="""
from pathlib import Path

def node(state):
    return {"folder": sorted(path.name for path in Path("folder_parts").glob("*.txt"))}
""",
        files={"folder_parts/a.txt": "a"},
        edited="folder_parts/b.txt",
        words=("the files in folder_parts",),
    ),
    Way(
        name="resource",
        code="""
from importlib import resources

def node(state):
    return {"resource": (resources.files("resource_parts") / "a.txt").read_text()}
""",
        files={"resource_parts/__init__.py": "", "resource_parts/a.txt": "one"},
        edited="resource_parts/a.txt",
        words=("resource_parts/a.txt",),
    ),
    Way(
        name="numpy_file",
        code="""
import numpy

def node(state):
    return {"numpy_file": numpy.loadtxt("numpy_file.txt").tolist()}
""",
        files={"numpy_file.txt": "1 2 3\n"},
        edited="numpy_file.txt",
        old="3",
        new="4",
        words=("numpy_file.txt",),
    ),
    Way(
        name="declared_files",
        code='\ndef node(state):\n    return {"declared_files": 1}\n',
        files={"declared/a.txt": "one"},
        edited="declared/a.txt",
        setup="depends_on=['declared/*.txt']",
        words=("declared/a.txt",),
    ),
    Way(
        name="declared_new_file",
        code='\ndef node(state):\n    return {"declared_new_file": 1}\n',
        files={"declared_new/a.txt": "a"},
        edited="declared_new/b.txt",
        setup="depends_on=['declared_new/*.txt']",
        words=("the files that fit declared_new/*.txt", "declared_new/b.txt"),
    ),
    Way(
        name="variable",
        code='\nimport os\n\ndef node(state):\n    return {"variable": os.environ["VARIABLE_ONE"]}\n',
        environment={"VARIABLE_ONE": "two"},
        words=("$VARIABLE_ONE",),
    ),
    Way(
        name="variable_get",
        code='\nimport os\n\ndef node(state):\n    return {"variable_get": os.environ.get("VARIABLE_GET", "")}\n',
        environment={"VARIABLE_GET": "two"},
        words=("$VARIABLE_GET",),
    ),
    Way(
        name="variable_getenv",
        code='\nimport os\n\ndef node(state):\n    return {"variable_getenv": os.getenv("VARIABLE_GETENV", "")}\n',
        environment={"VARIABLE_GETENV": "two"},
        words=("$VARIABLE_GETENV",),
    ),
    Way(
        name="variable_imported",
        code="""
from os import environ

def node(state):
    return {"variable_imported": "VARIABLE_IMPORTED" in environ}
""",
        environment={"VARIABLE_IMPORTED": "two"},
        words=("$VARIABLE_IMPORTED",),
    ),
    Way(
        name="variables_copied",
        code="""
import os

def node(state):
    return {"variables_copied": {**os.environ}.get("VARIABLES_COPIED", "")}
""",
        environment={"VARIABLES_COPIED": "two"},
        words=("the environment as a whole",),
    ),
    Way(
        name="variable_at_import",
        code="""
import os

MODEL = os.environ.get("VARIABLE_AT_IMPORT", "nil")

def node(state):
    return {"variable_at_import": MODEL}
""",
        environment={"VARIABLE_AT_IMPORT": "two"},
        words=("`MODEL` in $F",),
    ),
    Way(
        name="variable_as_default",
        code="""
import os

def node(state, model=os.environ.get("VARIABLE_AS_DEFAULT", "nil")):
    return {"variable_as_default": model}
""",
        environment={"VARIABLE_AS_DEFAULT": "two"},
        words=("`node` in $F",),
    ),
    Way(
        name="declared_variable",
        code='\ndef node(state):\n    return {"declared_variable": 1}\n',
        setup="depends_on=['env:DECLARED_VARIABLE']",
        environment={"DECLARED_VARIABLE": "two"},
        words=("$DECLARED_VARIABLE",),
    ),
]

SEEN = [*OBJECTS, *FUNCTIONS, *GLOBALS, *FILES]


# Functions of the workflow and of evaluators, and look-ups that nobody can follow

WORKFLOW = """
import importlib
import operator
import os
import wtb
import workflow_parts
import workflow_state

flow = wtb.Workflow("workflow")
HANDLERS = {"a": "handle_a"}


def handle_a(q):
    return q


@flow.node(start=True)
def make(state):
    return {"doc": workflow_state.Doc(state["q"])}


@flow.node()
def use(state):
    return {"text": state["doc"].shown()}


@flow.node()
def last(state):
    return {"last": 1}


@flow.node(cache=False)
def uncached(state):
    return {"uncached": workflow_parts.uncached()}


@flow.node()
def by_getattr(state):
    return {"by_getattr": getattr(workflow_parts, "by_" + "getattr")()}


@flow.node()
def by_importlib(state):
    return {"by_importlib": importlib.import_module("workflow_" + "other").NAME}


@flow.node()
def by_globals(state):
    return {"by_globals": globals()[HANDLERS["a"]](state["q"])}


def route(state):
    return workflow_parts.routed() == "one" and bool(open("route.txt").read())


def joined(old, new):
    return workflow_parts.reduced() + os.environ.get("REDUCED", "") + str(new)


flow.reducer("text", joined)
ORDER = ["make", "use", "uncached", "by_getattr", "by_importlib", "by_globals"]
for one, other in zip(ORDER, ORDER[1:]):
    flow.edge(one, other)
flow.edge("by_globals", "last", when=route)
flow.edge("by_globals", wtb.END, otherwise=True)
flow.edge("last", wtb.END)


class Judge:
    name = "judge"
    scale = "one"

    def evaluate(self, context):
        return float(len(open("judge.txt").read()) + len(workflow_parts.judged()))


batch = wtb.BatchTest(flow, cases=[{"id": "1", "input": {"q": "q"}}], evaluators=[Judge()])
"""
ORDER = ["make", "use", "last", "uncached"]
WORKFLOW_FILES = {
    "workflow.py": WORKFLOW,
    "workflow_parts.py": "".join(
        f'def {name}():\n    return "one"\n' for name in ("routed", "reduced", "by_getattr", "judged", "uncached")
    ),
    "workflow_other.py": 'NAME = "one"\n',
    "workflow_state.py": """
from dataclasses import dataclass
import wtb

@wtb.serialisable
@dataclass
class Doc:
    text: str
    def shown(self):
        return self.text + "one"
""",
    "route.txt": "one",
    "judge.txt": "one",
}
COARSE = {"by_getattr", "by_importlib", "by_globals"}
"""Nodes for which all modules count."""

# LangChain and LangGraph

GRAPH = """
from typing import TypedDict
import wtb
from langchain_core.language_models import FakeListChatModel
from langchain_core.prompts import PromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool
from langgraph.graph import END, START, StateGraph


class State(TypedDict, total=False):
    q: str
    node: str
    chain: str
    model: str
    bound: str
    inner: str
    tool: str


def node(state):
    return {"node": "node one"}


def lowered(text):
    return text + "lowered one"


template = PromptTemplate.from_template("template one {q}")
chain = template | RunnableLambda(lambda value: lowered(value.text))


def with_chain(state):
    return {"chain": chain.invoke({"q": state["q"]})}


class Model(FakeListChatModel):
    def _call(self, *args, **kwargs):
        return super()._call(*args, **kwargs) + "method one"


model = Model(responses=["response one"])


def with_model(state):
    return {"model": model.invoke(state["q"]).content}


def asked(state, prompt):
    return {"bound": prompt}


@tool
def search(q: str) -> str:
    '''Search one thing.'''
    return q + "tool one"


def with_tool(state):
    return {"tool": search.invoke(state["q"])}


def inside(state):
    return {"inner": "inside one"}


inner = StateGraph(State)
inner.add_node("inside", inside)
inner.add_edge(START, "inside")
inner.add_edge("inside", END)


def route(state):
    return "tool" if "route one" else END


outer = StateGraph(State)
outer.add_node("node", node)
outer.add_node("chain", RunnableLambda(with_chain))
outer.add_node("model", with_model)
outer.add_node("bound", RunnableLambda(asked).bind(prompt="bound one"))
outer.add_node("inner", inner.compile())
outer.add_node("tool", with_tool)
outer.add_edge(START, "node")
outer.add_edge("node", "chain")
outer.add_edge("chain", "model")
outer.add_edge("model", "bound")
outer.add_edge("bound", "inner")
outer.add_conditional_edges("inner", route, ["tool", END])
outer.add_edge("tool", END)
import wtb.langgraph
flow = wtb.langgraph.workflow(outer.compile(), name="graph")
batch = wtb.BatchTest(flow, cases=[{"id": "1", "input": {"q": "q"}}], evaluators=[wtb.Steps()])
"""
GRAPH_EDITS = [
    {
        "node one": {"node": ["`node` in graph.py"]},
        "lowered one": {"chain": ["`lowered` in graph.py", "`chain` in graph.py"]},
        "method one": {"model": ["`Model._call` in graph.py"]},
        "bound one": {"bound": ["how it is called"]},
        "inside one": {"inner": ["`inside` in graph.py"]},
        "tool one": {"tool": ["`search` in graph.py"]},
        "route one": {"the workflow": ["`route` in graph.py"]},
    },
    {
        "template one": {"chain": ["`chain` in graph.py"]},
        "response one": {"model": ["`model.responses` in graph.py"]},
        "Search one": {"tool": ["`search` in graph.py"]},
    },
]
"""What is edited at a time, and what is said to have changed. Runs change a chain: how it is written counts."""

PART = "`{}` in workflow_parts.py"
WORKFLOW_EDITS = {
    "a condition": ("workflow_parts.py", "routed", {"the workflow": [PART.format("routed")]}),
    "a reducer": ("workflow_parts.py", "reduced", {"the workflow": [PART.format("reduced")]}),
    "an evaluator's helper": ("workflow_parts.py", "judged", {}),
    "a node that is never shared": ("workflow_parts.py", "uncached", {"uncached": [PART.format("uncached")]}),
    "a computed attribute": ("workflow_parts.py", "by_getattr", {"by_getattr": [PART.format("by_getattr")]}),
    "a computed module": ("workflow_other.py", "", {"by_importlib": ["module workflow_other.py"]}),
    "a class of the state": ("workflow_state.py", "", {node: ["`Doc.shown` in workflow_state.py"] for node in ORDER}),
    "a file that a condition reads": ("route.txt", "", {"the workflow": ["route.txt"]}),
    "a file that an evaluator reads": ("judge.txt", "", {}),
}
"""What is edited: the file, the function in it, and what is said to have changed, beside the coarse nodes."""
