"""A real `wtb serve` with the page, and windows that notice every fault of the page."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from playwright.sync_api import Browser, BrowserContext, Page, expect

from wtb.api import page as page_files

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
WIDE = {"width": 1400, "height": 900}
PHONE = {"width": 390, "height": 844}

_PATIENCE_S = 120
"""How long a process, a click or a new address may take: a busy machine is slow, and that is no failure."""
_STARTED = re.compile(r"at (http://127\.0\.0\.1:(\d+))\.")
_LINK = re.compile(r"http://127\.0\.0\.1:\d+/sign-in/\S+")
_NOTICE_VIOLATIONS = """
    window.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => {
        window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`);
    });
"""


class Served:
    """A bench in a folder, served by a process that can be killed and started again on the same port."""

    def __init__(self, folder: Path, *references: str) -> None:
        assert (page_files.FOLDER / "index.html").is_file(), "these tests need the page: run `make web`"
        self.folder = folder
        self._references = references
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.address = ""
        self._link = ""

    def start(self) -> None:
        """Start the server and wait until it serves."""
        words = [sys.executable, "-P", "-m", "wtb", "serve", "--port", str(self.port), *self._references]
        self._process = subprocess.Popen(
            words, cwd=self.folder, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        lines: SimpleQueue[str] = SimpleQueue()
        threading.Thread(target=_pass_on, args=(self._process.stdout, lines), daemon=True).start()
        said = ""
        while line := lines.get(timeout=_PATIENCE_S):
            said += line
            if (started := _STARTED.search(line)) is not None:
                self.address, self.port = started[1], int(started[2])
            if (link := _LINK.search(line)) is not None:
                self._link = link[0]
                return
        raise AssertionError(f"the server did not start: {said}")

    def kill(self) -> None:
        """End the server as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server as Ctrl-C does."""
        self._end(signal.SIGTERM)

    def _end(self, by: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(by)
            self._process.wait(timeout=_PATIENCE_S)
            self._process = None

    def link(self) -> str:
        """Return an unused link that signs a browser in."""
        if self._link:
            link, self._link = self._link, ""
            return link
        said = self.wtb("serve", "--link")
        found = _LINK.search(said)
        assert found is not None, said
        return found[0]

    def wtb(self, *words: str) -> str:
        """Type a command in the folder of the bench, and return what it prints."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "wtb", *words],
            cwd=self.folder,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=_PATIENCE_S,
        )
        return done.stdout + done.stderr


def _pass_on(stream: IO[str], lines: SimpleQueue[str]) -> None:
    """Read what a process says, all the time that it runs: a full pipe would hold it up. The end is an empty line."""
    with stream:
        for line in stream:
            lines.put(line)
    lines.put("")


@contextmanager
def serving(folder: Path, *references: str) -> Iterator[Served]:
    """Serve the bench of a folder until the end of the block."""
    served = Served(folder, *references)
    served.start()
    try:
        yield served
    finally:
        served.stop()


class Window:
    """A signed-in browser of one person. `check` fails if the page did anything that a page must not do."""

    def __init__(self, browser: Browser, served: Served, **options: Any) -> None:
        self._served = served
        self.context: BrowserContext = browser.new_context(**{"viewport": WIDE, **options})
        self.context.set_default_timeout(_PATIENCE_S * 1_000)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=served.address)
        self.context.add_init_script(_NOTICE_VIOLATIONS)
        self.faults: list[str] = []
        self.expected: list[str] = []
        """Texts of console errors that the test provokes, such as the status of a refused request."""
        self.page: Page = self.context.new_page()
        self.page.on("console", lambda said: self._note(said.type, f"{said.text} {said.location.get('url', '')}"))
        self.page.on("pageerror", lambda error: self.faults.append(f"uncaught: {error}"))
        self.page.on("request", lambda request: self._check_host(request.url))
        self.page.goto(served.link())
        self.page.wait_for_url(f"{served.address}/runs")

    def open(self, address: str) -> Page:
        """Go to an address of the page."""
        self.page.goto(self._served.address + address)
        return self.page

    def look(self, name: str) -> None:
        """Keep a picture in the folder that WTB_SCREENSHOTS names, for people who want to look."""
        folder = os.environ.get("WTB_SCREENSHOTS")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)

    def check_axe(self) -> None:
        """Fail if axe finds something serious in what is shown now."""
        expect(self.page.locator(".loading")).to_have_count(0)
        self.page.evaluate(AXE.read_text())
        found = self.page.evaluate("async () => (await axe.run()).violations")
        serious = [
            f"{each['id']}: {each['help']}: {[node['target'] for node in each['nodes'][:5]]}"
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == [], json.dumps(serious, indent=1)

    def check(self) -> None:
        """Fail on console errors, uncaught errors, requests to other hosts and violations of the policy."""
        assert self.faults == [], self.faults
        assert self.page.evaluate("window.violations") == []

    def close(self) -> None:
        """Close the browser's window."""
        self.context.close()

    def _note(self, kind: str, text: str) -> None:
        if kind == "error" and not any(expected in text for expected in self.expected):
            self.faults.append(text)

    def _check_host(self, url: str) -> None:
        if not url.startswith((self._served.address, "data:", "blob:", "ws://127.0.0.1")):
            self.faults.append(f"request to another host: {url}")


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WTB_", "COV_"))}
    return {**kept, "WTB_USER": "tester", "NO_COLOR": "1"}
