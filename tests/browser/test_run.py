"""One run: graph, timeline, branches, checkpoints, calls, output; live, after a crash of the server, and very long."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from playwright.sync_api import Browser, Page, Route, expect

import wtb
from tests.browser.agent_workflow import HOSTILE, flow
from tests.browser.long_run import store_long_run
from tests.browser.served import PHONE, Served, Window, serving
from wtb.langgraph import Saver

SOURCE = Path(__file__).parent / "agent_workflow.py"
VIEWS = ("graph", "timeline", "branches", "checkpoints", "calls", "events", "output", "usage")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("bench")
    shutil.copy(SOURCE, folder / "agent.py")
    with wtb.Bench(folder=folder / ".wtb") as bench:
        travelled = bench.run(flow, {"topic": "wasps", "path": str(folder / "page")}, run_id="travelled")
        travelled.rollback("write#2", allow_irreversible=True)
        travelled.resume(update={"needed": 5})
        travelled.fork("review#1", run_id="forked")
        bench.run(flow, {"topic": "ants", "asks": True}, run_id="asking")
        bench.run(flow, {"topic": HOSTILE, "fails": True}, run_id="hostile")
        _converse(Saver(bench), thread="thread")
    store_long_run(folder, "long", steps=10_000)
    with serving(folder, "agent.py", "agent.py:slow") as running:
        yield running


def _converse(saver: Saver, thread: str) -> None:
    """Run a graph of LangGraph's own."""
    builder = StateGraph(MessagesState)
    builder.add_node("talk", lambda state: {"messages": [AIMessage("Good morning")]})
    builder.add_edge(START, "talk")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"messages": [HumanMessage("Hello")]}, {"configurable": {"thread_id": thread}})


@pytest.fixture
def window(browser: Browser, served: Served) -> Iterator[Window]:
    opened = Window(browser, served)
    yield opened
    opened.check()
    opened.close()


def _content(page: Page, view: str) -> None:
    """Wait until the content of a view is there."""
    shown = ".graph-node" if view == "graph" else ".vtable-row, .run-line, tbody tr, .empty"
    expect(page.locator(shown).first).to_be_visible()


def test_the_graph_shows_each_node_and_each_visit(window: Window) -> None:
    page = window.open("/runs/travelled")
    expect(page.locator(".graph-node").filter(has_text="write")).to_contain_text("5 visits")
    expect(page.locator(".graph-node").filter(has_text="publish")).to_contain_text("done")
    window.check_axe()
    window.look("run-graph-light")
    page.locator('.react-flow__node[data-id="publish"]').focus()
    page.keyboard.press("Enter")
    panel = page.get_by_role("complementary", name="Node publish")
    expect(panel.get_by_role("link", name="publish#1")).to_have_attribute(
        "href", "/runs/travelled/checkpoints/publish%231"
    )
    expect(panel).to_contain_text("send_mail")
    expect(page).to_have_url(re.compile("node=publish"))
    page.get_by_label("show each visit").click()
    expect(page.locator(".graph-node").filter(has_text="write#5")).to_be_visible()
    expect(page).to_have_url(re.compile("visits=each"))


def test_the_timeline_has_lanes_for_parallel_nodes_and_shows_who_waits(window: Window) -> None:
    page = window.open("/runs/asking?view=timeline")
    parallel = page.get_by_role("row").filter(has_text="search#1")
    expect(parallel).to_contain_text("read#1")
    expect(parallel.locator(".timeline-piece")).to_have_count(2)
    waiting = page.get_by_role("row").filter(has_text="confirm#1")
    expect(waiting.locator(".timeline-wait")).to_be_visible()
    expect(waiting).to_contain_text("waited")
    expect(page.get_by_label("Question", exact=True)).to_contain_text("Publish this about ants?")
    window.check_axe()
    window.look("run-timeline-light")


def test_branches_tell_of_rollbacks_forks_and_what_was_left_behind(window: Window) -> None:
    page = window.open("/runs/travelled?view=branches")
    rows = page.get_by_role("table", name="Branches of the run").get_by_role("row")
    expect(rows.filter(has_text="main: the run is here")).to_contain_text("publish#1")
    expect(rows.filter(has_text="left behind by a rollback")).to_contain_text("review#2")
    expect(rows.filter(has_text="safety copy").get_by_role("link")).to_have_attribute(
        "href", re.compile("/runs/travelled/checkpoints/[0-9a-f-]+")
    )
    expect(rows.filter(has_text="fork").get_by_role("link")).to_have_attribute("href", "/runs/forked")
    expect(rows.filter(has_text=re.compile(r"\d+ steps, from")).first).to_be_visible()
    window.check_axe()
    window.look("run-branches-light")
    window.open("/runs/forked?view=timeline")
    expect(page.get_by_role("row").filter(has_text="of run travelled").first).to_be_visible()


def test_the_thread_of_a_langgraph_client_says_where_to_look(window: Window) -> None:
    page = window.open("/runs/thread")
    for view in ("graph", "timeline", "usage"):
        window.open(f"/runs/thread?view={view}")
        expect(page.locator(".empty")).to_contain_text("only checkpoints are stored")
    window.check_axe()
    page.locator(".empty").get_by_role("link", name="branches").click()
    expect(page.get_by_role("row").filter(has_text="talk#1")).to_contain_text("the run is here")
    window.open("/runs/thread/checkpoints/0")
    expect(page.get_by_label("About this checkpoint")).to_contain_text("not known")


def test_two_checkpoints_are_chosen_and_compared(window: Window) -> None:
    page = window.open("/runs/travelled?view=checkpoints")
    rows = page.get_by_role("table", name="Checkpoints, newest first").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("head")
    expect(rows.filter(has_text="left behind")).to_have_count(0)
    page.get_by_label("also what rollbacks left behind").click()
    expect(rows.filter(has_text="left behind").first).to_be_visible()
    rows.nth(1).get_by_role("checkbox").click()
    rows.nth(3).get_by_role("checkbox").click()
    expect(page.get_by_role("link", name="Compare the two chosen checkpoints")).to_have_attribute(
        "href", re.compile(r"/runs/travelled/diff\?from=[0-9a-f-]+&to=[0-9a-f-]+")
    )
    window.check_axe()
    window.look("run-checkpoints-light")


def test_calls_show_what_went_in_and_out_and_whether_they_can_be_undone(window: Window) -> None:
    page = window.open("/runs/travelled?view=calls")
    rows = page.get_by_role("table", name="Calls in the order of their starts").get_by_role("row")
    reversed_call = rows.filter(has_text="reversed")
    expect(reversed_call).to_contain_text("publish_page")
    expect(reversed_call).to_contain_text("undone")
    expect(rows.filter(has_text="send_mail").first).to_contain_text("cannot be undone")
    rows.filter(has_text="send_mail").first.get_by_role("button").click()
    expect(page.get_by_text("sent to wasps")).to_be_visible()
    window.check_axe()
    window.look("run-calls-light")


@pytest.mark.parametrize(("scheme", "viewport"), [("light", PHONE), ("dark", {"width": 1400, "height": 900})])
def test_hostile_text_stays_text_in_every_part(
    browser: Browser, served: Served, scheme: str, viewport: dict[str, int]
) -> None:
    window = Window(browser, served, viewport=viewport, color_scheme=scheme)
    page = window.page
    for view in VIEWS:
        window.open(f"/runs/hostile?view={view}")
        expect(page.get_by_label("Failure")).to_contain_text("<script>window.hacked = 1</script>")
        _content(page, view)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img, main script").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        window.check_axe()
        window.look(f"run-{view}-{scheme}")
    window.page.get_by_text("Traceback", exact=True).click()
    expect(window.page.locator(".run-traceback")).to_contain_text("raise ValueError")
    window.check()
    window.close()


def test_the_page_goes_on_after_a_crash_of_the_server(window: Window, served: Served) -> None:
    page = window.open("/workflows/slow")
    page.get_by_label("Input, as a JSON object").fill('{"limit": 150, "pause_s": 0.03}')
    page.get_by_role("button", name="Start the run").click()
    page.wait_for_url(re.compile("/runs/"))
    page.get_by_role("link", name="Output").click()
    expect(page.get_by_role("log")).to_contain_text(re.compile(r"tick \d+"))  # the end is in sight, wherever the run is
    window.expected += ["ERR_CONNECTION_REFUSED", "WebSocket", "Failed to load resource"]
    served.kill()
    expect(page.get_by_role("status").filter(has_text="Reconnecting")).to_be_visible()
    served.start()
    expect(page.get_by_role("status").filter(has_text="Live")).to_be_visible()
    expect(page.locator(".run-title")).to_contain_text("completed")
    expect(page.get_by_role("log")).to_contain_text("tick 149")
    page.get_by_role("link", name="Checkpoints").click()
    expect(page.get_by_role("row").nth(1)).to_contain_text("tick#150")


def test_a_run_of_ten_thousand_steps_is_shown_in_windows(window: Window) -> None:
    page = window.open("/runs/long?view=checkpoints")
    rows = page.get_by_role("table", name="Checkpoints, newest first").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("10000")
    _scroll_down_to(page, 9800)
    assert page.locator(".vtable-row").count() < 80
    window.open("/runs/long?view=timeline")
    expect(page.get_by_role("row").filter(has_text="10000").first).to_be_visible()
    window.open("/runs/long?view=branches")
    expect(page.get_by_text("9,999 steps, from 1 to 9999")).to_be_visible()
    window.open("/runs/long?visits=each")
    expect(page.get_by_text("The last 500 steps are shown")).to_be_visible()


def test_older_rows_that_cannot_be_read_are_asked_for_once_and_again_on_request(window: Window) -> None:
    window.expected.append("Failed to load resource")
    asked: list[str] = []

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.abort()

    window.page.route("**/checkpoints?*cursor=*", refuse)
    page = window.open("/runs/long?view=checkpoints")
    _scroll_to_the_end(page)
    expect(page.get_by_role("alert")).to_contain_text("the server does not answer")
    page.evaluate("async () => { for (let n = 0; n < 90; n++) await new Promise(requestAnimationFrame) }")
    assert len(asked) == 1  # a list at its end does not ask again and again
    window.page.unroute("**/checkpoints?*cursor=*")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_have_count(0)
    _scroll_down_to(page, 9800)


def _scroll_to_the_end(page: Page) -> None:
    page.locator(".vtable").evaluate("frame => frame.scrollTo(0, frame.scrollHeight)")


def _scroll_down_to(page: Page, step: int) -> None:
    """Scroll to the end of the list again and again, since rows are added there, until that step is drawn."""
    oldest = page.locator(".vtable-row").last.get_by_role("link").first
    for _ in range(600):
        _scroll_to_the_end(page)
        if int(oldest.inner_text()) <= step:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"step {step} was not drawn within a minute")
