"""Writes the page of the commands from the command line itself; `wtb COMMAND --help` says the same."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from scripts.reference.markdown import anchor, code, table, wrapped
from wtb.cli import GROUPS, main

_START = """# Commands

<!-- Made by `make reference` of the commands' own help: change that, not this page. -->

`wtb COMMAND --help` says the same in a terminal. The guides tell how the commands work together:
[Running workflows](running.md), [Time travel](time-travel.md), [Batch tests](batches.md), [Upkeep](upkeep.md).
"""

_COMMON = """## What all of them share

{table}

Settings other than the address come from `wtb.toml` in this folder and from `WTB_…` variables: see
[Settings](settings.md). `wtb --version` says which version this is.

Exit codes are the same everywhere. On any other than 0, one sentence on stderr says what happened and what to do.

| code | meaning |
|---|---|
| 0 | All is well. A run that is paused, or waits for an answer, is too. |
| 1 | Something went wrong: what was named does not exist, the database is out of reach, somebody else was first, you \
said no when you were asked; `wtb doctor` found faults. |
| 2 | The command cannot be carried out as it was given: an option is wrong, the workflow does not load, the status of \
the run does not allow it. |
| 3 | A run or jobs of a batch failed, a rollback stopped half-way, or a replay differs. |
| 4 | `wtb gate` found a regression. |
| 5 | `wtb gate` could not tell. |

A place in a run, `TARGET` or `CHECKPOINT`, is a step number, a node (its latest visit), `node#2` (its second visit), a
name, or the beginning of a checkpoint's id.
"""

_INTROS = {
    "Run and look": "[Running workflows](running.md) is the guide to these, and "
    "[Time travel](time-travel.md#comparing) that to `history` and `diff`.",
    "Go back and branch": "[Time travel](time-travel.md) is the guide to these.",
    "Batches and verdicts": "[Batch tests](batches.md) is the guide to these; [How a verdict is made](verdicts.md) "
    "tells what better, worse and no evidence mean.",
    "Upkeep": "[Upkeep](upkeep.md) is the guide to these, and "
    "[A checkpointer for LangGraph](langgraph.md#bring-what-you-have) that to `import`.",
}

_ARGUMENTS = {
    "A": "The earlier checkpoint.",
    "B": "The later one; the head of the run by default.",
    "BATCH": "The name of a batch, its latest if there are several, or its id.",
    "BATCH2": "Another batch, to compare with the first.",
    "BATCH[:COMBINATION]": "A batch, or one of its combinations, as `support_qa:answer=long`, instead of its baseline.",
    "BATCH[:COMBINATION]…": "One or more batches of the same workflow, or one combination of them.",
    "DATABASE": "The file of a SqliteSaver, or the address of the database of a PostgresSaver.",
    "DIR": "Where to write the files.",
    "FILE[:BATCH]": "The Python file that defines the batch test, and its name there; `batch` by default.",
    "FOLDER": "Where to make the project.",
    "NAME": "What to call it.",
    "REVISION": "Where to go down to, as `0006`; `base` is before the first.",
    "RUN": "The id of a run, or its beginning, of at least four characters, where no other run begins so.",
    "RUN[@CHECKPOINT]": "A run, and a place in it; its last step by default.",
    "TARGET": "A place in the run.",
    "WORKFLOW": "`file.py[:flow]`, `module:flow` or `flow.json`; its name in the file is `flow` by default.",
}
_OWN_ARGUMENTS = {
    "wtb baseline delete": {"NAME": "The baseline to delete."},
    "wtb delete": {"RUN[@CHECKPOINT]": "A run, or one checkpoint of it."},
    "wtb fork": {"TARGET": "Where the new run begins; the last checkpoint by default."},
    "wtb init": {"FOLDER": "Where to make the project; this folder by default."},
}
"""What an argument means in one command, where that differs."""

_SHARED = ("--url", "--json")
_UNITS = {"integer": "N", "integer range": "N", "float": "X", "float range": "X", "text": "TEXT"}
_CODE = re.compile(
    r"""(?<![\w`./-])(
        --[a-z-]+(?:\ error|\ tool)?                      # options, and what they are given in a sentence
        | (?:\w+/)?[A-Z]{2,}[A-Z0-9]*(?:@|[@:][A-Z]+)?    # arguments: RUN, RUN@CHECKPOINT, baseline/NAME
        | WTB_[A-Z]+ | @?\w+\.(?:py|json|toml)(?:\[:\w+\])? | \.(?:wtb|gitignore|md)
        | \w+\#\d | module:flow | node\.failed | ctx\.\w+ | \w+:///?[\w@/]+
    )(?![\w`])""",
    re.VERBOSE,
)
"""What is code in a text for the terminal."""
_WORDS = {"CSV", "HTML", "JSON", "JSONL"}


def page() -> str:
    """Return docs/commands.md."""
    parts = [_START, _contents(), _COMMON.format(table=table(_shared_rows()))]
    for title, commands in GROUPS.items():
        parts += [f"## {title}\n\n{_INTROS[title]}\n"]
        parts += [_section(path, leaf) for command in commands for path, leaf in _leaves(command)]
    return "\n".join(parts)


def _leaves(command: click.Command, above: str = "wtb") -> Iterator[tuple[str, click.Command]]:
    """Give a command, or the commands of a group, each with its whole name."""
    path = f"{above} {command.name}"
    if not isinstance(command, click.Group):
        yield path, command
        return
    for each in command.commands.values():
        yield from _leaves(each, path)


def _contents() -> str:
    lines = []
    for title, commands in GROUPS.items():
        rows = [
            (f"[`{path}`](#{anchor(path)})", _first_sentence(leaf))
            for command in commands
            for path, leaf in _leaves(command)
        ]
        lines += [f"**[{title}](#{anchor(title)})**\n", table(rows), ""]
    return "\n".join(lines)


def _first_sentence(command: click.Command) -> str:
    return _paragraphs(command)[0][0]


def _section(path: str, command: click.Command) -> str:
    paragraphs, examples = _paragraphs(command)
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    options = [each for each in command.params if isinstance(each, click.Option) and each.opts[0] not in _SHARED]
    usage = " ".join((path, *(["[OPTIONS]"] if options else []), *map(_name, arguments)))
    rows = [*(_argument_row(path, each) for each in arguments), *map(_option_row, options)]
    parts = [f"### {path}", *map(wrapped, paragraphs), f"```\n{usage}\n```", *([table(rows)] if rows else [])]
    if examples and examples != path:
        parts += [f"For example:\n\n```\n{examples}\n```"]
    return "\n\n".join(parts) + "\n"


def _paragraphs(command: click.Command) -> tuple[list[str], str]:
    """Return the help of a command, paragraph by paragraph, and its examples."""
    text, _, examples = inspect.cleandoc(command.help or "").partition("\b\nExample:\n")
    return [_marked(" ".join(each.split())) for each in text.strip().split("\n\n")], inspect.cleandoc(examples)


def _name(argument: click.Argument) -> str:
    return argument.metavar or (argument.name or "").upper()


def _argument_row(path: str, argument: click.Argument) -> tuple[str, str]:
    name = _name(argument).removeprefix("[").removesuffix("]") if not argument.required else _name(argument)
    return f"`{name}`", _OWN_ARGUMENTS.get(path, {}).get(name) or _ARGUMENTS[name]


def _option_row(option: click.Option) -> tuple[str, str]:
    facts = [_marked(option.help or "")]
    if isinstance(option.type, click.Choice):
        facts += [f"One of {', '.join(f'`{choice}`' for choice in option.type.choices)}."]
    if option.multiple and "may be" not in facts[0]:
        facts += ["May be given several times."]
    if option.required:
        facts += ["Required."]
    if option.show_default:
        facts += [f"Default: `{option.default}`."]
    taken = [] if option.is_flag else [_unit(option)]
    return code(" ".join((*option.opts, *taken))), " ".join(facts)


def _unit(option: click.Option) -> str:
    """Return what an option takes, in a word."""
    if option.metavar is not None:
        return option.metavar
    if isinstance(option.type, click.Path):
        return "FILE" if option.type.file_okay else "DIR"
    return "…" if isinstance(option.type, click.Choice) else _UNITS[option.type.name]


def _shared_rows() -> list[tuple[str, str]]:
    leaves = [each for commands in GROUPS.values() for command in commands for each in _leaves(command)]
    rows = []
    for name in _SHARED:
        having = {path: each for path, leaf in leaves for each in leaf.params if each.opts[0] == name}
        without = [f"`{path}`" for path, _ in leaves if path not in having]
        option, text = _option_row(next(each for each in having.values() if isinstance(each, click.Option)))
        rows += [(option, f"{text} Not for {', '.join(without)}." if without else text)]
    names = ", ".join(f"`{name}`" for name in main.context_settings["help_option_names"])
    return [*rows, (names, "Show what a command does and takes.")]


def _marked(text: str) -> str:
    """Return a text of the help as Markdown: what is code and not set as such becomes so."""
    parts = text.split("`")
    parts[::2] = [
        _CODE.sub(lambda found: found[0] if found[0] in _WORDS else f"`{found[0]}`", each) for each in parts[::2]
    ]
    return "`".join(parts)
