"""LangGraph's own tests, of the installed version, with our Saver as their checkpointer.

`scripts/langgraph_tests` downloads them into build/. They run in a process of their own, since their package is called
`tests` as ours is. All tests run that take a checkpointer fixture; in 1.2.20 none of these looks into the saver. Tests
that do make a saver of LangGraph's own, and are not run: `test_delta_channel_snapshot_version_based` in
test_channels.py reads the `storage` of an InMemorySaver, and these in test_prune_postgres.py the `conn` of a
PostgresSaver: `test_keep_latest_keeps_a_turn_saved_after_it_read_the_heads`,
`test_keep_latest_refuses_a_thread_that_switches_to_a_delta_channel_mid_batch` and
`test_keep_latest_keeps_a_delta_channel_turn_saved_after_the_thread_check`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

HERE = Path(__file__).parent
SUITE = HERE.parents[1] / "build" / f"langgraph-{version('langgraph')}"
STORAGES = ["memory", "sqlite", "sqlite-encrypted", "postgres"]
TAKES = "sync_checkpointer"
"""What is in every file of tests that take a checkpointer, `async_checkpointer` included."""

PARTS = {
    "time travel": ["test_time_travel.py"],
    "time travel, async": ["test_time_travel_async.py"],
    "interrupts": ["test_interruption.py", "test_interrupt_state.py", "test_strict_resume.py"],
    "subgraphs": ["test_subgraph_persistence.py", "test_subgraph_persistence_async.py"],
}
"""What `make test` runs; in parts, so that several processes share the work."""


def chosen() -> list[Any]:
    """Return which tests run: a part of them on Postgres, in `make soak` all of them on each storage."""
    if "WTB_SOAK" not in os.environ:
        return [pytest.param("postgres", files, 15, id=name) for name, files in PARTS.items()]
    all_files = sorted(path.name for path in (SUITE / "tests").glob("test_*.py") if TAKES in path.read_text())
    return [pytest.param(storage, all_files, 600, id=storage) for storage in STORAGES]


def outcomes(storage: str, files: list[str], folder: Path, url: str = "") -> Counter[str]:
    """Run tests of LangGraph's, and return how many there were of each outcome; a failure shows their output."""
    if not (SUITE / "tests").is_dir():
        pytest.fail(f"{SUITE}/tests is not there: run `scripts/langgraph_tests`, which downloads it")
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", f"--basetemp={folder / 'tests'}", f"--junitxml={report}"]
    command += ["-c", f"{HERE / 'suite.ini'}", f"--rootdir={SUITE}", *(f"tests/{file}" for file in files)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    own = {"WTB_SUITE_STORAGE": storage, "WTB_SUITE_URL": url, "PYTHONPATH": f"{HERE}", "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(command, cwd=SUITE, env=kept | own, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr[-5_000:]
    cases = ElementTree.parse(report).iter("testcase")
    return Counter(next((part.tag for part in case if part.tag == "skipped"), "passed") for case in cases)


@pytest.mark.parametrize(("storage", "files", "fewest"), chosen())
def test_langgraphs_own_tests_pass_with_our_saver(
    storage: str, files: list[str], fewest: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = ""
    if storage == "postgres":
        url = request.getfixturevalue("postgres").url(request.getfixturevalue("migrated_database"))
    found = outcomes(storage, files, tmp_path, url)
    assert found["passed"] >= fewest
    assert found["skipped"] == 0
