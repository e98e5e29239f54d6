"""Writes the page of the events from the catalogue: its classes, their docstrings and those of their fields."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from functools import cache
from itertools import groupby

from scripts.reference.markdown import anchor, code, wrapped
from wtb.domain import event_catalogue
from wtb.domain.event_body import EventBody
from wtb.domain.event_catalogue import CATALOGUE

START = """# Events

<!-- `make reference` makes this page from src/wtb/domain/event_catalogue.py: change that file, not this page. -->

Everything that happens to a run or a batch is recorded as an event, in the same transaction as the change itself.
Events are never changed and never deleted, not even with their run. Read them with `wtb events`,
`wtb show RUN --events` or `run.events()`, and subscribe to new ones with `bench.subscribe`.

Each event has a `type`, a `stream` (the id of its run or batch, or `system`), a time `at`, a `severity`, and `data`,
which is plain JSON. `event.body` gives the same facts as attributes, of the class that is named below:

```python
import wtb

flow = wtb.Workflow("greeting")
flow.add_node("greet", lambda state: {"text": "Hello"}, start=True)

with wtb.Bench("memory://") as bench:
    for event in bench.run(flow).events(types=["node.completed"]):
        print(event.body.node, event.body.ms, event.data["checkpoint"])
```

A field is left out of the data if it is empty and may be so. Later versions add types and fields, and do not change
the meaning of those that exist: ignore what you do not know. If the meaning of a field must ever change, the data say
so with a `version` above 1. `by` is the person who did it: the setting [`user`](settings.md#user), or the name that was
passed as `created_by`.
"""


def page() -> str:
    """Return docs/events.md."""
    groups = [(noun, list(found)) for noun, found in groupby(CATALOGUE.values(), key=_noun)]
    contents = "\n".join(f"- {', '.join(map(_link, found))}" for _, found in groups)
    return "\n\n".join([START.strip(), contents, *(_section(noun, found) for noun, found in groups)]) + "\n"


def _noun(cls: type[EventBody]) -> str:
    return cls.TYPE.partition(".")[0]


def _link(cls: type[EventBody]) -> str:
    return f"[`{cls.TYPE}`](#{anchor(cls.TYPE)})"


def _section(noun: str, found: list[type[EventBody]]) -> str:
    return "\n\n".join([f"## {noun.capitalize()}", *map(_event, found)])


def _event(cls: type[EventBody]) -> str:
    paragraphs = inspect.cleandoc(cls.__doc__ or "").split("\n\n")
    facts = f"Class `{cls.__name__}`, severity `{cls.SEVERITY}`."
    rows = [_row(cls, name, text) for name, text in fields_of(cls).items()]
    table = "\n".join(["| field | type | |", "|---|---|---|", *rows])
    return "\n\n".join([f"### {cls.TYPE}", *map(wrapped, paragraphs), facts, table])


def _row(cls: type[EventBody], name: str, text: str) -> str:
    kind = next(str(field.type) for field in fields(cls) if field.name == name)  # type: ignore[arg-type]
    return f"| `{name.rstrip('_')}` | {code(kind)} | {text} |"


def fields_of(cls: type[EventBody]) -> dict[str, str]:
    """Return the fields of a body in their order, each with its docstring; an empty text when it has none."""
    texts = _texts()[cls.__name__]
    return {field.name: texts.get(field.name, "") for field in fields(cls)}  # type: ignore[arg-type]


@cache
def _texts() -> dict[str, dict[str, str]]:
    """Return the docstring of each field, by class: Python itself does not keep them."""
    tree = ast.parse(inspect.getsource(event_catalogue))
    return {node.name: dict(_documented(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _documented(node: ast.ClassDef) -> list[tuple[str, str]]:
    found = []
    for field, text in zip(node.body, node.body[1:], strict=False):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as doc)):
                found.append((name, " ".join(doc.split())))
    return found
