"""`wtb init`: a project to begin with, which runs as it is."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from wtb.cli.output import as_json, example, show
from wtb.domain.errors import InvalidInput

_WORKFLOW = '''"""Writes a text, reviews it until it is long enough, and asks before it publishes."""

import wtb

flow = wtb.Workflow("writer")
flow.reducer("remarks", wtb.append)  # remarks are collected; other keys keep what was written last


@wtb.tool(effects="none")  # "external" for what changes the world: such calls are never repeated by accident
def look_up(topic):
    return f"{topic} is learned best by trying it out."


@flow.node(start=True)
def research(state, ctx):  # a node returns only what changes
    return {"fact": ctx.tool(look_up, topic=state.get("topic", "WTB"))}


@flow.node()
def draft(state, ctx):
    text = state.get("text", "") + state["fact"] + "\\n"
    (ctx.workspace / "draft.txt").write_text(text)  # the files are kept with every step
    return {"text": text}


@flow.node()
def review(state):
    words = len(state["text"].split())
    return {"words": words, "remarks": f"{words} words"}


@flow.node()
async def publish(state, ctx):  # sync or async
    return {"published": ctx.ask("Publish draft.txt?", schema=["yes", "no"]) == "yes"}


flow.edge("research", "draft")
flow.edge("draft", "review")
flow.edge("review", "draft", when="words < 20")  # a loop; conditions are CEL over the state
flow.edge("review", "publish", otherwise=True)
flow.edge("publish", wtb.END)
'''

_SETTINGS = """# Settings of wtb in this folder; --url and WTB_* come first. What stands here are the defaults.

# preset = "local"                 # testing: everything in memory; production: survives a loss of power
# folder = ".wtb"                  # where runs and files are kept
# url = "postgresql://me@host/db"  # instead of SQLite in the folder; then `wtb db upgrade` once
# busy_timeout_s = 30              # how long to wait for another process that writes
"""

_IGNORED = "# Runs and files of wtb\n.wtb/\n"

_COMMANDS = (
    ("wtb run writer.py --run-id first", "runs until it asks"),
    ("wtb resume first --answer yes", "goes on, in a new process"),
    ("wtb show first", "how it stands, with its state"),
    ("wtb history first", "every step; review led back to draft"),
    ("wtb export first@draft#1 first-draft", "the files as they were after the first draft"),
)


@click.command()
@click.argument("folder", metavar="[FOLDER]", type=click.Path(path_type=Path), default=".")
@as_json
@example("wtb init my-bench")
def init(folder: Path, as_json: bool) -> None:
    """Make a small project in FOLDER (this one, when none is named) that runs at once.

    It gets a workflow, wtb.toml and .gitignore. Nothing is ever overwritten.
    """
    texts = {"writer.py": _WORKFLOW, "wtb.toml": _SETTINGS}
    for name in texts:
        if (folder / name).exists():
            raise InvalidInput(f"{folder / name} is there already; name another folder: `wtb init FOLDER`")
    has_ignored = (folder / ".gitignore").exists()
    if not has_ignored:
        texts[".gitignore"] = _IGNORED
    _write(folder, texts)
    way = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    commands = [*way, *(command for command, _ in _COMMANDS)]
    result = {"folder": str(folder), "files": list(texts), "commands": commands}
    show(result, _text(folder, list(texts), way, keep_out=has_ignored), as_json=as_json)


def _write(folder: Path, texts: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            with (folder / name).open("x") as file:  # not even when somebody made it in this moment
                file.write(text)
    except OSError as error:
        raise InvalidInput(f"{error.filename} cannot be written: {error.strerror}; choose another folder") from error


def _text(folder: Path, names: list[str], way: list[str], *, keep_out: bool) -> str:
    width = max(len(command) for command, _ in _COMMANDS)
    place = f"in {folder}" if way else "here"
    lines = [f"Made {', '.join(names)} {place}."]
    lines += ["Add `.wtb/` to your .gitignore, which was left as it is."] if keep_out else []
    lines += ["Now type:", "", *(f"  {step}" for step in way)]
    lines += [f"  {command:{width}}  # {meaning}" for command, meaning in _COMMANDS]
    return "\n".join(lines)
