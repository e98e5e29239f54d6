"""`wtb diff` and `wtb history --tree`: what people and programs are shown."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import wtb
from tests.run_writer import RunWriter
from wtb.bench import Bench
from wtb.cli import main
from wtb.testing.stories import Story

pytestmark = pytest.mark.usefixtures("empty_folder")

NOTE, NEW_NOTE, TRUE = b"one\n[red]two[/]\n", b"one\n[red]2[/]\n\x1b[31m\n", b"true\n"


@wtb.tool(effects="external")
def mail_letter(to: str) -> str:
    if to == "nobody":
        raise OSError("[/gone]")
    return f"[bold]sent[/] to {to}"


def a_flow() -> wtb.Workflow:
    flow = wtb.Workflow("letters")

    @flow.node(start=True)
    def begin(state: Any, ctx: Any) -> dict[str, Any]:
        folder = ctx.workspace
        (folder / "note.txt").write_text("one\n[red]two[/]\n")
        (folder / "image.bin").write_bytes(b"\0\1")
        (folder / "run.sh").write_text("true\n")
        (folder / "large").write_bytes(b"\n" * 1_000_001)
        for path in ("note.txt", "image.bin", "run.sh", "large"):
            (folder / path).chmod(0o644)
        return {"n": 0, "text": "one\ntwo\n", "odd": "[bold]\x1b[31m", "long": "a" * 1_000}

    @flow.node()
    def write(state: Any, ctx: Any) -> dict[str, Any]:
        number, folder = state["n"] + 1, ctx.workspace
        if number == 2:
            ctx.checkpoint("before [two]")
            with pytest.raises(OSError, match="gone"):
                ctx.tool(mail_letter, "nobody")
        ctx.tool(mail_letter, f"ann {number}")
        (folder / "note.txt").write_text(f"one\n[red]{number}[/]\n\x1b[31m\n")
        (folder / "image.bin").write_bytes(b"\0" * number)
        (folder / "run.sh").chmod(0o755)
        (folder / "large").write_bytes(b"\n" * (1_000_001 + number))
        (folder / f"link-{number}").symlink_to("note.txt")
        return {"n": number, "text": f"one\n{number}\n", "odd": number, "long": "b" * 1_000}

    flow.edge("begin", "write")
    flow.edge("write", "write", when="n < 8")
    flow.edge("write", wtb.END, otherwise=True)
    return flow


@pytest.fixture(autouse=True)
def run(empty_folder: Path) -> None:
    with Bench() as bench:
        bench.run(a_flow(), run_id="first")


def invoke(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environment)


def lines(*arguments: str) -> list[str]:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return [line.rstrip() for line in result.stdout.splitlines()]


def printed(*arguments: str) -> Any:
    result = invoke(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


def of(content: bytes, mode: str = "0644") -> str:
    """Return what is said of a file."""
    size = "1.0 MB" if len(content) > 1_000 else f"{len(content)} B"
    return f"{size} {mode} {hashlib.sha256(content).hexdigest()[:8]}"


def test_a_diff_is_told_to_people() -> None:
    shown = lines("diff", "first", "begin", "write#2")
    assert re.fullmatch(r"--- step 1 begin#1, .*", shown[0])
    assert re.fullmatch(r"\+\+\+ step 4 write#2, .*", shown[1])
    large = b"\n" * 1_000_001
    assert shown[2:] == [
        "",
        "State",
        "~ state.long",
        f"    -'{'a' * 159}… (1,002 characters; --json has all)",
        f"    +'{'b' * 159}… (1,002 characters; --json has all)",
        "~ state.n  0 → 2",
        "~ state.odd  '[bold]\\x1b[31m' → 2",
        "~ state.text",
        "    @@ -1,2 +1,2 @@",
        "     one",
        "    -two",
        "    +2",
        "",
        "Files",
        f"~ image.bin  binary or large  {of(bytes((0, 1)))} → {of(bytes(2))}",
        f"~ large  binary or large  {of(large)} → {of(large + bytes((10, 10)))}",
        "+ link-1  link to note.txt",
        "+ link-2  link to note.txt",
        f"~ note.txt  {of(NOTE)} → {of(NEW_NOTE)}",
        "    @@ -1,2 +1,3 @@",
        "     one",
        "    -[red]two[/]",
        "    +[red]2[/]",
        "    +\\x1b[31m",
        f"~ run.sh  mode changed  {of(TRUE)} → {of(TRUE, '0755')}",
        "",
        "Calls",
        "+ write#1  mail_letter(to='ann 1') → '[bold]sent[/] to ann 1'",
        "+ write#2  mail_letter(to='nobody') failed: OSError: [/gone]",
        "+ write#2  mail_letter(to='ann 2') → '[bold]sent[/] to ann 2'",
        "",
        "4 values: 4 changed",
        "6 files: 2 added, 3 changed, 1 mode changed",
        "3 calls: 3 added",
    ]


def test_a_question_is_told_with_its_answer_alone() -> None:
    flow = wtb.Workflow("asking")
    flow.add_node("sure", lambda state, ctx: {"answer": ctx.ask("Sure?", schema=["yes", "no"])}, start=True)
    with Bench() as bench:
        bench.run(flow, run_id="asked").resume(answer="yes")
    assert "+ sure#1  ask(question='Sure?') → 'yes'" in lines("diff", "asked", "0", "sure")


def test_the_other_way_round_things_are_taken_away() -> None:
    shown = lines("diff", "first", "write#1", "begin")
    assert "- link-1  link to note.txt" in shown
    assert "- write#1  mail_letter(to='ann 1') → '[bold]sent[/] to ann 1'" in shown


def test_a_name_and_another_run_stand_in_the_title() -> None:
    with Bench() as bench:
        bench.run(a_flow(), run_id="second")
    shown = lines("diff", "first", "before [two]", "second@")
    assert re.fullmatch(r"--- first step 3 write#2 'before \[two\]', .*", shown[0])
    assert re.fullmatch(r"\+\+\+ second step 10 write#8, .*", shown[1])


def test_stat_only_counts() -> None:
    assert lines("diff", "first", "1", "2", "--stat")[2:] == [
        "4 values: 4 changed",
        "5 files: 1 added, 3 changed, 1 mode changed",
        "1 call: 1 added",
    ]
    counts = printed("diff", "first", "1", "2", "--stat")
    assert counts["counts"]["files"] == {"added": 1, "changed": 3, "mode changed": 1}
    assert counts.keys() == {"old", "new", "counts"}


def test_parts_can_be_left_out() -> None:
    assert lines("diff", "first", "1", "2", "--stat", "--state-only")[2:] == ["4 values: 4 changed"]
    assert [line for line in lines("diff", "first", "1", "--files-only") if line in ("State", "Files", "Calls")] == [
        "Files"
    ]
    assert printed("diff", "first", "1", "2", "--files-only").keys() == {"old", "new", "counts", "files"}
    refused = invoke("diff", "first", "1", "--state-only", "--files-only")
    assert (refused.exit_code, refused.stdout) == (2, "")


def test_what_does_not_differ_is_said() -> None:
    assert lines("diff", "first", "write", "10")[2:] == [
        "",
        "No values differ.",
        "No files differ.",
        "No calls differ.",
    ]


def test_programs_get_everything_whole() -> None:
    data = printed("diff", "first", "1", "2")
    assert data["state"][0] == {"path": "state.long", "change": "changed", "old": "a" * 1_000, "new": "b" * 1_000}
    assert data["files"][3]["diff"].startswith("--- a/note.txt\n+++ b/note.txt\n@@ -1,2 +1,3 @@\n one\n")
    assert data["calls"][0]["result"] == "[bold]sent[/] to ann 1"


def test_a_long_text_is_cut_for_people() -> None:
    flow = wtb.Workflow("texts")
    flow.add_node("a", lambda state: {"text": "a\n" * 1_000}, start=True)
    flow.add_node("b", lambda state: {"text": "b\n" * 1_000})
    flow.edge("a", "b")
    with Bench() as bench:
        bench.run(flow, run_id="texts")
    shown = lines("diff", "texts", "a", "b", "--state-only")
    assert len(shown) < 420
    assert "    … 1,601 more lines; --json has all" in shown


def test_a_terminal_gets_colours() -> None:
    coloured = invoke("diff", "first", "1", "2", FORCE_COLOR="1", TERM="xterm").stdout
    assert "\x1b[32m    +[red]1[/]\x1b[0m" in coloured
    assert "\x1b" not in invoke("diff", "first", "1", "2").stdout


def test_an_unknown_checkpoint_is_one_sentence() -> None:
    result = invoke("diff", "first", "nowhere")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "wtb: no checkpoint 'nowhere' in run first; `wtb history RUN` lists them\n"


def drawn(*arguments: str) -> list[str]:
    """Return the tree without times and ids."""
    return [re.sub(r"  \d\d-\d\d \S+  \S+", "", line) for line in lines("history", *arguments)]


def test_steps_of_no_interest_are_folded_in_the_tree() -> None:
    assert drawn("first", "--tree") == [
        "run first",
        "├── 0 start",
        "├── 1 begin",
        "├── 2 write",
        "├── 3 write#2 'before [two]'",
        "├── … 6 steps",
        "└── 10 write#8  ← main (here)",
    ]
    assert len(drawn("first", "--tree", "--all")) == 12


def test_the_tree_shows_branches_deleted_and_abandoned_steps_and_forks() -> None:
    with Bench() as bench:
        services, run = bench.services, bench.get("first")
        recorder = RunWriter(services.storage, services.clock, services.ids)
        recorder.fork(recorder.load(run.id), run.history.resolve("write#4").id, "[side]")
        fork = Story(services.storage, services.ids, services.clock, forked_from=run.history.resolve(1))
        line = run.history.lineage("main")
        with services.storage.unit_of_work() as uow:
            uow.branches.move_head(line[0].branch_id, line[8].id, expected=line[-1].id)
            uow.checkpoints.delete([line[2].id])
            uow.commit()
    assert drawn("first", "--tree") == [
        "run first",
        "├── 0 start",
        "├── 1 begin",
        f"│   └── run {fork.id}, branch main",
        "├── 2 write  deleted",
        "├── 3 write#2 'before [two]'",
        "├── 4 write#2",
        "├── 5 write#3",
        "└── 6 write#4  ← [side] (here)",
        "    └── main",
        "        ├── 7 write#5",
        "        └── 8 write#6  ← main",
        "            └── abandoned",
        "                ├── 9 write#7",
        "                └── 10 write#8",
    ]
    assert drawn(fork.id, "--tree") == [
        f"run {fork.id}",
        "├── 0 start  of run first",
        "└── 1 begin  of run first  ← main (here)",
    ]
    (line_data,) = printed("history", "first", "--tree")["lines"]
    assert [step["step"] for step in line_data["steps"]] == list(range(7))
    assert line_data["steps"][2]["deleted"]
    assert line_data["steps"][6]["lines"][0]["steps"][1]["lines"][0]["abandoned"]
