"""A real browser: Debian's Chromium, which `scripts/services` installs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

# A page that a busy machine draws late is no failure; by itself playwright gives up after five seconds.
expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a module; each opens its own window.

    Playwright runs an event loop in this thread, so that nobody can call `asyncio.run` before it ends.
    """
    chromium = shutil.which("chromium")
    assert chromium is not None, "these tests need Chromium: run scripts/services, or apt-get install chromium"
    with sync_playwright() as playwright:
        # In a container tests often run as root, for whom Chromium has no sandbox.
        opened = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()
