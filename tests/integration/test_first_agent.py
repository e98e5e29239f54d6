"""The first agent, from nothing to a verdict: as a script, in the documentation, and as a notebook."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Any

import nbformat
import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.prebuilt import ToolNode, create_react_agent
from nbclient import NotebookClient

import wtb
import wtb.langgraph

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "first_agent"
SCRIPT = (EXAMPLE / "delivery_agent.py").read_text()
PAGE = (ROOT / "docs" / "first-agent.md").read_text()


def lines_of_code(source: str) -> int:
    """Count the lines that hold code: neither blank, nor comments, nor docstrings of a line of their own."""
    idle = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts = {token.start[0] for token in tokens if token.type not in idle}
    return len(texts)


def test_the_page_shows_the_script_which_has_at_most_thirty_lines() -> None:
    (shown,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert SCRIPT.endswith(shown)
    assert f"{lines_of_code(shown)} lines of code" in PAGE
    assert lines_of_code(shown) <= 30


def test_the_script_prints_what_the_page_shows(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE / "delivery_agent.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (shown,) = re.findall(r"^```text\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert [line.rstrip() for line in done.stdout.splitlines()] == shown.splitlines()
    assert "When does order 1041 arrive?" in (tmp_path / "report.html").read_text()


def test_the_notebook_comes_to_the_same_verdict(tmp_path: Path) -> None:
    for name in ("delivery_agent.ipynb", "scripted_chat.py"):
        shutil.copy(EXAMPLE / name, tmp_path)
    notebook = nbformat.read(tmp_path / "delivery_agent.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert [cell.outputs for cell in notebook.cells if cell.cell_type == "code" and cell.outputs] == []
    kernel = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    last = kernel.execute().cells[-1]
    assert "model=careful  contains  better" in "".join(each.get("text", "") for each in last.outputs)


class AskingOnce(BaseChatModel):
    """Asks its tool once, then answers with its name, its prompt and what the tool found."""

    name: str | None = "large"

    @property
    def _llm_type(self) -> str:
        return "asking once"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        asks = AIMessage("", tool_calls=[{"name": "search", "args": {"word": "tea"}, "id": "1"}])
        told = AIMessage(f"{self.name}, {messages[0].content}, {messages[-1].content}")
        answer = told if isinstance(messages[-1], ToolMessage) else asks
        return ChatResult(generations=[ChatGeneration(message=answer)])


def a_search(found: str) -> Any:
    @tool
    def search(word: str) -> str:
        """Search."""
        return found

    return search


@pytest.mark.filterwarnings("ignore:create_react_agent has been moved")
@pytest.mark.parametrize(
    ("maker", "prompted", "node"), [(create_agent, "system_prompt", "model"), (create_react_agent, "prompt", "agent")]
)
def test_each_documented_line_varies_one_thing_of_an_agent(maker: Any, prompted: str, node: str) -> None:
    table = (ROOT / "docs" / "langgraph-graphs.md").read_text().split(f"| vary | `{maker.__name__}` |")[1]
    lines = re.findall(r"^\| the (\w+) \| `(.*)` \|$", table.split("\n\n")[0], re.MULTILINE)
    model, tools = AskingOnce(), [a_search("in the shop")]
    flow = wtb.langgraph.workflow(maker(model, tools, **{prompted: "Be kind."}))
    known = {"flow": flow, "model": model, "small": AskingOnce(name="small"), "tools": tools, "prompt": "Be kind."}
    known |= {"fake_search": a_search("in a list"), "node_of": wtb.langgraph.node_of, "ToolNode": ToolNode}
    for _, line in lines:
        exec(line, {maker.__name__: maker, **known})  # noqa: S102  this is what a reader does with the line
    variants = [{}, {node: "brief"}, {node: "small"}, {"tools": "fake"}]
    with wtb.Bench("memory://") as bench:
        runs = [bench.run(flow, {"messages": [["user", "tea?"]]}, variants=chosen) for chosen in variants]
        said = [run.state["messages"][-1].content for run in runs]
    assert [thing for thing, _ in lines] == ["prompt", "model", "tools"]
    assert said == [
        "large, Be kind., in the shop",
        "large, Be brief., in the shop",
        "small, Be kind., in the shop",
        "large, Be kind., in a list",
    ]
