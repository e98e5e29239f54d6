"""`wtb init`: creates a first project that runs as it is."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from wtb.cli.output import as_json, example, show
from wtb.domain.errors import InvalidInput

_WORKFLOW = '''"""Writes a text, reviews it until it is long enough, and asks before it publishes."""

import wtb

flow = wtb.Workflow("writer")
flow.reducer("remarks", wtb.append)  # collects all remarks; other keys keep the last value


@wtb.tool(effects="none")  # use "external" if it changes the world: WTB never repeats such calls by accident
def look_up(topic):
    return f"{topic} is learned best by trying it out."


@flow.node(start=True)
def research(state, ctx):  # a node returns only what it changes
    return {"fact": ctx.tool(look_up, topic=state.get("topic", "WTB"))}


@flow.node()
def draft(state, ctx):
    text = state.get("text", "") + state["fact"] + "\\n"
    (ctx.workspace / "draft.txt").write_text(text)  # files are saved with every step
    return {"text": text}


@flow.node()
def review(state):
    words = len(state["text"].split())
    return {"words": words, "remarks": f"{words} words"}


@flow.node()
async def publish(state, ctx):  # nodes may be sync or async
    return {"published": ctx.ask("Publish draft.txt?", schema=["yes", "no"]) == "yes"}


flow.edge("research", "draft")
flow.edge("draft", "review")
flow.edge("review", "draft", when="words < 20")  # a loop; conditions are CEL expressions over the state
flow.edge("review", "publish", otherwise=True)
flow.edge("publish", wtb.END)
'''

_SETTINGS = """# Settings of wtb for this folder. These are the defaults. --url and WTB_* variables override this file.

# preset = "local"                 # testing: all in memory; production: survives a power loss
# folder = ".wtb"                  # where runs and files are stored
# url = "postgresql://me@host/db"  # instead of SQLite; then run `wtb db upgrade` once
# busy_timeout_s = 30              # how long to wait while another process writes

# [server]                         # for `wtb serve`
# workflows = ["writer.py"]        # what it may run
"""

_IGNORED = "# Runs and files of wtb\n.wtb/\n"

_COMMANDS = (
    ("wtb run writer.py --run-id first", "runs until it asks you"),
    ("wtb resume first --answer yes", "continues, in a new process"),
    ("wtb show first", "its status and state"),
    ("wtb history first", "every step; review led back to draft"),
    ("wtb export first@draft#1 first-draft", "the files after the first draft"),
)


@click.command()
@click.argument("folder", metavar="[FOLDER]", type=click.Path(path_type=Path), default=".")
@as_json
@example("wtb init my-bench")
def init(folder: Path, as_json: bool) -> None:
    """Create a small project that you can run at once.

    It goes into FOLDER, or into this folder if you name none. It has a workflow (writer.py), wtb.toml and .gitignore.
    Existing files are never overwritten.
    """
    texts = {"writer.py": _WORKFLOW, "wtb.toml": _SETTINGS}
    for name in texts:
        if (folder / name).exists():
            raise InvalidInput(f"{folder / name} already exists; name another folder: `wtb init FOLDER`")
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
            with (folder / name).open("x") as file:  # "x" fails if somebody has just created the file
                file.write(text)
    except OSError as error:
        raise InvalidInput(f"{error.filename} cannot be written: {error.strerror}; choose another folder") from error


def _text(folder: Path, names: list[str], way: list[str], *, keep_out: bool) -> str:
    width = max(len(command) for command, _ in _COMMANDS)
    place = f"in {folder}" if way else "here"
    lines = [f"Created {', '.join(names)} {place}."]
    lines += ["Add `.wtb/` to your .gitignore; this command has not changed it."] if keep_out else []
    lines += ["Now type:", "", *(f"  {step}" for step in way)]
    lines += [f"  {command:{width}}  # {meaning}" for command, meaning in _COMMANDS]
    return "\n".join(lines)
