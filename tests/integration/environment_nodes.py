"""Nodes for the tests of environments, at the top level of a module so that another process can import them."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import wtb

SENT: list[str] = []
"""What the tools of the process that runs a workflow have sent."""


class OddNumber(ValueError):
    """An error of the user's own, with arguments that are not its message."""

    def __init__(self, number: int, hint: str) -> None:
        super().__init__(f"{number} is odd: {hint}")
        self.number = number


@wtb.serialisable
@dataclass
class Point:
    """A class of a state."""

    x: int
    y: int


@wtb.tool(name="environments-send", effects="external")
def send(text: str) -> str:
    SENT.append(text)
    return f"sent {text} from {os.getpid()}"


@wtb.tool(name="environments-asend", effects="external")
async def asend(text: str) -> str:
    await asyncio.sleep(0)
    return f"sent {text}"


@wtb.tool(name="environments-broken")
def broken() -> None:
    raise ConnectionError("no line")


def add(state: Any) -> Mapping[str, Any]:
    return {"sum": state["a"] + state["b"], "at": (1, 2), "point": Point(state["a"], 2), "pid": os.getpid()}


def fail(state: Any) -> Mapping[str, Any]:
    raise OddNumber(3, "use 4")


def local_class(state: Any) -> Mapping[str, Any]:
    class Local(OddNumber):
        pass

    raise Local(5, "use 6")


def wrong(state: Any) -> Any:
    return 5


def unstorable(state: Any) -> Mapping[str, Any]:
    return {"stream": sys.stdout}


def undeclared(state: Any) -> Mapping[str, Any]:
    return {"found": state["b"]}


def leave(state: Any) -> Mapping[str, Any]:
    sys.exit(3)


def everything(state: Any, ctx: Any) -> Mapping[str, Any]:
    ctx.log.warning("half %s", "way")
    ctx.emit({"done": 1})
    ctx.usage(input_tokens=3, output_tokens=4, cost_usd=0.5)
    (ctx.workspace / "note.txt").write_text(ctx.tool("environments-send", text="hello")[:10])
    caught = "nothing"
    try:
        ctx.tool(broken)
    except ConnectionError as error:
        caught = str(error)
    stepped = ctx.step("pick", lambda n: n * 2, 21)
    plain = ctx.tool(_plain, 1, b=2)
    ctx.checkpoint("named")
    return {
        "caught": caught,
        "stepped": stepped,
        "plain": plain,
        "config": ctx.config["size"],
        "random": ctx.rng.random(),
        "place": [ctx.run.node, ctx.run.visit, ctx.run.attempt],
        "files": sorted(each.name for each in wtb.workspace().iterdir()),
    }


def _plain(a: int, b: int) -> int:
    return a + b


async def asynchronous(state: Any, ctx: Any) -> Mapping[str, Any]:
    async def later(n: int) -> int:
        await asyncio.sleep(0)
        return n + 1

    both = await asyncio.gather(ctx.atool(asend, "one"), ctx.atool(asend, "two"))
    await ctx.acheckpoint("deep")
    return {"both": both, "later": await ctx.astep("later", later, 1), "plain": await ctx.atool(_plain, 1, 2)}


def paid_step(state: Any, ctx: Any) -> Mapping[str, Any]:
    def pay() -> int:
        ctx.usage(input_tokens=7, cost_usd=0.25)
        return 1

    return {"paid": ctx.step("pay", pay)}


def ask(state: Any, ctx: Any) -> Mapping[str, Any]:
    ctx.step("before", SENT.append, "asked")
    return {"said": ctx.ask("Go on?", schema=["yes", "no"])}


def loop_for_ever(state: Any) -> Mapping[str, Any]:
    while True:
        pass


def sleep_long(state: Any) -> Mapping[str, Any]:
    time.sleep(600)
    return {}


def flaky(state: Any, ctx: Any) -> Mapping[str, Any]:
    drawn = ctx.step("draw", time.time_ns)
    if ctx.run.attempt < 2:
        raise OddNumber(1, "again")
    return {"drawn": drawn, "attempt": ctx.run.attempt}


def show_variables(state: Any) -> Mapping[str, Any]:
    return {"variables": dict(os.environ), "folder": str(Path.cwd())}


def take_memory(state: Any) -> Mapping[str, Any]:
    return {"size": len(bytearray(int(state["gb"] * 1024**3)))}


def killed(state: Any) -> Mapping[str, Any]:
    os.kill(os.getpid(), 9)
    return {}


def start_children(state: Any) -> Mapping[str, Any]:
    """Start children that leave the session and whose parents end; each leaves its number as the name of a file."""
    folder = Path(state["folder"])
    for _ in range(state["count"]):
        child = os.fork()
        if child == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                (folder / str(os.getpid())).touch()
                time.sleep(600)
            os._exit(0)
        os.waitpid(child, 0)
    while len(list(folder.iterdir())) < state["count"]:
        time.sleep(0.01)
    if state["hang"] and not (state.get("hang_once") and len(list(folder.iterdir())) > state["count"]):
        time.sleep(600)
    return {}


def write_files(state: Any, ctx: Any) -> Mapping[str, Any]:
    folder = ctx.workspace
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / "sub" / "deep" / "large.bin").write_bytes(bytes(range(256)) * 10_000)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "gone.txt").write_text("to be removed")
    (folder / "link").symlink_to("run.sh")
    return {}


def change_files(state: Any, ctx: Any) -> Mapping[str, Any]:
    """Change files, let a tool of the run's process add one, and look at all of them."""
    folder = ctx.workspace
    (folder / "gone.txt").unlink()
    (folder / "sub" / "copy.bin").write_bytes((folder / "sub" / "deep" / "large.bin").read_bytes())
    (folder / "new.txt").write_text("new")
    ctx.tool(add_file)
    found = sorted(each for each in folder.rglob("*"))
    seen = [(str(each.relative_to(folder)), each.lstat().st_mode) for each in found]
    return {"seen": seen, "added": (folder / "added.txt").read_text()}


@wtb.tool(name="environments-add-file", effects="none")
def add_file() -> None:
    """Copy what the node has written so far, in the process of the run."""
    folder = wtb.workspace()
    (folder / "added.txt").write_text((folder / "new.txt").read_text() + " and added")


async def change_files_in_parallel(state: Any, ctx: Any) -> Mapping[str, Any]:
    """Let tools add files while the node changes and removes its own."""
    folder = ctx.workspace

    async def churn() -> None:
        for number in range(30):
            (folder / "changing.bin").write_bytes(bytes([number]) * (200_000 + number))
            (folder / f"passing-{number}").write_text("soon gone")
            (folder / f"passing-{number - 1}").unlink(missing_ok=True)
            await asyncio.sleep(0.002)

    await asyncio.gather(churn(), *(ctx.atool(add_named_file, f"added-{number}") for number in range(8)))
    (folder / "passing-29").unlink()
    found = {each.name: len(each.read_bytes()) for each in folder.iterdir()}
    return {"found": dict(sorted(found.items()))}


@wtb.tool(name="environments-add-named-file", effects="none")
async def add_named_file(name: str) -> None:
    """Write a file in the process of the run."""
    (wtb.workspace() / name).write_text(name * 10_000)


def pipe_over_a_folder(state: Any, ctx: Any) -> Mapping[str, Any]:
    """Put a named pipe in the place of a folder while a tool writes into the folder."""
    sub = ctx.workspace / "sub"
    sub.mkdir()
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(ctx.tool, write_below, state["folder"])
        while not Path(state["folder"], "began").exists():
            time.sleep(0.005)
        sub.rmdir()
        os.mkfifo(sub)
        Path(state["folder"], "replaced").touch()
        call.result()
    return {}


@wtb.tool(name="environments-write-below", effects="none")
def write_below(folder: str) -> None:
    Path(folder, "began").touch()
    while not Path(folder, "replaced").exists():
        time.sleep(0.005)
    (wtb.workspace() / "sub" / "new").write_text("new")


def imported(state: Any) -> Mapping[str, Any]:
    import environment_sample  # type: ignore[import-not-found]

    return {"value": environment_sample.VALUE, "file": environment_sample.__file__, "folder": str(Path.cwd())}


def limited(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    """Call a service that is away, in the block of a limit, with another block of the same limit inside."""
    with ctx.limit("service"), ctx.limit("service"):
        raise ConnectionError("the service is away")


async def limited_async(state: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
    async with ctx.limit("service"):
        raise ConnectionError("the service is away")
